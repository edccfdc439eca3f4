"""What a container writes, copied line by line into the log of its Airflow task."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping

import requests

from .daemon import Daemon, status_of

STREAMS = ("stdout", "stderr")
#: Bytes of each stream that are copied; a reader finds the rest where the container's log is.
LIMIT = 8 << 20
#: Characters after which a line that does not end is written in pieces.
LONGEST_LINE = 64 << 10


class _Stream:
    """One stream: how far it was read, and the line that has not ended yet."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.line = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def lines(self, data: bytes, last: bool) -> list[str]:
        text = self.line + self.decoder.decode(data, final=last)
        *lines, self.line = text.split("\n")
        if self.line and (last or len(self.line) > LONGEST_LINE):
            lines.append(self.line)
            self.line = ""
        return [line.rstrip("\r") for line in lines]


class Output:
    """Copies both streams, each from where it was read last."""

    def __init__(
        self,
        daemon: Daemon,
        task_id: str,
        write: Callable[[str], None],
        read: Mapping[str, int] | None = None,
    ) -> None:
        """`read`: bytes of each stream that were copied before."""
        self.daemon, self.task_id, self.write = daemon, task_id, write
        self._streams = {name: _Stream((read or {}).get(name, 0)) for name in STREAMS}

    @property
    def read(self) -> dict[str, int]:
        """Bytes of each stream that were copied."""
        return {name: stream.offset for name, stream in self._streams.items()}

    def copy(self, last: bool = False) -> None:
        """Copies what is new; with `last` up to the end, and says if that cannot be read."""
        for name, stream in self._streams.items():
            try:
                self._copy(name, stream)
            except requests.RequestException as error:
                # Not found: it was never launched.
                if last and status_of(error) != requests.codes.not_found:
                    url = self.daemon.log_url(self.task_id)
                    self.write(f"Reading the container's {name} failed ({error}); see {url}")
            if last:
                self._write(name, stream.lines(b"", True))

    def _copy(self, name: str, stream: _Stream) -> None:
        while stream.offset < LIMIT:
            data, following = self.daemon.output(self.task_id, name, stream.offset)
            if not data:
                return
            stream.offset = following
            self._write(name, stream.lines(data, False))
            if stream.offset >= LIMIT:
                url = self.daemon.log_url(self.task_id)
                self.write(
                    f"Only the first {LIMIT >> 20} MiB of {name} are copied here; the rest is at {url}"
                )

    def _write(self, name: str, lines: list[str]) -> None:
        for line in lines:
            self.write(line if name == "stdout" else f"[{name}] {line}")
