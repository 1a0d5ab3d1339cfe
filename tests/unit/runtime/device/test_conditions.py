from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from edgepack_runtime.device import conditions, info

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\ncpu MHz\t\t: 2596.140\nflags\t\t: fpu avx2\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\n"


def system(root: Path, **files: str) -> Path:
    """A file system with `files`; `__` in a name stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_missing_files_are_no_error(tmp_path: Path) -> None:
    found = conditions.collect(
        threads=2, engine="onnxruntime 1.31.1", providers=["CPUExecutionProvider"], root=tmp_path
    )
    assert found["threads"] == 2 and found["providers"] == ["CPUExecutionProvider"]
    assert (found["governor"], found["clock_mhz"], found["temperature_c"]) == (None, None, None)
    assert (found["highest_clock_mhz"], found["power_mode"], found["throttle"]) == (None, None, None)
    assert found["emulated"] is False
    json.dumps(found, allow_nan=False)


def test_the_contract_of_the_receipt_is_kept() -> None:
    wanted = "cpu_model cpu_flags cores governor threads providers python engine numpy load_average kernel "
    wanted += "emulated"
    assert set(wanted.split()) <= set(conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[]))


def test_the_clock_of_the_device_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    now = conditions.device_clock_utc()
    assert datetime.strptime(now, "%Y-%m-%dT%H:%M:%S%z").utcoffset() == timedelta(0)
    epoch = time.gmtime(0)
    monkeypatch.setattr("time.gmtime", lambda: epoch)  # of a device without a battery
    found = conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[])
    assert found["device_clock_utc"] == "1970-01-01T00:00:00Z"


def test_clock_temperature_and_governor_are_read(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="schedutil\n",
        sys__devices__system__cpu__cpu0__cpufreq__scaling_cur_freq="1200000\n",
        sys__devices__system__cpu__cpu3__cpufreq__scaling_cur_freq="2201600\n",
        sys__class__thermal__thermal_zone0__temp="48500\n",
        sys__class__thermal__thermal_zone1__temp="-256000\n",
        sys__class__thermal__thermal_zone2__temp="nothing\n",
    )
    found = conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[], root=root)
    assert (found["governor"], found["clock_mhz"], found["temperature_c"]) == ("schedutil", 2201.6, 48.5)


def test_clock_limits_and_throttling_are_read(tmp_path: Path) -> None:
    root = system(
        tmp_path,
        sys__devices__system__cpu__cpu0__cpufreq__cpuinfo_max_freq="1500000\n",
        sys__devices__system__cpu__cpu4__cpufreq__cpuinfo_max_freq="2201600\n",
        sys__class__thermal__cooling_device0__cur_state="1\n",
        var__lib__nvpmodel__status="pmode:0002\n",
    )
    found = conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[], root=root)
    assert (found["highest_clock_mhz"], found["power_mode"]) == (2201.6, "2")
    assert found["throttle"] == {"events": None, "cooling": 1, "firmware": None, "capped": None}


def test_without_frequency_scaling_the_clock_comes_from_cpuinfo(tmp_path: Path) -> None:
    assert conditions.clock_mhz(system(tmp_path, proc__cpuinfo=X86)) == 2596.1


@pytest.mark.parametrize(
    ("machine", "files", "emulated"),
    [
        ("x86_64", {"proc__cpuinfo": X86, "proc__sys__kernel__arch": "x86_64\n"}, False),
        ("i686", {"proc__cpuinfo": X86, "proc__sys__kernel__arch": "x86_64\n"}, False),
        ("aarch64", {"proc__cpuinfo": ARM, "proc__sys__kernel__arch": "aarch64\n"}, False),
        ("armv7l", {"proc__cpuinfo": ARM, "proc__sys__kernel__arch": "aarch64\n"}, False),
        ("aarch64", {"proc__cpuinfo": ARM, "proc__sys__kernel__arch": "x86_64\n"}, True),  # qemu-user, kernel 6.1+
        ("aarch64", {"proc__cpuinfo": X86}, True),  # qemu-user before 8.0
        ("aarch64", {"proc__cpuinfo": ARM, "proc__version": "Linux (x86_64-linux-gnu-gcc-13 13.2)"}, True),
        ("aarch64", {"proc__cpuinfo": ARM, "proc__version": "Linux (aarch64-linux-gnu-gcc-13 13.2)"}, False),
        ("x86_64", {"proc__cpuinfo": "model name: VirtualApple @ 2.50GHz\n"}, True),
        ("x86_64", {"proc__cpuinfo": ARM}, True),
        ("riscv64", {"proc__sys__kernel__arch": "x86_64\n"}, False),  # unknown machines are not judged
        ("aarch64", {}, False),
    ],
)
def test_emulation_is_noticed(tmp_path: Path, machine: str, files: dict[str, str], emulated: bool) -> None:
    why = info.emulation(machine, system(tmp_path, **files))
    assert (why is not None) == emulated
    assert why is None or machine in why
