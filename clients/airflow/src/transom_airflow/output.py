"""Copies the output of a container line by line into the log of its Airflow task."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Mapping

import requests

from .daemon import Daemon, status_of

STREAMS = ("stdout", "stderr")
#: Maximum bytes copied of each stream; the rest is in the container's log.
MAX_COPIED = 8 << 20
#: Maximum characters of a line; longer ones are split.
MAX_LINE = 64 << 10
#: Seconds without further attempts after output could not be read.
RETRY_INTERVAL = 15.0


class _Stream:
    """One stream: the offset, and the incomplete last line."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.line = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def lines(self, data: bytes, last: bool) -> list[str]:
        text = self.line + self.decoder.decode(data, final=last)
        *lines, self.line = text.split("\n")
        if self.line and (last or len(self.line) > MAX_LINE):
            lines.append(self.line)
            self.line = ""
        return [line.rstrip("\r") for line in lines]


class Output:
    """Copies both streams, each from its last offset."""

    def __init__(
        self,
        daemon: Daemon,
        task_id: str,
        write: Callable[[str], None],
        read: Mapping[str, int] | None = None,
    ) -> None:
        """`read`: bytes of each stream that are already copied."""
        self.daemon, self.task_id, self.write = daemon, task_id, write
        self._next_at = 0.0
        self._streams = {name: _Stream((read or {}).get(name, 0)) for name in STREAMS}

    @property
    def read(self) -> dict[str, int]:
        """Bytes of each stream that were copied."""
        return {name: stream.offset for name, stream in self._streams.items()}

    def copy(self, last: bool = False) -> None:
        """Copies new output. With `last`, also copies an incomplete last line and reports a failure."""
        if not last and time.monotonic() < self._next_at:
            return
        for name, stream in self._streams.items():
            try:
                self._copy(name, stream)
            except requests.RequestException as error:
                # An agent that does not answer must not delay each look at the job.
                self._next_at = time.monotonic() + RETRY_INTERVAL
                # 404: the job was never launched.
                if last and status_of(error) != requests.codes.not_found:
                    url = self.daemon.log_url(self.task_id)
                    self.write(f"Reading the container's {name} failed ({error}); see {url}")
                if not last:
                    return
            if last:
                self._write(name, stream.lines(b"", True))

    def _copy(self, name: str, stream: _Stream) -> None:
        while stream.offset < MAX_COPIED:
            data, following = self.daemon.output(self.task_id, name, stream.offset)
            if not data:
                return
            stream.offset = following
            self._write(name, stream.lines(data, False))
            if stream.offset >= MAX_COPIED:
                url = self.daemon.log_url(self.task_id)
                self.write(
                    f"Only the first {MAX_COPIED >> 20} MiB of {name} are copied here; the rest is at {url}"
                )

    def _write(self, name: str, lines: list[str]) -> None:
        for line in lines:
            self.write(line if name == "stdout" else f"[{name}] {line}")
