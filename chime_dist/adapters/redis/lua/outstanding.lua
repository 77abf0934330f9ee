-- Keys of units that are admitted and not completed.
local turn, open = unpack(KEYS)
local own_turn = ARGV[1]

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
return redis.call('SMEMBERS', open)
