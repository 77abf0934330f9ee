-- Up to `count` changes after the id `since`; an empty `since` is the newest id. Returns {since, changes}.
local turn, changes = unpack(KEYS)
local own_turn, since, count = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
if since == '' then
  local newest = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1]
  return {newest and newest[1] or '0-0', {}}
end
local found = {}
local streams = redis.call('XREAD', 'COUNT', count, 'STREAMS', changes, since)
for _, entry in ipairs(streams and streams[1][2] or {}) do
  local fields = entry[2]
  found[#found + 1] = {fields[2], fields[4], fields[6], fields[8]}
  since = entry[1]
end
return {since, found}
