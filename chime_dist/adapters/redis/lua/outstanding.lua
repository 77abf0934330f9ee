-- Keys of units that are admitted and not completed.
local turn, open = unpack(KEYS)

if redis.call('EXISTS', turn) == 0 then return redis.error_reply('CHIMELOST no turn') end
return redis.call('SMEMBERS', open)
