"""What `tune` leaves beside a release, and how it is read back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.device.tuning import Tuning, describe, dump, read
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.schema.maxima import MAX_THREADS

TUNINGS = st.builds(
    Tuning,
    threads=st.integers(1, MAX_THREADS),
    spinning=st.booleans(),
    disabled_optimizers=st.none() | st.lists(st.text(min_size=1)).map(tuple),
)


@given(TUNINGS)
def test_a_tuning_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, tuning: Tuning) -> None:
    file = tmp_path_factory.mktemp("tuning") / "t.json"
    assert read(file) is None
    file.write_bytes(dump(tuning, {"rounds": 3}))
    assert read(file) == tuning


def test_a_tuning_in_one_line() -> None:
    one, two = Tuning(), Tuning(2, spinning=True, disabled_optimizers=("A", "B"))
    assert describe(dataclasses.asdict(one)) == "1 thread; graph optimizers: as the model sets them"
    assert describe(dataclasses.asdict(two)) == "2 threads, spinning; graph optimizers: all but A, B"


@pytest.mark.parametrize(
    "change",
    [
        (b'"threads": 2', b'"threads": 0'),
        (b'"threads": 2', b'"threads": true'),
        (b'"threads": 2', b'"threads": "2"'),
        (b'"spinning": false', b'"spinning": 0'),
        (b'"tuning_format": 1', b'"tuning_format": 2'),
        (b'["A"]', b'["A", 1]'),
        (b'["A"]', b'"A"'),
        (b'"threads"', b'"thread"'),
        (b"{", b"["),
    ],
)
def test_a_damaged_tuning_is_an_error_that_names_the_file(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    raw = dump(Tuning(2, False, ("A",)), {}).replace(b'[\n  "A"\n ]', b'["A"]')
    assert change[0] in raw
    file = tmp_path / "t.json"
    file.write_bytes(raw.replace(*change))
    with pytest.raises(BundleInvalidError, match=r"t\.json is damaged") as error:
        read(file)
    assert "tune" in error.value.fix
    with pytest.raises(BundleInvalidError, match="is damaged"):
        read(tmp_path)
