-- KEYS: the key, versions. Returns {version, value}, both false if the key is missing.
return {redis.call('HGET', KEYS[2], KEYS[1]), redis.call('GET', KEYS[1])}
