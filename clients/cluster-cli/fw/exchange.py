"""One HTTP exchange, bounded in time and size. Every status is returned to the caller.

A redirect is followed, with the credentials, only to the same path, as a standby redirects to its
leader, and never from TLS to plain HTTP. No proxy is used.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from .errors import CommandError

#: The largest body: the frameworks of a large cluster with all their tasks.
MAX_BODY = 512 << 20
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 307, 308)


class Answer(NamedTuple):
    """A response, whatever its status."""

    status: int
    reason: str
    headers: Any
    text: str


class Unreachable(CommandError):
    """There was no response."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send(method: str, url: str, credentials: tuple[str, str] | None, verify: bool, timeout: float) -> Answer:
    """Sends a request, and once more for each redirect."""
    for _ in range(MAX_REDIRECTS):
        answer = _exchange(method, url, credentials, verify, timeout)
        target = answer.headers.get("Location") if answer.status in REDIRECTS else None
        target = _same_place(url, target) if target else None
        if target is None:
            return answer
        url = target
    raise CommandError(f"{url}: more than {MAX_REDIRECTS} redirects")


def _same_place(url: str, location: str) -> str | None:
    target = urljoin(url, location)
    old, new = urlsplit(url), urlsplit(target)
    same = old.path.rstrip("/") == new.path.rstrip("/") and target != url
    return target if same and new.scheme in (old.scheme, "https") else None


def _exchange(method: str, url: str, credentials: tuple[str, str] | None, verify: bool, timeout: float) -> Answer:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        _Stay, urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    deadline = time.monotonic() + timeout
    try:
        request = urllib.request.Request(url, method=method, headers={"Accept": "*/*"})
        if credentials is not None:
            login = base64.b64encode(":".join(credentials).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {login}")
        try:
            response = opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            body = _body(response, deadline, url)
            return Answer(response.status, response.reason or "", response.headers, body)
    except urllib.error.URLError as error:
        raise Unreachable(f"{url}: {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{url}: {error or type(error).__name__}") from None


def _body(response: Any, deadline: float, url: str) -> str:
    parts, length = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        length += len(part)
        if length > MAX_BODY:
            raise CommandError(f"{url}: the response has more than {MAX_BODY >> 20} MB")
        if time.monotonic() > deadline:
            raise Unreachable(f"{url}: the response did not end in time")
    return b"".join(parts).decode("utf-8", "replace")
