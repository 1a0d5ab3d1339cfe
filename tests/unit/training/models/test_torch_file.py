"""Files of torch.save: two that torch 2.13 wrote, and hostile ones."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.training.torch_pickle import (
    called,
    group,
    named,
    number,
    pickled,
    save,
    storage,
    tensor,
    text,
    write_archive,
)

from edgepack.errors import StageFailedError
from edgepack.training.models.torch_file import read

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = [GOLDEN / "torch-archive.bin", GOLDEN / "torch-sequence.bin"]
WHOLE = np.arange(12, dtype=np.float32).reshape(3, 4) / 4
FOUR = np.arange(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_torch_wrote(file: Path) -> None:
    found = read(file)
    wanted = {
        "whole": WHOLE, "turned": WHOLE.T, "part": WHOLE.ravel()[2:5], "half": [0.5, -2], "brain": [[1.5], [-3]],
        "counted": [[0, 1, 2]], "trained": [1, 2], "scalar": 7, "empty": np.zeros((0, 2)),
    }  # fmt: skip
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].dtype == (np.int64 if name == "counted" else np.float32), name
        np.testing.assert_array_equal(found[name], values, strict=False)
        assert found[name].shape == np.shape(values), name


def test_what_the_tests_write_is_read_alike(tmp_path: Path) -> None:
    weights = {"a": WHOLE, "b.c": np.ones(3, np.float16), "n": np.arange(2, dtype=np.int64)}
    found = read(save(weights, tmp_path / "pytorch_model.bin"))
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


class Hostile:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def refused(file: Path) -> str:
    with pytest.raises(StageFailedError, match="cannot be read") as caught:
        read(file)
    assert caught.value.fix
    return caught.value.why


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("form", ["archive", "sequence"])
def test_nothing_of_a_file_s_choice_is_called(tmp_path: Path, protocol: int, form: str) -> None:
    raw = pickle.dumps({"weight": Hostile(tmp_path / "made")}, protocol)
    file = tmp_path / "pytorch_model.bin"
    if form == "archive":
        write_archive(file, raw, {})
    else:
        file.write_bytes(raw)
    assert "mkdir" in refused(file)
    assert not (tmp_path / "made").exists()
    pickle.loads(raw)  # it would have
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"), ("torch", "load"), ("torch._utils", "_rebuild_qtensor"), ("torch", "nn.Module"),
        ("collections", "OrderedDict.fromkeys"), ("collections", "namedtuple"), ("numpy", "frombuffer"),
    ],
)  # fmt: skip
def test_other_names_are_not_known(tmp_path: Path, module: str, name: str) -> None:
    file = write_archive(tmp_path / "x.bin", pickled({"w": called(named(module, name), text("1"))}), {})
    assert f"{module}.{name}" in refused(file)


def test_a_storage_is_not_called(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "x.bin", pickled({"w": called(named("torch", "FloatStorage"), number(9))}), {})
    assert refused(file)


@pytest.mark.parametrize(
    "shape",
    [
        ([5], [1], 0), ([4], [2], 0), ([2, 3], [3, 1], 0), ([2], [1], 3), ([1], [1], 4), ([-1], [1], 0), ([2], [-1], 3),
        ([2], [1], -1), ([2, 2], [1], 0), ([3, 3], [0, 1], 0), ([10**15], [0], 0), ([2**62, 2**62], [0, 0], 0),
        ([2**63], [0], 0), ([2**62] * 200_001, [0] * 200_001, 0),
    ],
    ids=lambda shape: str(shape)[:40],
)  # fmt: skip
def test_a_tensor_stays_within_its_storage(tmp_path: Path, shape: tuple[list[int], list[int], int]) -> None:
    size, stride, offset = shape
    value = tensor(storage("0", 4), size, stride, offset)
    why = refused(write_archive(tmp_path / "x.bin", pickled({"w": value}), {"0": FOUR}))
    assert "beyond its storage" in why or "proper shape" in why


def test_names_of_one_storage_share_its_memory(tmp_path: Path) -> None:
    view = tensor(storage("0", 4), [4], [1])
    found = read(write_archive(tmp_path / "x.bin", pickled({"a": view, "b": view}), {"0": FOUR}))
    assert np.shares_memory(found["a"], found["b"])


def write_sequence(file: Path, pickle: bytes, storages: dict[str, bytes]) -> Path:
    """The format before the archive, with storages of numbers of 4 bytes."""
    system = b"\x80\x02}(" + text("little_endian") + b"\x88u."
    keys = b"\x80\x02](" + b"".join(map(text, storages)) + b"e."
    head = [b"\x80\x02" + number(value) + b"." for value in (0x1950A86A20F9469CFC6C, 1001)]
    numbers = [(len(raw) // 4).to_bytes(8, "little") + raw for raw in storages.values()]
    file.write_bytes(b"".join([*head, system, pickle, keys, *numbers]))
    return file


@pytest.mark.parametrize("write", [write_archive, write_sequence])
def test_a_storage_may_be_tied_but_not_shared_by_many(tmp_path: Path, write: Callable[..., Path]) -> None:
    count = 2**14
    view, storages = tensor(storage("0", count), [count], [1]), {"0": bytes(4 * count)}
    tied = read(write(tmp_path / "x.bin", pickled({"a": view, "b": view}), storages))
    assert np.shares_memory(tied["a"], tied["b"])
    many = pickled({"a": view, "b": view, "c": view})
    assert "over 2 times" in refused(write(tmp_path / "x.bin", many, storages))


def test_half_precision_is_counted_as_it_is_in_the_file(tmp_path: Path) -> None:
    count = 2**14
    view = tensor(storage("0", count, "HalfStorage"), [count], [1])
    tied = read(write_archive(tmp_path / "x.bin", pickled({"a": view, "b": view}), {"0": bytes(2 * count)}))
    assert tied["a"].dtype == np.float32


def test_storages_are_no_larger_than_their_file(tmp_path: Path) -> None:
    count = 2**14
    twice = {kind: tensor(storage("0", count, kind), [1], [1]) for kind in ("FloatStorage", "IntStorage")}
    file = write_archive(tmp_path / "x.bin", pickled(twice), {"0": bytes(4 * count)})
    assert refused(file) == "its storages are larger than the file"


def test_a_storage_of_another_length_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    value = tensor(storage("0", 4), [4], [1])
    for raw in (b"", FOUR[:-1], FOUR + b"\0"):
        why = refused(write_archive(tmp_path / "x.bin", pickled({"w": value}), {"0": raw}))
        assert why == f"storage 0 has {len(raw)} bytes, not 4 numbers"
    value = tensor(storage("../../7", 4), [4], [1])
    assert "7" in refused(write_archive(tmp_path / "x.bin", pickled({"w": value}), {"0": FOUR}))


def test_compressed_and_big_endian_numbers_are_refused(tmp_path: Path) -> None:
    value = tensor(storage("0", 10**6), [10**6], [1])
    file = write_archive(tmp_path / "x.bin", pickled({"w": value}), {"0": bytes(4 * 10**6)}, zipfile.ZIP_DEFLATED)
    assert file.stat().st_size < 10**5
    assert "compressed" in refused(file)  # they could be without end
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickled({}))
        archive.writestr("model/byteorder", b"big")
    assert "big-endian" in refused(file)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02].", b"\x80\x02N.", pickled({"w": number(3)}), pickled({"model": pickled({})[2:-1]}),
        b"\x80\x02}(" + number(1) + tensor(storage("0", 4), [4], [1]) + b"u.",
        pickled({"w": tensor(text("no storage"), [4], [1])}),
        pickled({"w": tensor(group(number(1), number(2)) + b"Q", [4], [1])}),
        pickled({"w": tensor(storage("0", -4), [4], [1])}),
        pickled({"w": tensor(storage("0", 4, "FloatStorage", text("view")), [4], [1])}),
    ],
)  # fmt: skip
def test_what_is_no_dict_of_tensors(tmp_path: Path, content: bytes) -> None:
    assert refused(write_archive(tmp_path / "x.bin", content, {"0": FOUR}))


def test_a_reference_to_many_facts_or_by_a_long_name_is_refused(tmp_path: Path) -> None:
    """Each reference would copy or compare them."""
    many = b"(" + storage("0", 4)[1:-2] + b"N" * 7 + b"tQ"
    for stored in (many, storage("0" * 65, 4), storage("0", 2**64)):
        assert "storage" in refused(
            write_archive(tmp_path / "x.bin", pickled({"w": tensor(stored, [4], [1])}), {"0": FOUR})
        )


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.bin")
    for content in (b"", b"PK\x03\x04", b"no weights", pickle.dumps(7)):
        (tmp_path / "x.bin").write_bytes(content)
        assert refused(tmp_path / "x.bin")
    with zipfile.ZipFile(tmp_path / "x.bin", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "without weights" in refused(tmp_path / "x.bin")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@given(data=st.data())
@settings(max_examples=150)
def test_a_damaged_file_fails_in_one_way(
    tmp_path_factory: pytest.TempPathFactory, file: Path, data: st.DataObject
) -> None:
    raw = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    copy = tmp_path_factory.getbasetemp() / f"damaged-{file.name}"
    copy.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    try:
        found = read(copy)
    except StageFailedError:
        return
    assert all(isinstance(weight, np.ndarray) for weight in found.values())
