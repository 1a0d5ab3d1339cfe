"""Resources that a training uses: tokens per second, padding, and memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from edgepack.artifacts import Usage

_KIB = 1024


class Meter:
    """Counts tokens and seconds of training steps, without evaluation on dev rows.

    Args:
        device: the device that Paddle is set to.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._tokens = self._padded = 0
        self._seconds = 0.0
        self._lap = (0, 0.0)  # tokens and time of the last call of `rate`

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the steps of the block."""
        since = time.monotonic()
        self._lap = (self._tokens, since)
        try:
            yield
        finally:
            self._seconds += time.monotonic() - since

    def count(self, lengths: Sequence[int]) -> None:
        """Count a batch of rows with these numbers of tokens."""
        self._tokens += sum(lengths)
        self._padded += len(lengths) * max(lengths)

    def rate(self) -> float:
        """Tokens per second since the last call in this block of `running`, or since the block began."""
        (tokens, since), self._lap = self._lap, (self._tokens, time.monotonic())
        return (self._tokens - tokens) / (self._lap[1] - since)

    def read(self, precision: str, parts: int) -> Usage:
        """Resources so far; of a resumed training, since it resumed."""
        if self._device.startswith("gpu:"):
            import paddle

            peak_bytes = paddle.device.cuda.max_memory_allocated()
        else:
            peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        return Usage(
            device=self._device,
            precision=precision,
            tokens_per_second=round(self._tokens / self._seconds, 1) if self._seconds else 0.0,
            padding_share=round(1 - self._tokens / self._padded, 4) if self._padded else 0.0,
            peak_memory_mib=round(peak_bytes / 2**20, 1),
            gradient_accumulation=parts,
        )
