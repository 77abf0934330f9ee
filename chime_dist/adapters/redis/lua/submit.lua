-- Store a proposal that no lease brought; the first stored one wins. Returns 1 when it was stored.
local proposals, changes = unpack(KEYS)
local run, position, proposal, kept = unpack(ARGV)

local stored = redis.call('HSETNX', proposals, position, proposal)
if stored == 1 then
  redis.call('XADD', changes, 'MAXLEN', '~', kept, '*', 'kind', 'completed', 'run', run, 'unit', '', 'head', 0)
end
return stored
