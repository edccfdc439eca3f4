"""Whether a Redis answers PING, as `redis-ping` in Rust does it.

A Redis that loads its data takes connections and answers nothing but errors: a tcp check calls it well, this
one does not.
"""

from transom_plugin import export, log
from transom_plugin.probe import Connect, Failed, Probe, Receive, Send

# Bytes of an answer: a status and an error are one short line each.
MOST = 512


class RedisPing(Probe):
    name, version, summary = "redis-ping-python", "0.1.0", "whether a Redis answers PING"

    def attempt(self, request):
        yield Connect(request.endpoint)
        yield Send(b"PING\r\n")
        line = b""
        while b"\r" not in line:
            if len(line) >= MOST:
                raise no_redis()
            line += yield Receive(MOST - len(line))
        text = line.partition(b"\r")[0].decode("utf-8", "replace")
        log.debug(f"{request.task} answers {text}")
        if text == "+PONG":
            return {"pong": True}
        if text.startswith("-"):
            error = (text[1:].split() or [""])[0]
            # One that asks for a password is well as far as can be told.
            return {"pong": error == "NOAUTH", "error": error}
        raise no_redis()


def no_redis():
    return Failed("invalid", "what answers there is no Redis")


export(RedisPing)
