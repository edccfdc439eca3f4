-- Begins an epoch, or completes one that has begun; no effect when that has been done.
-- KEYS: epoch, counter of versions, counter of fencing numbers, longest time to live of a lease, wait.
-- ARGV: id of the epoch, 'begin' or 'complete'. Returns {version when the epoch began}.
local epoch = redis.call('HMGET', KEYS[1], 'id', 'state', 'from')
if ARGV[2] == 'begin' and epoch[1] ~= ARGV[1] then
  local from = redis.call('GET', KEYS[2]) or '0'
  -- The former primary may have assigned more numbers, by a clock that is ahead of this one by less than an hour. If
  -- two servers begin an epoch, their numbers differ.
  local ahead = 3600 * 1000000 + tonumber(string.sub(redis.sha1hex(ARGV[1]), 1, 8), 16)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  for i = 2, 3 do
    local next = math.max(tonumber(redis.call('GET', KEYS[i]) or '0'), now) + ahead
    redis.call('SET', KEYS[i], string.format('%.0f', next))
  end
  redis.call('HSET', KEYS[1], 'id', ARGV[1], 'state', 'begun', 'from', from)
  return {from}
elseif ARGV[2] == 'complete' and epoch[1] == ARGV[1] and epoch[2] == 'begun' then
  -- Every lease of the former primary has ended by then.
  local longest = redis.call('GET', KEYS[4])
  if longest then
    redis.call('SET', KEYS[5], ARGV[1], 'PX', longest)
  end
  redis.call('HSET', KEYS[1], 'state', 'complete')
end
return {epoch[3] or '0'}
