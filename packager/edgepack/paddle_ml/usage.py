"""What a training took: tokens a second, padding, memory, and how busy its GPU was."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

import paddle

from edgepack.artifacts import Usage

_KIB = 1024


class Meter:
    """Counts tokens and the seconds in which they were learnt from; evaluation on dev is not among them."""

    def __init__(self) -> None:
        self._tokens = self._padded = 0
        self._seconds = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """Steps begin."""
        self._since = time.monotonic()

    def stop(self) -> None:
        """Steps end, for a while or for good."""
        assert self._since is not None, "stopped without a start"
        self._seconds += time.monotonic() - self._since
        self._since = None

    def count(self, lengths: Sequence[int]) -> None:
        """A batch of rows with these many tokens was learnt from."""
        self._tokens += sum(lengths)
        self._padded += len(lengths) * max(lengths)

    def read(self, device: str, precision: str, parts: int) -> Usage:
        """Everything so far. Of a training that was interrupted, what came after it went on."""
        on_gpu = device.startswith("gpu")
        peak_bytes = (
            paddle.device.cuda.max_memory_allocated()
            if on_gpu
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        )
        return Usage(
            device=device,
            precision=precision,
            tokens_per_second=round(self._tokens / self._seconds, 1) if self._seconds else 0.0,
            padding_share=round(1 - self._tokens / self._padded, 4) if self._padded else 0.0,
            peak_memory_mib=round(peak_bytes / 2**20, 1),
            gradient_accumulation=parts,
        )
