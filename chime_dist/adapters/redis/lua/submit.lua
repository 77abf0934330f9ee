-- Store a proposal that no lease brought; the first stored one wins. Returns 1 when it was stored.
local turn, proposals, changes = unpack(KEYS)
local own_turn, run, position, proposal, kept = unpack(ARGV)

local current = redis.call('GET', turn)
if not current then return redis.error_reply('CHIMELOST no turn') end
if own_turn ~= current then return redis.error_reply('CHIMETURN another turn') end

local stored = redis.call('HSETNX', proposals, position, proposal)
if stored == 1 then
  redis.call('XADD', changes, 'MAXLEN', '~', kept, '*', 'kind', 'completed', 'run', run, 'unit', '', 'head', 0)
end
return stored
