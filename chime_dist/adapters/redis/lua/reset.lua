-- Start a driver's turn. Proposals, journals and the change feed stay; units, leases and the group start anew.
-- A reset that is re-sent, and arrives late, does not wipe what was admitted after its twin: it is this turn's.
-- The group has the turn's name, so that a reader of an older turn, blocked on the stream, gets nothing of this one.
local turn, ready, units, open = unpack(KEYS)
local new_turn = ARGV[1]

if redis.call('GET', turn) == new_turn then return end
redis.call('DEL', ready, units, open)
redis.call('XGROUP', 'CREATE', ready, new_turn, '0', 'MKSTREAM')
redis.call('SET', turn, new_turn)
