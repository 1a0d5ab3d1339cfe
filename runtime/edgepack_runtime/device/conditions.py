"""Conditions of a measurement, read from the device. A missing or unreadable file is no error: its value is unknown."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Optional, Sequence, Tuple

from edgepack_runtime.bundle.model_config import CUDA
from edgepack_runtime.device import cores, jetson, nvidia, throttling
from edgepack_runtime.device import info as device
from edgepack_runtime.schema.conditions import Changing, Conditions

_ROOT = Path("/")


def collect(*, threads: int, engine: str, providers: Sequence[str], root: Path = _ROOT) -> Conditions:
    """All conditions at the beginning of a measurement.

    Args:
        threads: threads that the measured predictor may use.
        engine: name and version of the inference engine.
        providers: execution providers active in its session.
        root: where /proc and /sys lie.
    """
    why_emulated = device.emulation(platform.machine(), root)
    return Conditions(
        device_clock_utc=device_clock_utc(),
        cpu_model=device.cpu_model(),
        cpu_flags=tuple(device.cpu_flags()),
        gpu=nvidia.gpu_facts().name if CUDA in providers else None,
        machine=platform.machine(),
        cores=cores.cores(root).share,
        governor=device.read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        highest_clock_mhz=highest_clock_mhz(root),
        power_mode=jetson.power_mode(root),
        threads=threads,
        providers=tuple(providers),
        python=platform.python_version(),
        engine=engine,
        kernel=platform.release(),
        guest=device.is_guest(root),
        emulated=why_emulated is not None,
        emulated_why=why_emulated,
        **vars(collect_changing(root)),
    )


def collect_changing(root: Path = _ROOT) -> Changing:
    """The conditions that may change during a measurement."""
    return Changing(load_average(), clock_mhz(root), temperature_c(root), throttling.read_throttle(root).as_json())


def device_clock_utc() -> str:
    """The device's clock as `2026-02-28T23:59:59Z`, for the reader only: it may be wrong by decades."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def load_average() -> Optional[Tuple[float, ...]]:
    """Load averages over 1, 5 and 15 minutes."""
    try:
        return tuple(round(value, 2) for value in os.getloadavg())
    except OSError:
        return None


def clock_mhz(root: Path = _ROOT) -> Optional[float]:
    """Current clock of the fastest core."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq")
    clocks = [value / 1000 for value in map(_number, files) if value]  # in kHz
    if not clocks:
        info = device.read(root / "proc/cpuinfo") or ""
        values = [line.partition(":")[2] for line in info.splitlines() if line.startswith("cpu MHz")]
        clocks = [value for value in map(device.number, values) if value]
    return round(max(clocks), 1) if clocks else None


def highest_clock_mhz(root: Path = _ROOT) -> Optional[float]:
    """Highest clock of the fastest core; None where a hypervisor or the firmware controls it."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq")
    clocks = [value / 1000 for value in map(_number, files) if value]
    return round(max(clocks), 1) if clocks else None


def temperature_c(root: Path = _ROOT) -> Optional[float]:
    """Temperature of the hottest thermal zone with a plausible value."""
    zones = map(_number, root.glob("sys/class/thermal/thermal_zone*/temp"))
    plausible = [
        value / 1000 for value in zones if value is not None and 0 < value < 150_000
    ]  # unused sensors report -40 000 or 2^31
    return round(max(plausible), 1) if plausible else None


def _number(path: Path) -> Optional[float]:
    return device.number(device.read(path))
