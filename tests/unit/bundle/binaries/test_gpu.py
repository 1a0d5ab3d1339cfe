from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle.binaries import elf, gpu_code
from edgepack.bundle.binaries.gpu_code import Code
from edgepack.errors import StageFailedError
from edgepack.targets.profiles import Cuda, Profile

# What onnxruntime-gpu 1.31.1 holds for ARM64 and for x86-64.
SERVERS = frozenset({Code("sass", "89"), *(Code("sass", sm, "a") for sm in ("90", "120", "121"))})
X86 = frozenset(
    {*(Code("sass", sm) for sm in ("75", "80", "86", "89")), *(Code("sass", sm, "a") for sm in ("90", "120"))}
)


@pytest.fixture
def jetpack7(profile: Profile) -> Profile:
    return replace(profile, name="jetpack7", jetpack="7", cuda=Cuda("13.0", ("87", "110")))


@pytest.mark.parametrize(
    ("code", "sm", "on_desktop", "on_jetson"),
    [
        (Code("sass", "86"), "86", True, True),
        (Code("sass", "80"), "86", True, False),
        (Code("sass", "89"), "86", False, False),
        (Code("sass", "86"), "90", False, False),
        (Code("sass", "120"), "121", True, False),
        (Code("sass", "100"), "110", False, False),
        (Code("sass", "10"), "100", False, False),
        (Code("ptx", "80"), "86", True, True),
        (Code("ptx", "80"), "120", True, True),
        (Code("ptx", "90"), "89", False, False),
        (Code("sass", "90", "a"), "90", True, True),
        (Code("sass", "120", "a"), "121", False, False),
        (Code("ptx", "90", "a"), "100", False, False),
        (Code("ptx", "90", "a"), "90", True, True),
        (Code("sass", "100", "f"), "103", True, False),
        (Code("sass", "103", "f"), "100", False, False),
        (Code("ptx", "100", "f"), "103", True, True),
        (Code("ptx", "100", "f"), "110", False, False),
        (Code("other", "87"), "87", False, False),
    ],
)
def test_which_gpus_run_which_code(code: Code, sm: str, on_desktop: bool, on_jetson: bool) -> None:
    assert gpu_code.runs(code, sm, jetson=False) is on_desktop
    assert gpu_code.runs(code, sm, jetson=True) is on_jetson


def test_the_wheel_of_the_index_is_refused_for_a_jetson_with_why(jetpack7: Profile) -> None:
    with pytest.raises(StageFailedError) as caught:
        list(gpu_code.check({"onnxruntime-gpu 1.31.1": SERVERS}, jetpack7))
    error = caught.value
    assert error.what == "onnxruntime-gpu 1.31.1 has no code for sm_87, sm_110, the GPU of target jetpack7"
    assert "machine code for sm_89, sm_90a, sm_120a, sm_121a, no PTX" in error.why
    assert "wheel for ARM64 servers" in error.why
    assert "JetPack 7" in error.why
    assert "by path" in error.fix
    assert "JetPack 7" in error.fix


def test_every_gpu_of_the_target_counts(jetpack7: Profile) -> None:
    with pytest.raises(StageFailedError, match="sm_110, the GPU") as caught:
        list(gpu_code.check({"onnxruntime-gpu 1.31.1": frozenset({Code("sass", "87")})}, jetpack7))
    assert "servers" not in caught.value.why
    for enough in ({Code("sass", "87"), Code("sass", "110")}, {Code("ptx", "87")}):
        assert list(gpu_code.check({"onnxruntime-gpu 1.31.1": frozenset(enough)}, jetpack7)) == []


def test_on_a_desktop_a_later_minor_number_runs_it(profile: Profile) -> None:
    server = replace(profile, cuda=Cuda("13.0", ("75", "80", "86", "87", "89", "90", "120")))
    assert list(gpu_code.check({"onnxruntime-gpu 1.31.1": X86}, server)) == []
    with pytest.raises(StageFailedError) as caught:
        list(gpu_code.check({"onnxruntime-gpu 1.31.1": X86}, replace(server, cuda=Cuda("13.0", ("90", "100", "121")))))
    assert "no code for sm_100, sm_121, the GPU" in caught.value.what
    assert "cuda.sm" in caught.value.fix


def test_each_package_with_gpu_code_counts_for_itself_where_there_is_a_gpu(profile: Profile, jetpack7: Profile) -> None:
    assert list(gpu_code.check({"numpy 2.5.5": frozenset()}, jetpack7)) == []
    assert list(gpu_code.check({"onnxruntime-gpu 1.31.1": SERVERS}, profile)) == []
    packages = {"nvidia-cublas 13": frozenset({Code("ptx", "75")}), "onnxruntime-gpu 1.31.1": SERVERS}
    with pytest.raises(StageFailedError, match=r"onnxruntime-gpu 1\.31\.1"):
        list(gpu_code.check(packages, jetpack7))


def test_what_nvidias_own_packages_seem_to_lack_is_a_note(profile: Profile) -> None:
    cufft = {"nvidia-cufft-cu12 11.4.1.4": frozenset({Code("sass", "52")})}
    [line] = gpu_code.check(cufft, replace(profile, cuda=Cuda("12.9", ("75", "90"))))
    assert line.startswith("nvidia-cufft-cu12 11.4.1.4 shows machine code for sm_52")
    assert "sm_75, sm_90 cannot be read" in line


def test_code_is_read_from_the_sections_of_a_library(
    tmp_path: Path, make_elf: Callable[..., bytes], make_fatbin: Callable[..., bytes]
) -> None:
    library = tmp_path / "libcuda_kernels.so"
    library.write_bytes(make_elf(fatbin=make_fatbin([("sass", 87)])))
    assert gpu_code.read_library(library, library.name, elf.read(library)) == {Code("sass", "87")}
    library.write_bytes(make_elf())
    assert gpu_code.read_library(library, library.name, elf.read(library)) == frozenset()
    library.write_bytes(make_elf(fatbin=b"something else, of course"))
    with pytest.raises(StageFailedError, match=r"the GPU code in libcuda_kernels\.so cannot be read"):
        gpu_code.read_library(library, library.name, elf.read(library))


def test_architectures_are_listed_in_their_order() -> None:
    assert gpu_code.describe_codes({Code("sass", "120"), Code("sass", "75"), Code("ptx", "90")}) == (
        "machine code for sm_75, sm_120, PTX of compute_90"
    )
    assert gpu_code.describe_codes({Code("ptx", "52")}) == "no machine code, PTX of compute_52"
    assert gpu_code.describe_codes({Code("other", "90")}) == "no machine code, no PTX, code that is still to be linked"
