"""Checks whether a Redis answers PING, as `redis-ping` in Rust does.

A Redis that is loading its data accepts connections but answers every command with an error. A tcp check
reports it as healthy, this check does not.
"""

from transom_plugin import export, log
from transom_plugin.probe import Connect, Failed, Probe, Receive, Send

# Maximum number of bytes of an answer. A status and an error are one short line each.
MOST = 512


class RedisPing(Probe):
    name, version, summary = "redis-ping-python", "0.1.0", "checks whether a Redis answers PING"

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
            # A Redis that requires a password counts as healthy, because the check cannot tell more.
            return {"pong": error == "NOAUTH", "error": error}
        raise no_redis()


def no_redis():
    return Failed("invalid", "the server is not a Redis")


export(RedisPing)
