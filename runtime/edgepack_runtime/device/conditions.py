"""Under what conditions a figure was measured: recorded with every receipt, so that two receipts can be compared.

Nothing here raises when a file is missing or unreadable: devices differ in what they tell, and a value that is not
told is null. Null therefore means "unknown here", never "zero" or "no".
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import tokenizers

from edgepack_runtime.device import info as device
from edgepack_runtime.device import jetson, throttling
from edgepack_runtime.device.cores import usable_cores

_ROOT = Path("/")


def collect(*, threads: int, engine: str, providers: Sequence[str], root: Path = _ROOT) -> Dict[str, Any]:
    """What does not change while something is measured, and `collect_changing` at its begin.

    Args:
        threads: threads that the measured predictor may use.
        engine: what runs the model, with its version.
        providers: execution providers active in its session.
        root: where /proc and /sys lie.
    """
    why_emulated = device.emulation(platform.machine(), root)
    return {
        "device_clock_utc": device_clock_utc(),
        "cpu_model": device.cpu_model(),
        "cpu_flags": device.cpu_flags(),
        "machine": platform.machine(),
        "cores": usable_cores(),
        "governor": device.read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "highest_clock_mhz": highest_clock_mhz(root),
        "power_mode": jetson.power_mode(root),
        "threads": threads,
        "providers": list(providers),
        "python": platform.python_version(),
        "engine": engine,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
        "kernel": platform.release(),
        "guest": device.is_guest(root),
        "emulated": why_emulated is not None,
        "emulated_why": why_emulated,
        **collect_changing(root),
    }


def collect_changing(root: Path = _ROOT) -> Dict[str, Any]:
    """What may change while something is measured: load, clock, temperature, and what keeps the device cool."""
    return {
        "load_average": load_average(),
        "clock_mhz": clock_mhz(root),
        "temperature_c": temperature_c(root),
        "throttle": throttling.read_throttle(root).as_json(),
    }


def device_clock_utc() -> str:
    """What the device's own clock says, as `2026-02-28T23:59:59Z`: for the reader, since it may be wrong by decades."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def load_average() -> Optional[List[float]]:
    """Runnable processes, averaged over 1, 5 and 15 minutes."""
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except OSError:
        return None


def clock_mhz(root: Path = _ROOT) -> Optional[float]:
    """The fastest core's present clock."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
    clocks = [value / 1000 for value in map(_number, files) if value]  # the kernel tells kHz
    if not clocks:
        info = device.read(root / "proc/cpuinfo") or ""
        told = [line.partition(":")[2] for line in info.splitlines() if line.startswith("cpu MHz")]
        clocks = [value for value in map(device.number, told) if value]
    return round(max(clocks), 1) if clocks else None


def highest_clock_mhz(root: Path = _ROOT) -> Optional[float]:
    """What the fastest core could run at; not told where the hypervisor or the firmware decides."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq")
    clocks = [value / 1000 for value in map(_number, files) if value]
    return round(max(clocks), 1) if clocks else None


def temperature_c(root: Path = _ROOT) -> Optional[float]:
    """The hottest thermal zone that gives a plausible value."""
    zones = map(_number, root.glob("sys/class/thermal/thermal_zone*/temp"))
    told = [value / 1000 for value in zones if value is not None]
    plausible = [value for value in told if 0 < value < 150]  # unused sensors report -40 000 or 2^31
    return round(max(plausible), 1) if plausible else None


def _number(path: Path) -> Optional[float]:
    return device.number(device.read(path))
