-- Take the driver's token, or renew it. Returns {holder, milliseconds left}; who finds its own value holds it.
-- A token that ran out is anyone's; one that equals `dead` is taken from a holder that is known to be gone.
local driver = KEYS[1]
local ours, lasts_ms, dead = unpack(ARGV)

local holder = redis.call('GET', driver)
if holder == ours then
  -- Not SET, which Redis refuses at its memory limit: a launch that waits there must stay the driver.
  redis.call('PEXPIRE', driver, lasts_ms)
elseif not holder or holder == dead then
  redis.call('SET', driver, ours, 'PX', lasts_ms)
end
return {redis.call('GET', driver), redis.call('PTTL', driver)}
