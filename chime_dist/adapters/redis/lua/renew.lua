-- Restart the clock of many leases without raising their delivery counts (JUSTID).
-- ARGV from 2 on: turn, entry id, delivery and consumer of each lease. Returns the 1-based numbers of lost ones.
local turn, ready = unpack(KEYS)
local own_turn = ARGV[1]

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end

local lost = {}
for i = 2, #ARGV, 4 do
  local id, delivery, consumer = ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local row = ARGV[i] == own_turn and redis.call('XPENDING', ready, own_turn, id, id, 1)[1]
  if row and row[2] == consumer and row[4] == delivery then
    redis.call('XCLAIM', ready, own_turn, consumer, '0', id, 'JUSTID')
  else
    lost[#lost + 1] = (i + 2) / 4
  end
end
return lost
