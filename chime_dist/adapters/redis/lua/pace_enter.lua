-- Let a call to a backbone in, or say how long to wait; ``core.pacing.Pace.enter`` is the same in Python.
--
-- KEYS: the pace's hash, the caller's calls in flight (sorted set: call -> when it stops counting), those of all
-- others. Times are the server's, in seconds, so that the clocks of the callers' hosts do not matter; ARGV now is empty except in tests.
-- Returns the wait as text, '0' for a call that is in.
local pace, flights = KEYS[1], KEYS[2]
local now, call, tokens, lasts, most, request_rate, token_rate, minute, share, ramp, gap, poll, shortest, longest =
  unpack(ARGV)
if now == '' then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1e6
end
now, tokens, lasts, most = tonumber(now), tonumber(tokens), tonumber(lasts), tonumber(most)
request_rate, token_rate, minute, share = tonumber(request_rate), tonumber(token_rate), tonumber(minute), tonumber(share)
ramp, gap, poll, longest = tonumber(ramp), tonumber(gap), tonumber(poll), tonumber(longest)

local function held(name, otherwise)
  return tonumber(redis.call('HGET', pace, name) or otherwise)
end

local function refilled(kind, rate)
  local capacity = math.max(1, rate / share)
  local per_s = (rate - capacity) / minute
  local at = held(kind .. '_at', now)
  local level = math.min(capacity, held(kind, capacity) + math.max(0, now - at) * per_s)
  redis.call('HSET', pace, kind, string.format('%.17g', level), kind .. '_at', string.format('%.17g', now))
  return level, per_s
end

local until_then = redis.call('ZSCORE', flights, call)
if until_then and tonumber(until_then) > now then return '0' end
-- The first write is one that Redis allows at its memory limit, and with it the rest of the script: open episodes
-- must come to their end there, because what they hand in is what makes room.
redis.call('ZREM', flights, call)

local paused_until = held('paused_until', -1e18)
if paused_until > now + longest then
  paused_until = now + longest
  redis.call('HSET', pace, 'paused_until', string.format('%.17g', paused_until))
end
local wait = paused_until - now
if now < paused_until + ramp then
  wait = math.max(wait, math.min(held('entered_at', -1e18), now) + gap - now)
end
if request_rate > 0 then
  local level, per_s = refilled('requests', request_rate)
  wait = math.max(wait, (1 - level) / per_s)
end
if token_rate > 0 then
  local level, per_s = refilled('tokens', token_rate)
  wait = math.max(wait, -level / per_s)
end
if most > 0 then
  local in_flight = 0
  for i = 2, #KEYS do
    redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.17g', now))
    in_flight = in_flight + redis.call('ZCARD', KEYS[i])
  end
  if in_flight >= most then wait = math.max(wait, poll) end
end
if wait >= tonumber(shortest) then return string.format('%.17g', wait) end

if request_rate > 0 then redis.call('HINCRBYFLOAT', pace, 'requests', -1) end
if token_rate > 0 then redis.call('HINCRBYFLOAT', pace, 'tokens', -tokens) end
redis.call('HSET', pace, 'entered_at', string.format('%.17g', now))
redis.call('ZADD', flights, string.format('%.17g', now + lasts), call)
return '0'
