-- Start a driver's turn. Proposals, journals and the change feed stay; units, leases and the group start anew.
-- A re-sent reset only opens one more turn, which holds nothing either.
local turn, ready, units, open = unpack(KEYS)
local group = ARGV[1]

redis.call('DEL', ready, units, open)
redis.call('XGROUP', 'CREATE', ready, group, '0', 'MKSTREAM')
return redis.call('INCR', turn)
