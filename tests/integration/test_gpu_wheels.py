"""Onnxruntime's own GPU wheels: what they hold code for is read, and the one that installs on a Jetson is refused.

They have some 200 MB each, so it runs where it is asked for: `EDGEPACK_TEST_GPU_WHEELS` names a folder. Wheels that are
not in it yet are fetched into it with pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgepack.binaries import elf, glibc, gpu_code
from edgepack.binaries.gpu_code import Code
from edgepack.errors import StageFailedError
from edgepack.packages import checks
from edgepack.targets.profiles import Cuda, Profile

pytestmark = pytest.mark.integration
VARIABLE = "EDGEPACK_TEST_GPU_WHEELS"
FOLDER = os.environ.get(VARIABLE, "")
VERSION = "1.31.1"
LIBRARY = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
GLIBC = {"x86_64": "2_28", "aarch64": "2_34"}  # that the wheel for a machine was built for
HELD = {
    "x86_64": {Code("sass", sm) for sm in ("75", "80", "86", "89")} | {Code("sass", sm, "a") for sm in ("90", "120")},
    "aarch64": {Code("sass", "89")} | {Code("sass", sm, "a") for sm in ("90", "120", "121")},
}


@pytest.fixture
def wheel(machine: str) -> Path:
    platform = f"manylinux_{GLIBC[machine]}_{machine}"
    file = Path(FOLDER) / f"onnxruntime_gpu-{VERSION}-cp312-cp312-{platform}.whl"
    if not file.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", FOLDER]
        command += ["--platform", platform, "--python-version", "3.12", f"onnxruntime-gpu=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"pip could not fetch it: {done.stderr[-300:]}")
    return file


@pytest.mark.skipif(not FOLDER, reason=f"{VARIABLE} names no folder")
@pytest.mark.parametrize("machine", HELD)
def test_the_wheels_of_the_index(machine: str, wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract(LIBRARY, tmp_path))
    binary = elf.read(library)
    assert (binary.machine, binary.bits) == ("EM_X86_64" if machine == "x86_64" else "EM_AARCH64", 64)
    assert gpu_code.read_library(library, LIBRARY, binary) == HELD[machine]


@pytest.mark.skipif(not FOLDER, reason=f"{VARIABLE} names no folder")
@pytest.mark.parametrize("machine", ["aarch64"])
def test_the_one_for_servers_fits_a_jetson_in_all_but_its_kernels(wheel: Path, tmp_path: Path) -> None:
    jetpack7 = Profile(
        name="jetpack7",
        summary="Thor and Orin",
        machines=("aarch64",),
        interpreter="host",
        glibc="2.39",
        glibcxx="3.4.33",
        cuda=Cuda("13.0", ("87", "110")),
        jetpack="7",
    )
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract(LIBRARY, tmp_path))
    binary = elf.read(library)
    checks.check_wheel(wheel.name, jetpack7)
    glibc.check_glibc(LIBRARY, binary, jetpack7)
    glibc.check_gcc_libraries(LIBRARY, binary, (), jetpack7)
    with pytest.raises(StageFailedError, match="no code for sm_87, sm_110") as caught:
        list(gpu_code.check({f"onnxruntime-gpu {VERSION}": gpu_code.read_library(library, LIBRARY, binary)}, jetpack7))
    assert "ARM64 servers" in caught.value.why
