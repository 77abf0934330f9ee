-- Drop the proposal of a position. Returns 1, or 0 where there was none.
local turn, proposals = unpack(KEYS)
local own_turn, position = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
return redis.call('HDEL', proposals, position)
