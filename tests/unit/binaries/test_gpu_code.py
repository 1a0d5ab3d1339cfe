from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.binaries import elf, gpu_code
from edgepack.binaries.elf import Extent
from edgepack.binaries.gpu_code import Code, Damaged
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


MakeFatbin = Callable[..., bytes]
GOLDEN = Path(__file__).parents[1] / "golden" / "gpu_code"
BOTH = {Code("sass", "87"), Code("ptx", "80")}
CODES = [("sass", 87), ("ptx", 80)]


def found(content: bytes, before: int = 0, size: int | None = None) -> frozenset[Code]:
    whole = b"\xff" * before + content + b"\xff" * 40
    return gpu_code.read_sections(io.BytesIO(whole), [Extent(before, len(content) if size is None else size)])


def test_every_entry_of_every_container_and_section_counts(make_fatbin: MakeFatbin) -> None:
    first, second = make_fatbin(CODES), make_fatbin([("sass", 120), ("sass", 87)])
    assert found(first, before=100) == BOTH
    assert found(first + second) == {*BOTH, Code("sass", "120")}
    one, two = make_fatbin([("sass", 87)]), make_fatbin([("ptx", 80)])
    stream = io.BytesIO(one + b"#" * 9 + two)
    assert gpu_code.read_sections(stream, [Extent(0, len(one)), Extent(len(one) + 9, len(two))]) == BOTH


def test_zeros_between_containers_and_code_that_is_still_to_be_linked_are_no_code(make_fatbin: MakeFatbin) -> None:
    content = b"\0" * 8 + make_fatbin([("sass", 75)]) + b"\0" * 10_000 + make_fatbin([("ptx", 90)]) + b"\0" * 3
    assert found(content) == {Code("sass", "75"), Code("ptx", "90")}
    assert found(b"\0" * 100) == found(b"") == set()
    assert found(make_fatbin([("linked later", 90), ("sass", 75)])) == {Code("other", "90"), Code("sass", "75")}
    assert found(make_fatbin([])) == set()


@pytest.mark.parametrize(("header_bytes", "code_bytes", "flags"), [(64, 0, 0x11), (80, 8, 0x2011), (112, 5000, 0x8011)])
def test_headers_of_any_length_and_compressed_code(
    make_fatbin: MakeFatbin, header_bytes: int, code_bytes: int, flags: int
) -> None:
    made = make_fatbin(CODES, header_bytes=header_bytes, code_bytes=code_bytes, flags=flags)
    assert found(made) == BOTH


@pytest.mark.parametrize(("flags", "variant"), [(0x100011, "a"), (0x200011, "f"), (0x8011, "")])
def test_variants_of_machine_code_are_read(make_fatbin: MakeFatbin, flags: int, variant: str) -> None:
    assert found(make_fatbin([("sass", 100)], flags=flags)) == {Code("sass", "100", variant)}


# Made by NVIDIA's `fatbinary` of CUDA 13.5, compressed, of a kernel that does nothing.
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("plain", {Code("sass", "75"), Code("sass", "110", "a"), Code("ptx", "120", "f")}),
        ("several", {Code("sass", "90", "a"), Code("sass", "100", "f"), Code("sass", "120"), Code("ptx", "80")}),
    ],
)
def test_what_nvidias_own_tool_wrote(name: str, codes: set[Code]) -> None:
    assert found((GOLDEN / f"{name}.fatbin").read_bytes()) == codes


def test_a_list_that_is_cut_off_is_damaged() -> None:
    made = bytearray((GOLDEN / "several.fatbin").read_bytes())
    place = made.index(b"\x00\x01\x01\x01")  # the kind and version of an entry of several
    for at, value in ((64, 200), (68, 7), (70, 9)):
        damaged = bytearray(made)
        damaged[place + at] = value  # how many there are, and the bytes of the list
        with pytest.raises(Damaged, match="list"):
            found(bytes(damaged))


def test_what_is_cut_off_or_no_container_is_damaged(make_fatbin: MakeFatbin) -> None:
    made = make_fatbin(CODES)
    for size in (8, 15, 20, 70, len(made) - 1):
        with pytest.raises(Damaged, match="byte"):
            found(made, size=size)
    with pytest.raises(Damaged, match="byte 0"):
        found(b"not a container of GPU code")
    with pytest.raises(Damaged, match="cut off"):
        gpu_code.read_sections(io.BytesIO(made[:30]), [Extent(0, len(made))])
    broken = bytearray(make_fatbin(CODES))
    broken[16 + 4 : 16 + 8] = bytes(4)  # of the first entry
    with pytest.raises(Damaged, match="entry"):
        found(bytes(broken))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_reported_and_never_crashes_or_hangs(make_fatbin: MakeFatbin, data: st.DataObject) -> None:
    golden = data.draw(st.sampled_from([b"", (GOLDEN / "several.fatbin").read_bytes()]))
    whole = bytearray(make_fatbin(CODES) + b"\0" * 8 + make_fatbin([("sass", 90)]) + golden)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        codes = found(content)
    except Damaged as error:
        assert "byte" in str(error)
    else:
        assert all(code.sm.isdigit() for code in codes)
