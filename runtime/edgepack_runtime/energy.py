"""How much energy the board, or its processor, took: where it reports that (standard library only).

Two kinds of meters are known. RAPL counts microjoules of each processor package of a PC (`intel-rapl:N/energy_uj`, also
on AMD; since Linux 5.10 only root may read it). An INA3221 on a Jetson tells volts and amperes of its rails, of which
VDD_IN (or VIN, as older boards call it) is the whole board; that is multiplied by the time between two looks. Both tell
of everything that runs, idling included: a text's share is larger on a machine with more to do.

Never run on a Jetson, nor on a PC that lets its counters be read: tested with the files that the kernel documents.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

from edgepack_runtime.device import ROOT, read

_BOARD_RAILS = ("VDD_IN", "VIN_SYS_5V0", "POM_5V_IN", "VIN")  # in this order: the first that is there is the board
_CHANNELS = re.compile(r"in([1-9])_label")


class Meter(NamedTuple):
    """Where this device tells of energy: `counters` are RAPL's folders, or `rails` pairs of files in mV and mA."""

    name: str
    counters: List[Path]
    rails: List[Rail]


class Rail(NamedTuple):
    """Files of one channel of an INA3221."""

    millivolts: Path
    milliamperes: Path


class Look(NamedTuple):
    """What a meter says at one moment: RAPL's counters in microjoules, or what the rails take in mW."""

    clock_ms: float
    microjoules: Optional[Dict[str, int]] = None
    milliwatts: Optional[float] = None


def find(root: Path = ROOT) -> Optional[Meter]:
    """The meter of this device; None where it has none, or lets nobody read it."""
    packages = [path for path in sorted(root.glob("sys/class/powercap/intel-rapl:*")) if _is_package(path)]
    if packages and all(_number(path / "energy_uj") is not None for path in packages):
        return Meter("RAPL (processor packages)", packages, [])
    rails = _rails(root)
    for name in _BOARD_RAILS:
        if name in rails:
            return Meter(f"INA3221 ({name})", [], [rails[name]])
    return None


def look(meter: Optional[Meter], clock_ms: float) -> Optional[Look]:
    """What the meter says now; None where there is none, or it stopped telling."""
    if meter is None:
        return None
    if meter.counters:
        told = {path.name: _number(path / "energy_uj") for path in meter.counters}
        known = {name: value for name, value in told.items() if value is not None}
        return Look(clock_ms, microjoules=known) if len(known) == len(told) else None
    milliwatts = 0.0
    for rail in meter.rails:
        volts, amperes = _number(rail.millivolts), _number(rail.milliamperes)
        if volts is None or amperes is None:
            return None
        milliwatts += volts * amperes / 1e3
    return Look(clock_ms, milliwatts=milliwatts)


def between_mj(meter: Optional[Meter], before: Optional[Look], after: Optional[Look]) -> Optional[float]:
    """Millijoules from one look to the next; None where one of them is missing."""
    if meter is None or before is None or after is None:
        return None
    if before.microjoules is not None and after.microjoules is not None:
        spent = 0
        for path in meter.counters:
            grown = after.microjoules[path.name] - before.microjoules[path.name]
            if grown < 0:  # it went past its end, at most once: that takes minutes
                grown += _number(path / "max_energy_range_uj") or 0
            if grown < 0:
                return None
            spent += grown
        return spent / 1e3
    if before.milliwatts is None or after.milliwatts is None:
        return None
    return (before.milliwatts + after.milliwatts) / 2 * (after.clock_ms - before.clock_ms) / 1e3


def _is_package(path: Path) -> bool:
    """A package, and not a part of one (`intel-rapl:0:1`) nor the whole platform (`psys`), which holds it too."""
    return path.name.count(":") == 1 and (read(path / "name") or "").startswith("package")


def _rails(root: Path) -> Dict[str, Rail]:
    found = {}
    for folder in sorted(root.glob("sys/class/hwmon/hwmon*")):
        if read(folder / "name") != "ina3221":
            continue
        for label in sorted(folder.glob("in*_label")):
            channel = _CHANNELS.fullmatch(label.name)
            name = read(label)
            if channel and name:
                number = channel.group(1)
                found[name] = Rail(folder / f"in{number}_input", folder / f"curr{number}_input")
    return found


def _number(path: Path) -> Optional[int]:
    text = read(path) or ""
    return int(text) if text.isdigit() else None
