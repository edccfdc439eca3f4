-- One page of a scan.
-- KEYS: versions, index, counter. ARGV: from, to, maximum entries, bytes after which a page is full.
-- Returns {counter, 'more' or 'end', then for each entry: key, version, value}.
local keys = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local reply = {redis.call('GET', KEYS[3]) or '0', #keys == tonumber(ARGV[3]) and 'more' or 'end'}
local bytes, full = 0, tonumber(ARGV[4])
for i, key in ipairs(keys) do
  local value = redis.call('GET', key)
  reply[#reply + 1] = key
  reply[#reply + 1] = redis.call('HGET', KEYS[1], key)
  reply[#reply + 1] = value
  bytes = bytes + #key + (value and #value or 0)
  if bytes >= full and i < #keys then
    reply[2] = 'more'
    break
  end
end
return reply
