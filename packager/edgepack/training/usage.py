"""Resources that a training used: tokens a second, padding, memory, load of its GPU."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import paddle

from edgepack.artifacts import Usage
from edgepack.training import gpu_load
from edgepack.training.gpu_load import GpuLoad
from edgepack.util import nvidia

_KIB = 1024


class Meter:
    """Counts tokens and the seconds in which they were learnt from; evaluation on dev is not among them.

    Args:
        device: that Paddle is set to.
        say: told why, when nothing is known of how busy a GPU was.
    """

    def __init__(self, device: str, say: Callable[[str], None]) -> None:
        self._device, self._say = device, say
        self._load: GpuLoad | None = None
        if device.startswith("gpu:"):
            index = int(device.removeprefix("gpu:"))
            self._load = GpuLoad(gpu_load.asking(index, os.environ, nvidia.look()))
        self._tokens = self._padded = 0
        self._seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """While steps are taken."""
        since = time.monotonic()
        if self._load is not None:
            self._load.start()
        try:
            yield
        finally:
            self._seconds += time.monotonic() - since
            if self._load is not None:
                self._load.stop()

    def count(self, lengths: Sequence[int]) -> None:
        """A batch of rows with these many tokens was learnt from."""
        self._tokens += sum(lengths)
        self._padded += len(lengths) * max(lengths)

    def read(self, precision: str, parts: int) -> Usage:
        """Everything so far. Of a training that was interrupted, what came after it went on."""
        peak_bytes = (
            paddle.device.cuda.max_memory_allocated()
            if self._load is not None
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        )
        return Usage(
            device=self._device,
            precision=precision,
            tokens_per_second=round(self._tokens / self._seconds, 1) if self._seconds else 0.0,
            padding_share=round(1 - self._tokens / self._padded, 4) if self._padded else 0.0,
            peak_memory_mib=round(peak_bytes / 2**20, 1),
            gradient_accumulation=parts,
            gpu_utilisation_percent=self._percent(),
        )

    def _percent(self) -> float | None:
        if self._load is None:
            return None
        percent, why = self._load.read()
        if why:
            self._say(f"how busy {self._device} was is not known: {why}")
        return percent
