from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import tree

from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.device import conditions, info
from edgepack_runtime.device.nvidia import CudaFacts
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.fields import to_json

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\ncpu MHz\t\t: 2596.140\nflags\t\t: fpu avx2\n"
GPUS = {"Orin": [CUDA, CPU], None: [CPU]}
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\n"


def test_missing_files_are_no_error(tmp_path: Path) -> None:
    found = conditions.collect(
        threads=2, engine="onnxruntime 1.31.1", providers=["CPUExecutionProvider"], root=tmp_path
    )
    assert found.threads == 2 and found.providers == ("CPUExecutionProvider",)
    assert (found.governor, found.clock_mhz, found.temperature_c) == (None, None, None)
    assert (found.highest_clock_mhz, found.power_mode, found.throttle) == (None, None, None)
    assert found.emulated is False
    written = to_json(found)
    assert json.loads(json.dumps(written, allow_nan=False)) == written and Conditions.of(written) == found
    wanted = "cpu_model cpu_flags cores governor threads providers python engine load_average kernel emulated"
    assert set(wanted.split()) <= set(written)


def test_the_gpu_is_named_where_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions.nvidia, "gpu_facts", lambda: CudaFacts("Orin", "8.7", "12.6", 7168))
    on = {gpu: conditions.collect(threads=1, engine="x", providers=active).gpu for gpu, active in GPUS.items()}
    assert on == {"Orin": "Orin", None: None}


def test_the_clock_of_the_device_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    now = conditions.device_clock_utc()
    assert datetime.strptime(now, "%Y-%m-%dT%H:%M:%S%z").utcoffset() == timedelta(0)
    epoch = time.gmtime(0)
    monkeypatch.setattr("time.gmtime", lambda: epoch)  # of a device without a battery
    found = conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[])
    assert found.device_clock_utc == "1970-01-01T00:00:00Z"


def test_clock_temperature_governor_and_throttling_are_read(tmp_path: Path) -> None:
    cpu, thermal = "sys/devices/system/cpu", "sys/class/thermal"
    files = {
        f"{cpu}/cpu0/cpufreq/scaling_governor": "schedutil\n",
        f"{cpu}/cpu0/cpufreq/scaling_cur_freq": "1200000\n",
        f"{cpu}/cpu3/cpufreq/scaling_cur_freq": "2201600\n",
        f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq": "1500000\n",
        f"{cpu}/cpu4/cpufreq/cpuinfo_max_freq": "2301600\n",
        f"{thermal}/thermal_zone0/temp": "48500\n",
        f"{thermal}/thermal_zone1/temp": "-256000\n",
        f"{thermal}/thermal_zone2/temp": "nothing\n",
        f"{thermal}/cooling_device0/cur_state": "1\n",
        "var/lib/nvpmodel/status": "pmode:0002\n",
    }
    found = conditions.collect(threads=1, engine="onnxruntime 1.31.1", providers=[], root=tree(tmp_path, files))
    assert (found.governor, found.clock_mhz, found.temperature_c) == ("schedutil", 2201.6, 48.5)
    assert (found.highest_clock_mhz, found.power_mode) == (2301.6, "2")
    assert found.throttle == {"events": None, "cooling": 1, "firmware": None, "capped": None}


def test_without_frequency_scaling_the_clock_comes_from_cpuinfo(tmp_path: Path) -> None:
    assert conditions.clock_mhz(tree(tmp_path, {"proc/cpuinfo": X86})) == 2596.1


@pytest.mark.parametrize(
    ("machine", "files", "emulated"),
    [
        ("x86_64", {"proc/cpuinfo": X86, "proc/sys/kernel/arch": "x86_64\n"}, False),
        ("i686", {"proc/cpuinfo": X86, "proc/sys/kernel/arch": "x86_64\n"}, False),
        ("aarch64", {"proc/cpuinfo": ARM, "proc/sys/kernel/arch": "aarch64\n"}, False),
        ("armv7l", {"proc/cpuinfo": ARM, "proc/sys/kernel/arch": "aarch64\n"}, False),
        ("aarch64", {"proc/cpuinfo": ARM, "proc/sys/kernel/arch": "x86_64\n"}, True),  # qemu-user, kernel 6.1+
        ("aarch64", {"proc/cpuinfo": X86}, True),  # qemu-user before 8.0
        ("aarch64", {"proc/cpuinfo": ARM, "proc/version": "Linux (x86_64-linux-gnu-gcc-13 13.2)"}, True),
        ("aarch64", {"proc/cpuinfo": ARM, "proc/version": "Linux (aarch64-linux-gnu-gcc-13 13.2)"}, False),
        ("x86_64", {"proc/cpuinfo": "model name: VirtualApple @ 2.50GHz\n"}, True),
        ("x86_64", {"proc/cpuinfo": ARM}, True),
        ("riscv64", {"proc/sys/kernel/arch": "x86_64\n"}, False),  # unknown machines are not judged
        ("aarch64", {}, False),
    ],
)
def test_emulation_is_noticed(tmp_path: Path, machine: str, files: dict[str, str], emulated: bool) -> None:
    why = info.emulation(machine, tree(tmp_path, files))
    assert (why is not None) == emulated
    assert why is None or machine in why
