from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.bundle.binaries import gpu_code
from edgepack.bundle.binaries.elf import Extent
from edgepack.bundle.binaries.gpu_code import Code, Damaged

MakeFatbin = Callable[..., bytes]
GOLDEN = Path(__file__).parents[2] / "golden" / "gpu_code"
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
