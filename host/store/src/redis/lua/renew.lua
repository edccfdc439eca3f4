-- KEYS: lease, epoch. ARGV: fencing, milliseconds to live. Returns {'ok'} or {'fenced', current fencing number}.
local lease = redis.call('HMGET', KEYS[1], 'fencing', 'epoch')
if lease[1] ~= ARGV[1] or (lease[2] or '') ~= (redis.call('HGET', KEYS[2], 'id') or '') then
  return {'fenced', lease[1] ~= ARGV[1] and lease[1] or ''}
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok'}
