-- Give the driver's token back. Returns 1, or 0 where it is another driver's or ran out.
local driver = KEYS[1]
local ours = ARGV[1]

if redis.call('GET', driver) ~= ours then return 0 end
return redis.call('DEL', driver)
