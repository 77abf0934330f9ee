-- Up to `count` deliveries for a consumer: its pending entries that it does not hold (their reply was lost, or it
-- restarted), then entries of anyone whose lease ran out, then new ones; by id inside each group.
-- Taking a pending entry over raises the server's delivery count, so the older token can complete nothing.
-- ARGV from 5 on: the entry ids the consumer holds. Returns {id, delivery, unit} for each.
local turn, ready = unpack(KEYS)
local own_turn, consumer, count, lease_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end

local skip, wanted, delivery = {}, {}, {}
local function want(pending)
  for _, row in ipairs(pending) do
    local id, deliveries = row[1], row[4]
    if #wanted < count and not skip[id] then
      skip[id] = true
      wanted[#wanted + 1] = id
      delivery[id] = deliveries + 1
    end
  end
end

for i = 5, #ARGV do skip[ARGV[i]] = true end
want(redis.call('XPENDING', ready, own_turn, '-', '+', count + #ARGV - 4, consumer))
-- A held entry whose lease ran out is anyone's again, also its holder's.
for i = 5, #ARGV do skip[ARGV[i]] = nil end
if #wanted < count then
  want(redis.call('XPENDING', ready, own_turn, 'IDLE', lease_ms, '-', '+', count))
end

local found = {}
local function give(entries)
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    found[#found + 1] = {id, delivery[id] or 1, fields[2]}
  end
end

if #wanted > 0 then
  local entries = redis.call('XCLAIM', ready, own_turn, consumer, '0', unpack(wanted))
  -- An entry that somebody deleted: Redis 6.2 claims it as false, later versions drop it.
  for i = 1, #wanted do
    if not entries[i] then return redis.error_reply('CHIMELOST a pending entry has no work') end
  end
  give(entries)
end
if #found < count then
  local streams = redis.call('XREADGROUP', 'GROUP', own_turn, consumer, 'COUNT', count - #found, 'STREAMS', ready, '>')
  if streams then give(streams[1][2]) end
end
return found
