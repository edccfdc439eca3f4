-- KEYS: lease, counter of fencing numbers. ARGV: holder, milliseconds to live.
-- Returns {'ok', fencing} or {'held', holder, milliseconds left}.
local holder = redis.call('HGET', KEYS[1], 'holder')
if holder and holder ~= ARGV[1] then
  return {'held', holder, tostring(math.max(redis.call('PTTL', KEYS[1]), 0))}
end
-- Fencing numbers follow the clock, like versions, so that a server that lost its last writes grants no
-- number twice.
local time = redis.call('TIME')
local next = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(time[1]) * 1000000 + tonumber(time[2])) + 1
local fencing = string.format('%.0f', next)
redis.call('SET', KEYS[2], fencing)
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'fencing', fencing)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok', fencing}
