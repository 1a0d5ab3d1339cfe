"""Resources that a training uses: tokens per second, padding, memory, and the load of its GPU.

Paddle is imported when the memory of a GPU is read, so that the rest can be tested without it.
"""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from edgepack.artifacts import Usage
from edgepack.training.devices import VISIBLE_VARIABLE
from edgepack.util import nvidia
from edgepack.util.nvidia import Load, Nvidia

_KIB = 1024
ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"
_AS_DRIVER: Final = "PCI_BUS_ID"  # by default CUDA lists the fastest first
FIRST_SECONDS: Final = 1.0  # the driver averages over up to a second, which then holds steps only
EVERY_SECONDS: Final = 5.0


class GpuLoad:
    """Mean load of one GPU, sampled by a thread between `start` and `stop`.

    Training never waits for it: a sample that is late is dropped.

    Args:
        ask: queries the driver; may take seconds.
        first_seconds, every_seconds: time before the first query, and between queries.
    """

    def __init__(
        self, ask: Callable[[], Load], first_seconds: float = FIRST_SECONDS, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._ask, self._first_seconds, self._every_seconds = ask, first_seconds, every_seconds
        self._percents: list[int] = []
        self._why = "the training ended before the first sample"
        self._ended = threading.Event()

    def start(self) -> None:
        """Start sampling."""
        self._ended = threading.Event()
        threading.Thread(target=self._watch, args=(self._ended,), name="gpu load", daemon=True).start()

    def stop(self) -> None:
        """Stop sampling."""
        self._ended.set()

    def read(self) -> tuple[float | None, str]:
        """The mean in percent and ""; None and the reason if there are no samples."""
        percents = list(self._percents)
        return (round(statistics.fmean(percents), 1), "") if percents else (None, self._why)

    def _watch(self, ended: threading.Event) -> None:
        seconds = self._first_seconds
        while not ended.wait(seconds):
            load = self._ask()
            if ended.is_set():
                return
            if load.percent is None:
                self._why = load.why
                return
            self._percents.append(load.percent)
            seconds = self._every_seconds


def load_query(index: int, variables: Mapping[str, str], driver: Nvidia) -> Callable[[], Load]:
    """A function that queries the load of Paddle's `gpu:INDEX`.

    Args:
        index: number among the GPUs that are visible to this process.
        variables: environment of this process.
        driver: all GPUs that the driver knows.
    """
    found = driver_name(index, variables, driver)
    return lambda: found if isinstance(found, Load) else nvidia.load(found)


def driver_name(index: int, variables: Mapping[str, str], driver: Nvidia) -> str | Load:
    """The driver's name of Paddle's `gpu:INDEX`; a `Load` with the reason if it is unknown.

    CUDA_VISIBLE_DEVICES selects GPUs by number or UUID. CUDA numbers the fastest first and the driver numbers by slot,
    so the numbers of different GPU models agree only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    visible = variables.get(VISIBLE_VARIABLE)
    names = [str(gpu.index) for gpu in driver.gpus] if visible is None else [n.strip() for n in visible.split(",")]
    if index >= len(names):
        return Load(None, f"{nvidia.TOOL} knows no gpu:{index}")
    name = names[index]
    alike = len({gpu.name for gpu in driver.gpus}) < 2
    if name.isdecimal() and not alike and variables.get(ORDER_VARIABLE) != _AS_DRIVER:
        return Load(None, f"the GPUs are different models; set {ORDER_VARIABLE}={_AS_DRIVER} to identify them")
    return name


class Meter:
    """Counts tokens and seconds of training steps, without evaluation on dev rows.

    Args:
        device: the device that Paddle is set to.
        report: called with the reason if the load of the GPU is unknown.
    """

    def __init__(self, device: str, report: Callable[[str], None]) -> None:
        self._device, self._report = device, report
        self._load: GpuLoad | None = None
        if device.startswith("gpu:"):
            index = int(device.removeprefix("gpu:"))
            self._load = GpuLoad(load_query(index, os.environ, nvidia.look()))
        self._tokens = self._padded = 0
        self._seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the steps of the block."""
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
        """Count a batch of rows with these numbers of tokens."""
        self._tokens += sum(lengths)
        self._padded += len(lengths) * max(lengths)

    def read(self, precision: str, parts: int) -> Usage:
        """Resources so far; of a resumed training, since it resumed."""
        if self._load is not None:
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
            gpu_utilisation_percent=self._percent(),
        )

    def _percent(self) -> float | None:
        if self._load is None:
            return None
        percent, why = self._load.read()
        if why:
            self._report(f"the load of {self._device} is unknown: {why}")
        return percent
