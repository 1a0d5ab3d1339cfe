"""Whether this device was slowed down to keep it cool or within its power: what its counters and clocks tell.

Nothing here raises when a file is missing or unreadable: what a device does not tell is None. Standard library only.

| source | what it counts |
|---|---|
| `cpu*/thermal_throttle/*_throttle_count` | x86: times that a core or its package was too hot |
| `hwmon*/oc*_event_cnt` | Jetson: times that the board drew more current than it may |
| `soc:firmware/get_throttled` | Raspberry Pi: bits for undervoltage, capped clocks, throttling; the upper ones stay |
| `cooling_device*/cur_state` | how far the kernel has turned down what heats, 0 for not at all; fans are left out |
| `scaling_max_freq` below `cpuinfo_max_freq` | clocks that may not go up to what the processor can |

The Jetson's and the Raspberry Pi's files are read as their makers document them; they were never read on such boards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from edgepack_runtime.device.info import ROOT, read
from edgepack_runtime.util.texts import counted

_CPUS = "sys/devices/system/cpu"
_FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
_NOW = 0xF  # of the Raspberry Pi's bits, those that tell of this moment
_EVER = 16  # and how far above them those stand that tell whether it ever was so


class Throttle(NamedTuple):
    """What is told at one moment; None is not told.

    `events` counts throttling of x86 cores or over-current of a Jetson since the start. `cooling` is the sum of the
    states of cooling devices. `firmware` are the Raspberry Pi's bits. `capped` is how much of the processor's highest
    clock is allowed, 1 for all of it.
    """

    events: Optional[int] = None
    cooling: Optional[int] = None
    firmware: Optional[int] = None
    capped: Optional[float] = None

    @property
    def told(self) -> bool:
        """Whether this device tells anything."""
        return any(value is not None for value in self)

    def as_json(self) -> Optional[Dict[str, Any]]:
        """For a receipt; null where nothing is told."""
        return dict(self._asdict()) if self.told else None


def read_throttle(root: Path = ROOT) -> Throttle:
    """What is told now."""
    return Throttle(_events(root), _cooling(root), _firmware(root), _capped(root))


def reasons(before: Throttle, after: Throttle) -> List[str]:
    """What slowed the device down between two moments, in words; empty where nothing is told or nothing did."""
    found = []
    if before.events is not None and after.events is not None and after.events > before.events:
        found.append(counted(after.events - before.events, "throttling event"))
    if after.cooling is not None and after.cooling > (before.cooling or 0):
        found.append(f"cooling devices went from state {before.cooling or 0} to {after.cooling}")
    if after.firmware is not None:
        fresh = after.firmware & ~(before.firmware or 0)
        if after.firmware & _NOW or fresh >> _EVER:
            found.append(f"the firmware tells of undervoltage or heat ({after.firmware:#x})")
    if after.capped is not None and after.capped < (1.0 if before.capped is None else before.capped):
        found.append(f"the clock was capped at {after.capped:.0%} of the highest")
    return found


def worst(moments: List[Throttle]) -> Throttle:
    """Of several moments, the most that was told of each."""
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
