-- KEYS: lease. ARGV: fencing. Returns {'ok'}.
if redis.call('HGET', KEYS[1], 'fencing') == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return {'ok'}
