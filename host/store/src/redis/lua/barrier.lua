-- A write after everything that the connection wrote and read, which replicas confirm.
-- KEYS: epoch, barrier. ARGV: id of the connection's epoch. Returns {'ok'} or {'replaced'}.
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return {'replaced'}
end
redis.call('SET', KEYS[2], ARGV[1])
return {'ok'}
