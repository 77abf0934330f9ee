-- A call ended: free its place, settle its tokens, and pause everybody where the server asked for it.
-- ``core.pacing.Pace.leave`` is the same in Python. KEYS and ``now`` as for pace_enter; ``slow_down`` is empty where
-- the server asked for none, ``answered`` 1 or 0. Sent twice, it does nothing the second time.
local pace, flights = KEYS[1], KEYS[2]
local now, call, beyond, slow_down, answered, token_rate, share, first, longest, most = unpack(ARGV)
if now == '' then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1e6
end
now, beyond, token_rate, share = tonumber(now), tonumber(beyond), tonumber(token_rate), tonumber(share)
first, longest, most = tonumber(first), tonumber(longest), tonumber(most)

if redis.call('ZREM', flights, call) == 0 then return 0 end
if token_rate > 0 then
  local capacity = math.max(1, token_rate / share)
  local level = tonumber(redis.call('HGET', pace, 'tokens') or capacity)
  redis.call('HSET', pace, 'tokens', string.format('%.17g', math.min(capacity, level - beyond)))
end
local paused_until = tonumber(redis.call('HGET', pace, 'paused_until') or -1e18)
if slow_down == '' then
  if answered == '1' and now >= paused_until then redis.call('HSET', pace, 'pauses', 0) end
  return 1
end
local pause = math.min(tonumber(slow_down), most)
if now >= paused_until then
  local pauses = redis.call('HINCRBY', pace, 'pauses', 1)
  pause = math.max(pause, math.min(longest, first * 2 ^ math.min(pauses - 1, 60)))
end
redis.call('HSET', pace, 'paused_until', string.format('%.17g', math.max(paused_until, now + pause)))
return 1
