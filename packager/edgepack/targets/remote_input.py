"""What comes to a device that a gate is run on over SSH, and when nobody is there any more (sent there; stdlib)."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import BinaryIO, Callable, Optional


class GoneError(Exception):
    """Whoever asked is gone."""


class Input:
    """Standard input, watched: where it is waited for longer than `silent_s` seconds, this process ends."""

    def __init__(self, source: BinaryIO, silent_s: float) -> None:
        self._source, self._silent_s = source, silent_s
        self.before_end: Callable[[], None] = lambda: None  # of this process, where nothing comes any more
        self._since: Optional[float] = None
        self._heard_at = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def read(self, count: int) -> bytes:
        return self._waited(lambda: self._source.read(count))

    def readline(self) -> bytes:
        return self._waited(self._source.readline)

    def is_over(self, seconds: float) -> bool:
        """Wait for so long: whether whoever waits for us is gone, or says what nobody says who waits."""
        if select.select([self._source], [], [], seconds)[0] and self.readline() != b"\n":
            return True
        return time.monotonic() - self._heard_at > self._silent_s

    def _waited(self, read: Callable[[], bytes]) -> bytes:
        self._since = time.monotonic()
        try:
            return read()
        finally:
            self._since, self._heard_at = None, time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(min(1.0, self._silent_s))
            since = self._since
            if since is not None and time.monotonic() - since > self._silent_s:
                try:
                    self.before_end()
                finally:
                    os._exit(1)  # nothing runs while it is waited for input, and the lock goes with this process
