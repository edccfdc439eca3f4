-- KEYS: lease. Returns {holder, fencing, milliseconds left}; holder and fencing are false without a holder.
return {
  redis.call('HGET', KEYS[1], 'holder'),
  redis.call('HGET', KEYS[1], 'fencing'),
  tostring(math.max(redis.call('PTTL', KEYS[1]), 0)),
}
