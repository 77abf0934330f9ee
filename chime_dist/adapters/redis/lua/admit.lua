-- Add a unit to the ready stream once per turn. Returns 1 when the call with this nonce added it, else 0.
local turn, ready, units, open = unpack(KEYS)
local own_turn, key, unit, nonce = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
-- A completed unit holds its lease's token here; a nonce can never equal one.
if redis.call('HSETNX', units, key, nonce) == 0 then
  return redis.call('HGET', units, key) == nonce and 1 or 0
end
redis.call('SADD', open, key)
redis.call('XADD', ready, '*', 'unit', unit)
return 1
