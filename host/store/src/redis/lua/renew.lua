-- KEYS: lease. ARGV: fencing, milliseconds to live. Returns {'ok'} or {'fenced', current fencing number}.
local current = redis.call('HGET', KEYS[1], 'fencing')
if current ~= ARGV[1] then
  return {'fenced', current or ''}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok'}
