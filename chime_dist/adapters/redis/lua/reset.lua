-- Start a driver's turn. Proposals, journals and the change feed stay; units, leases and the group start anew.
-- The nonce keeps a re-sent reset that arrives late from wiping what was admitted after its twin.
local turn, reset, ready, units, open = unpack(KEYS)
local group, nonce = unpack(ARGV)

if redis.call('GET', reset) == nonce then return redis.call('GET', turn) end
redis.call('DEL', ready, units, open)
redis.call('XGROUP', 'CREATE', ready, group, '0', 'MKSTREAM')
redis.call('SET', reset, nonce)
return redis.call('INCR', turn)
