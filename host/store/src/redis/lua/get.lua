-- KEYS: values, versions. ARGV: key. Returns {version, value}, each false when missing.
return {redis.call('HGET', KEYS[2], ARGV[1]), redis.call('HGET', KEYS[1], ARGV[1])}
