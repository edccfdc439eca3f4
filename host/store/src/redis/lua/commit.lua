-- Applies a batch as a whole or not at all.
-- KEYS: versions, index, counter, epoch; then the lease of each fence.
-- ARGV: channel, number of fences, their fencing numbers; then for each change: key, 'put' or 'delete', the
-- expected entry ('any', 'absent' or a version), value.
-- Returns {'ok', version...}, {'fenced', index of the fence, current number} or {'conflict', key, version}.
local versions, index, counter = KEYS[1], KEYS[2], KEYS[3]
local fences = tonumber(ARGV[2])
local epoch = fences > 0 and redis.call('HGET', KEYS[4], 'id') or ''
for i = 1, fences do
  local lease = redis.call('HMGET', KEYS[4 + i], 'fencing', 'epoch')
  if lease[1] ~= ARGV[2 + i] or (lease[2] or '') ~= epoch then
    return {'fenced', tostring(i), lease[1] ~= ARGV[2 + i] and lease[1] or ''}
  end
end

-- After the first write no command may fail, so that keys of another type are detected here.
redis.call('HLEN', versions)
redis.call('ZCARD', index)

-- Versions follow the clock, so that a server that lost its last writes assigns none twice. They increase
-- even if the clock does not. Microseconds fit into a Lua number until the year 2255.
local time = redis.call('TIME')
local next = math.max(tonumber(redis.call('GET', counter) or '0'), tonumber(time[1]) * 1000000 + tonumber(time[2]))
local reply, left = {'ok'}, {}
for i = 3 + fences, #ARGV, 4 do
  local key, expected = ARGV[i], ARGV[i + 2]
  local found = left[key]
  if found == nil then
    found = redis.call('HGET', versions, key)
  end
  if expected == 'absent' and found or expected ~= 'absent' and expected ~= 'any' and expected ~= found then
    return {'conflict', key, found or ''}
  end
  next = next + 1
  if ARGV[i + 1] == 'put' then
    left[key] = string.format('%.0f', next)
    reply[#reply + 1] = left[key]
  else
    left[key] = false
    reply[#reply + 1] = '0'
  end
end

local told, at = {}, 1
for i = 3 + fences, #ARGV, 4 do
  local key = ARGV[i]
  at = at + 1
  if ARGV[i + 1] == 'put' then
    redis.call('SET', key, ARGV[i + 3])
    redis.call('HSET', versions, key, reply[at])
    redis.call('ZADD', index, 0, key)
  else
    redis.call('DEL', key)
    redis.call('HDEL', versions, key)
    redis.call('ZREM', index, key)
  end
  told[#told + 1] = reply[at] .. ' ' .. #key .. ' ' .. key .. '\n'
end
if at > 1 then
  redis.call('SET', counter, string.format('%.0f', next))
  local message = table.concat(told)
  -- The server could close the connections of watchers if a message is too large.
  redis.call('PUBLISH', ARGV[1], #message <= 1048576 and message or 'missed')
end
return reply
