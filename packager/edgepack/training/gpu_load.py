"""How busy a GPU is while a training takes its steps, asked of the driver by a thread of its own. Imports no Paddle."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Mapping
from typing import Final

from edgepack.training.devices import VISIBLE_VARIABLE
from edgepack.util import nvidia
from edgepack.util.nvidia import Load, Nvidia

ORDER_VARIABLE: Final = "CUDA_DEVICE_ORDER"
_AS_DRIVER: Final = "PCI_BUS_ID"  # CUDA's own order is the fastest first
FIRST_SECONDS: Final = 1.0  # the driver speaks of the last second at most: only then it has seen nothing but steps
EVERY_SECONDS: Final = 5.0


class GpuLoad:
    """The mean of what the driver says of one GPU, every few seconds between `start` and `stop`.

    Steps never wait for it: what the driver has not answered when steps end is dropped.

    Args:
        ask: the driver's answer; called by a thread, and may take seconds.
        first_seconds, every_seconds: from the start to the first question, and from each answer to the next question.
    """

    def __init__(
        self, ask: Callable[[], Load], first_seconds: float = FIRST_SECONDS, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._ask, self._first_seconds, self._every_seconds = ask, first_seconds, every_seconds
        self._percents: list[int] = []
        self._why = "no steps were taken while it was asked for"
        self._ended = threading.Event()

    def start(self) -> None:
        """Steps begin."""
        self._ended = threading.Event()
        threading.Thread(target=self._watch, args=(self._ended,), name="gpu load", daemon=True).start()

    def stop(self) -> None:
        """Steps end, for a while or for good."""
        self._ended.set()

    def read(self) -> tuple[float | None, str]:
        """The mean in percent; None, and why, when there is none."""
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


def asking(index: int, variables: Mapping[str, str], driver: Nvidia) -> Callable[[], Load]:
    """What asks for the load of Paddle's `gpu:INDEX`.

    Args:
        index: among the GPUs that are visible to this process.
        variables: its environment.
        driver: all that there are.
    """
    found = driver_name(index, variables, driver)
    return lambda: found if isinstance(found, Load) else nvidia.load(found)


def driver_name(index: int, variables: Mapping[str, str], driver: Nvidia) -> str | Load:
    """The name by which the driver knows Paddle's `gpu:INDEX`; no load and the reason when that cannot be told.

    CUDA_VISIBLE_DEVICES picks GPUs by number or UUID. CUDA numbers the fastest first, the driver by their slots, so
    that the numbers of unlike GPUs agree only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    visible = variables.get(VISIBLE_VARIABLE)
    names = [str(gpu.index) for gpu in driver.gpus] if visible is None else [n.strip() for n in visible.split(",")]
    if index >= len(names):
        return Load(None, f"{nvidia.TOOL} knows no gpu:{index}")
    name = names[index]
    alike = len({gpu.name for gpu in driver.gpus}) < 2
    if name.isdecimal() and not alike and variables.get(ORDER_VARIABLE) != _AS_DRIVER:
        return Load(None, f"the GPUs are of several kinds: {ORDER_VARIABLE}={_AS_DRIVER} tells which is which")
    return name
