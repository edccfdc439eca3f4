-- KEYS: lease, counter of fencing numbers, epoch, longest time to live, wait. ARGV: holder, milliseconds to live,
-- 'holds' if the lease of the holder has not ended by its own clock.
-- Returns {'ok', fencing} or {'held', holder, milliseconds left}.
local epoch = redis.call('HGET', KEYS[3], 'id') or ''
local lease = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
local holder = lease[1]
local is_current = holder and (lease[2] or '') == epoch
if is_current and holder ~= ARGV[1] then
  return {'held', holder, tostring(math.max(redis.call('PTTL', KEYS[1]), 0))}
end
-- After a failover the lease of a holder may last that this server never knew.
local wait = redis.call('PTTL', KEYS[5])
if wait > 0 and not is_current and ARGV[3] ~= 'holds' then
  return {'held', holder or 'an unknown holder before the failover', tostring(wait)}
end
-- Fencing numbers follow the clock, like versions, so that a server that lost its last writes grants no
-- number twice.
local time = redis.call('TIME')
local next = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(time[1]) * 1000000 + tonumber(time[2])) + 1
local fencing = string.format('%.0f', next)
redis.call('SET', KEYS[2], fencing)
if tonumber(ARGV[2]) > tonumber(redis.call('GET', KEYS[4]) or '0') then
  redis.call('SET', KEYS[4], ARGV[2])
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'fencing', fencing, 'epoch', epoch)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok', fencing}
