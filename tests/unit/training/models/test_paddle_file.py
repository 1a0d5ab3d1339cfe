"""`model_state.pdparams`: its arrays are read without running what it names."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.unit.training.torch_pickle import named, text

from edgepack.errors import StageFailedError
from edgepack.training.models import paddle_file, torch_file, unpickling

ARRAYS = {"ernie.weight": np.arange(6, dtype="float32").reshape(2, 3), "ernie.step": np.array(3)}
WEIGHTS = Path(__file__).parents[5] / "shared/weights"


class Runs:
    """Code in a pickle."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def nested(depth: int) -> bytes:
    """A pickle of a dict whose key is a tuple in tuples: its hash takes 2^depth steps."""
    return b"\x80\x02})" + b"2\x86" * depth + b"K\x01s."


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("held", [ARRAYS, OrderedDict(ARRAYS), {name: (name, data) for name, data in ARRAYS.items()}])
def test_weights_are_read_in_each_form(tmp_path: Path, protocol: int, held: Any) -> None:
    file = tmp_path / "model_state.pdparams"
    file.write_bytes(pickle.dumps(held, protocol))
    found = paddle_file.read(file)
    assert found.keys() == ARRAYS.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
        assert array.flags.writeable and array.flags.c_contiguous


@given(hnp.arrays(st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u2", "?"]), hnp.array_shapes(min_dims=0, min_side=0)))
def test_any_numbers_in_any_shape_are_read(tmp_path_factory: pytest.TempPathFactory, array: Any) -> None:
    file = tmp_path_factory.mktemp("arrays") / "model_state.pdparams"
    for held in (array, array.T):
        file.write_bytes(pickle.dumps({"odd": held, "StructuredToParameterName@@": {"odd": "linear_0.w_0"}}, 4))
        np.testing.assert_array_equal(paddle_file.read(file)["odd"], held, strict=True)


READ_AND_MEASURED = """
import sys, time
from pathlib import Path
from edgepack.errors import StageFailedError
from edgepack.training.models import paddle_file

def peak_kib():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

before, began = peak_kib(), time.process_time()
try:
    paddle_file.read(Path(sys.argv[1]))
except StageFailedError:
    print(peak_kib() - before, time.process_time() - began)
"""


def refused_at(file: Path) -> tuple[float, float]:
    """MiB of memory and seconds that a process takes to refuse a file."""
    command = [sys.executable, "-c", READ_AND_MEASURED, str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    return int(found[0]) / 2**10, float(found[1])


def test_a_byte_array_takes_no_more_memory_than_its_file(tmp_path: Path) -> None:
    file = tmp_path / "model_state.pdparams"
    file.write_bytes(b"\x80\x05\x96" + (500 * 2**20).to_bytes(8, "little") + b".")
    assert refused_at(file)[0] < 100


ONE_ITEM = text("a") + b"K\x01\x86"
TWICE = b"\x80\x02"
BYTES = TWICE + named("_codecs", "encode") + b"q\x000" + text("a" * 2**20) + text("latin1") + b"\x86q\x010"
PAIRS = b"(" + b"".join(text(f"{number:x}") + b"K\x01\x86" for number in range(50_000)) + b"t\x85q\x010"
ONE_PAIR = ONE_ITEM + b"q\x020(" + b"h\x02" * 100_000 + b"t\x85q\x010"
DICT = TWICE + named("collections", "OrderedDict") + b"q\x000"
NOTHING = b"(" + b"N" * 200_000 + b"tq\x010"
LONG_KEYS = text("a" * 10**6) + b"q\x000" + text("a" * 10**6) + b"q\x010}h\x00Ns"


@pytest.mark.parametrize(
    "raw",
    [
        BYTES + b"]" + b"h\x00h\x01Ra" * 3_000 + b".",
        DICT + PAIRS + b"]" + b"h\x00h\x01Ra" * 1_000 + b".",
        DICT + ONE_PAIR + b"h\x00h\x01R0" * 50_000 + b"}.",
        TWICE + named("numpy.core.multiarray", "_reconstruct") + b"q\x000" + NOTHING + b"h\x00h\x01R0" * 90_000 + b"}.",
        TWICE + named("numpy", "dtype") + b"q\x000" + NOTHING + b"h\x00h\x01\x810" * 90_000 + b"}.",
        b"\x80\x02" + LONG_KEYS + b"h\x01Ns" * 300_000 + b".",
        b"\x80\x02" + b"]" * 10_000_000 + b".",
    ],
    ids=["bytes", "pairs", "one pair", "arguments", "arguments of a class", "long keys", "lists"],
)
def test_a_small_pickle_takes_little_memory_and_time(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "model_state.pdparams"
    file.write_bytes(raw)
    grown_mib, taken_s = refused_at(file)
    assert grown_mib < 250 and taken_s < 5


@pytest.mark.parametrize("value", [np.array(["a"], "O"), np.array(["a"]), np.arange(3, dtype=">f4"), 3, [[]], (), "x"])
def test_what_is_not_numbers_is_refused(tmp_path: Path, value: Any) -> None:
    (file := tmp_path / "model_state.pdparams").write_bytes(pickle.dumps({"odd": value}))
    with pytest.raises(StageFailedError, match="cannot be used"):
        paddle_file.read(file)


@pytest.mark.parametrize("protocol", range(6))
def test_code_in_weights_does_not_run(tmp_path: Path, protocol: int) -> None:
    file, made = tmp_path / "model_state.pdparams", tmp_path / "made"
    file.write_bytes(pickle.dumps({**ARRAYS, "odd": Runs(made)}, protocol))
    with pytest.raises(StageFailedError, match="cannot be used") as caught:
        paddle_file.read(file)
    assert "which no weights need" in caught.value.why and not made.exists()


# The older format of torch.save, and in it a storage key that nests tuples.
OLD = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {}))
ENDLESS = OLD + b"\x80\x02])" + b"2\x86" * 60 + b"a."


# Names `OrderedDict`, and has a state for it that makes [["a", 1]] the default of its argument.
PLANTED = b"\x80\x02ccollections\nOrderedDict\nN}X\x0c\0\0\0__defaults__]]X\1\0\0\0aaK\x01aa\x85s\x86b."


@pytest.mark.parametrize("read", [paddle_file.read, torch_file.read])
def test_a_file_changes_nothing_for_the_next_one(tmp_path: Path, read: Any) -> None:
    (tmp_path / "weights").write_bytes(PLANTED)
    with pytest.raises(StageFailedError):
        read(tmp_path / "weights")
    assert unpickling.ordered() == {}


@pytest.mark.parametrize("raw", [nested(60), b"\x80\x04\x8f()" + b"2\x86" * 60 + b"\x90.", ENDLESS, b"\x80\x02N.", b""])
@pytest.mark.parametrize("read", [paddle_file.read, torch_file.read])
def test_a_small_pickle_that_would_take_for_ever_is_refused(tmp_path: Path, read: Any, raw: bytes) -> None:
    (tmp_path / "weights").write_bytes(raw)
    with pytest.raises(StageFailedError):
        read(tmp_path / "weights")


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damaged_weights_are_one_error_or_none(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(pickle.dumps(ARRAYS, data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("damaged") / "model_state.pdparams"
    file.write_bytes(bytes(raw))
    for read in (paddle_file.read, torch_file.read):
        with contextlib.suppress(StageFailedError):
            read(file)


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="the fixtures are not here")
@pytest.mark.parametrize("name", ["nano", "base6"])
def test_real_weights_are_read(name: str) -> None:
    found = paddle_file.read(WEIGHTS / f"ernie-fixture-{name}" / "model_state.pdparams")
    assert {array.dtype.kind for array in found.values()} == {"f"}


def test_names_cannot_multiply_one_array(tmp_path: Path) -> None:
    shared = np.zeros(10_000, "float32")
    (tmp_path / "x.pdparams").write_bytes(pickle.dumps({f"{number}": shared for number in range(50)}, 2))
    with pytest.raises(StageFailedError) as caught:
        paddle_file.read(tmp_path / "x.pdparams")
    assert caught.value.why == "its arrays are larger than the file"
