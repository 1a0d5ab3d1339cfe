"""Conditions of a measurement (CPU, clock, temperature, versions), recorded in each receipt for comparison.

None means "unknown", never "zero" or "no". A receipt keeps its conditions as the device wrote them, since a newer one
may write more; `Conditions.of` reads what is known here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Mapping, Optional, Tuple

from edgepack_runtime.schema.fields import field, read

# What a reader looks at first.
MAIN = (
    "gpu", "cpu_model", "engine", "governor", "temperature_c", "emulated", "load_average", "device_clock_utc",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lasting:
    """Conditions that a measurement does not change.

    Attributes:
        device_clock_utc: for the reader only: it may be wrong by decades.
        gpu: that of the session, if it runs on one.
        cores: CPU seconds per second that the process gets.
        emulated_why: the evidence that another kind of CPU emulates this one.
    """

    device_clock_utc: Optional[str] = None
    cpu_model: Optional[str] = None
    cpu_flags: Optional[Tuple[str, ...]] = None
    gpu: Optional[str] = None
    machine: Optional[str] = None
    cores: Optional[float] = None
    governor: Optional[str] = None
    highest_clock_mhz: Optional[float] = None
    power_mode: Optional[str] = None
    threads: Optional[int] = None
    providers: Optional[Tuple[str, ...]] = None
    python: Optional[str] = None
    engine: Optional[str] = None
    kernel: Optional[str] = None
    guest: Optional[bool] = None
    emulated: Optional[bool] = None
    emulated_why: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Changing:
    """Conditions that may change during a measurement."""

    load_average: Optional[Tuple[float, ...]] = None
    clock_mhz: Optional[float] = None
    temperature_c: Optional[float] = None
    throttle: Optional[Mapping[str, Any]] = None


@dataclasses.dataclass(frozen=True)
class Conditions(Changing, Lasting):
    """All conditions: those at the beginning of a measurement, and `after` it."""

    after: Optional[Changing] = field(default=None, optional=True)

    @classmethod
    def of(cls, document: Any) -> Conditions:
        """What is known of the conditions of a receipt; an invalid value is not."""
        return read(cls, document, newer=True)[0]


def main(document: Mapping[str, Any]) -> Dict[str, Any]:
    """The conditions of a receipt that a reader looks at first, those that are known."""
    return {name: document[name] for name in MAIN if document.get(name) is not None}
