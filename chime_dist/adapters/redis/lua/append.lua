-- Append a line to a run's journal. Returns 'appended', 'already_same', 'fenced' or 'conflict'.
--
-- The order of the questions is the contract. A line that is there is there for good, whoever owns the journal
-- now: its writer, asking again after a lost reply, must hear so and not that its commit did not happen. Then the
-- turn: a server that lost its data gives the same fences again, and never a turn. Then the fence: a replaced owner
-- that meets its successor's line has to stop, not to report a fork. Then the head.
local turn, fence, journal, changes = unpack(KEYS)
local own_turn, run, owner, position, line, kept = unpack(ARGV)
owner, position = tonumber(owner), tonumber(position)

local there = redis.call('LINDEX', journal, position)
if there == line then return 'already_same' end
local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end
local newest = tonumber(redis.call('GET', fence) or 0)
if owner > newest then return redis.error_reply('CHIMELOST no such fence') end
if owner < newest then return 'fenced' end
if there or redis.call('LLEN', journal) ~= position then return 'conflict' end
redis.call('RPUSH', journal, line)
redis.call('XADD', changes, 'MAXLEN', '~', kept, '*', 'kind', 'committed', 'run', run, 'unit', '', 'head', position + 1)
return 'appended'
