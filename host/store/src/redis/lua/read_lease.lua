-- KEYS: lease, epoch, wait. Returns {holder, fencing, milliseconds left}; holder and fencing are false without a
-- holder. After a failover the lease of a former epoch counts while none is granted.
local lease = redis.call('HMGET', KEYS[1], 'holder', 'fencing', 'epoch')
local left = redis.call('PTTL', KEYS[1])
if (lease[3] or '') ~= (redis.call('HGET', KEYS[2], 'id') or '') then
  left = redis.call('PTTL', KEYS[3])
  if left <= 0 then
    return {false, false, '0'}
  end
end
return {lease[1], lease[2], tostring(math.max(left, 0))}
