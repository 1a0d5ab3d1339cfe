"""Throttling counters of this device: heat, power and capped clocks.

A missing or unreadable file is no error; its value is None.

| source | meaning |
|---|---|
| `cpu*/thermal_throttle/*_throttle_count` | x86: number of times a core or its package was too hot |
| `hwmon*/oc*_event_cnt` | Jetson: number of over-current events of the board |
| `soc:firmware/get_throttled` | Raspberry Pi: bits for undervoltage, capped clocks, throttling; upper ones sticky |
| `cooling_device*/cur_state` | state of the kernel's cooling devices, 0 for none; fans are left out |
| `scaling_max_freq` below `cpuinfo_max_freq` | clocks capped below the processor's maximum |

The files of Jetson and Raspberry Pi follow their vendors' documentation and were never read on such boards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from edgepack_runtime.device.info import ROOT, read
from edgepack_runtime.messages import message

_CPUS = "sys/devices/system/cpu"
_FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
_NOW = 0xF  # Raspberry Pi: bits of the present state
_EVER = 16  # shift to the sticky bits


class Throttle(NamedTuple):
    """Throttling counters at one moment; None is unknown.

    `events`: throttling events of x86 cores, or over-current events of a Jetson, since boot. `cooling`: sum of the
    states of cooling devices. `firmware`: the Raspberry Pi's bits. `capped`: allowed share of the highest clock.
    """

    events: Optional[int] = None
    cooling: Optional[int] = None
    firmware: Optional[int] = None
    capped: Optional[float] = None

    @property
    def known(self) -> bool:
        """Whether any counter is known."""
        return any(value is not None for value in self)

    def as_json(self) -> Optional[Dict[str, Any]]:
        """For a receipt; None if no counter is known."""
        return dict(self._asdict()) if self.known else None


def read_throttle(root: Path = ROOT) -> Throttle:
    """The counters at this moment."""
    return Throttle(_events(root), _cooling(root), _firmware(root), _capped(root))


def reasons(before: Throttle, after: Throttle) -> List[str]:
    """Throttling between two moments, one phrase each; empty if there was none or nothing is known."""
    found: List[str] = []
    if before.events is not None and after.events is not None and after.events > before.events:
        found.append(message("throttle.events", n=after.events - before.events))
    if after.cooling is not None and after.cooling > (before.cooling or 0):
        found.append(message("throttle.cooling", before=before.cooling or 0, after=after.cooling))
    if after.firmware is not None:
        fresh = after.firmware & ~(before.firmware or 0)
        if after.firmware & _NOW or fresh >> _EVER:
            found.append(message("throttle.firmware", bits=f"{after.firmware:#x}"))
    if after.capped is not None and after.capped < (1.0 if before.capped is None else before.capped):
        found.append(message("throttle.capped", share=after.capped))
    return found


def worst(moments: List[Throttle]) -> Throttle:
    """The worst value of each counter over several moments."""
    columns: List[Tuple[Any, ...]] = list(zip(*moments))
    most = [[value for value in column if value is not None] for column in columns]
    bits = 0
    for value in most[2]:
        bits |= value
    return Throttle(
        max(most[0], default=None),
        max(most[1], default=None),
        bits if most[2] else None,
        min(most[3], default=None),
    )


def _events(root: Path) -> Optional[int]:
    files = [*root.glob(f"{_CPUS}/cpu[0-9]*/thermal_throttle/*_throttle_count")]
    files += root.glob("sys/class/hwmon/hwmon*/oc*_event_cnt")
    return _sum(files)


def _cooling(root: Path) -> Optional[int]:
    devices = root.glob("sys/class/thermal/cooling_device*")
    return _sum([one / "cur_state" for one in devices if "fan" not in (read(one / "type") or "").lower()])


def _firmware(root: Path) -> Optional[int]:
    try:
        return int(read(root / _FIRMWARE) or "", 16)
    except ValueError:
        return None


def _capped(root: Path) -> Optional[float]:
    shares = []
    for folder in root.glob(f"{_CPUS}/cpu[0-9]*/cpufreq"):
        allowed, able = _number(folder / "scaling_max_freq"), _number(folder / "cpuinfo_max_freq")
        if allowed and able:
            shares.append(min(allowed / able, 1.0))
    return round(min(shares), 4) if shares else None


def _sum(files: List[Path]) -> Optional[int]:
    values = [value for value in map(_number, files) if value is not None]
    return sum(values) if values else None


def _number(path: Path) -> Optional[int]:
    text = read(path) or ""
    return int(text) if text.isdigit() else None
