-- Completes a scan of many pages to a snapshot: returns every key of the range with its version, and the
-- values that were put after the scan began.
-- KEYS: versions, index. ARGV: from, to, the counter when the scan began.
-- Returns for each entry: key, version, value or false.
local began, reply = tonumber(ARGV[3]), {}
for _, key in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2])) do
  local version = redis.call('HGET', KEYS[1], key)
  reply[#reply + 1] = key
  reply[#reply + 1] = version
  reply[#reply + 1] = version and tonumber(version) > began and redis.call('GET', key)
end
return reply
