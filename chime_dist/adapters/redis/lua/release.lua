-- Give an entry back: nobody's, idle since 1970, its delivery count kept. Returns 1, or 0 for a lost lease.
local turn, ready = unpack(KEYS)
local own_turn, nobody, lease_turn, id, delivery, consumer = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
if lease_turn ~= own_turn then return 0 end
local row = redis.call('XPENDING', ready, own_turn, id, id, 1)[1]
if not row or row[4] ~= tonumber(delivery) then return 0 end
-- Nobody's with this very count: the release whose reply was lost.
if row[2] == nobody then return 1 end
if row[2] ~= consumer then return 0 end
redis.call('XCLAIM', ready, own_turn, nobody, '0', id, 'TIME', '0', 'JUSTID')
return 1
