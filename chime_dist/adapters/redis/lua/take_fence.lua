-- The next fence of a run's journal, which makes its taker the owner. One that works for a replaced driver gets none:
-- it would take the journal from the owner that commits now.
local turn, fence = unpack(KEYS)
local own_turn = ARGV[1]

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
return redis.call('INCR', fence)
