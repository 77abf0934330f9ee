-- Finish a unit if the lease is its newest delivery: acknowledge and delete the entry, store the proposal, tell.
-- An empty proposal stores nothing. Returns 'stored', 'already_same' or 'lost'.
local turn, ready, units, open, proposals, changes = unpack(KEYS)
local own_turn, token, lease_turn, id, delivery, consumer, key, run, position, proposal, kept = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
if lease_turn ~= own_turn then return 'lost' end
local row = redis.call('XPENDING', ready, own_turn, id, id, 1)[1]
if not (row and row[2] == consumer and row[4] == tonumber(delivery)) then
  return redis.call('HGET', units, key) == token and 'already_same' or 'lost'
end
-- XACK is the first write because Redis allows it at the memory limit, and with it the rest of the script: at the
-- limit nothing is admitted any more, but workers can hand in what they hold.
redis.call('XACK', ready, own_turn, id)
redis.call('XDEL', ready, id)
redis.call('SREM', open, key)
redis.call('HSET', units, key, token)
if proposal ~= '' then redis.call('HSETNX', proposals, position, proposal) end
redis.call('XADD', changes, 'MAXLEN', '~', kept, '*', 'kind', 'completed', 'run', run, 'unit', key, 'head', 0)
return 'stored'
