-- Add a unit to the ready stream once per turn. Returns 1 when the call with this nonce added it, else 0.
-- A driver says which turn it started; one that another driver replaced admits nothing. '' asks for no turn.
local turn, ready, units, open = unpack(KEYS)
local key, unit, nonce, own_turn = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= '' and own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
-- A completed unit holds its lease's token here; a nonce can never equal one.
if redis.call('HSETNX', units, key, nonce) == 0 then
  return redis.call('HGET', units, key) == nonce and 1 or 0
end
redis.call('SADD', open, key)
redis.call('XADD', ready, '*', 'turn', current, 'unit', unit)
return 1
