from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.util.hashing import MOST_BYTES, sha256_file, sha256_files


def test_digests_of_files_see_names_and_contents(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1")
    before = sha256_files([first])
    first.rename(second)
    renamed = sha256_files([second])
    second.write_bytes(b"2")
    assert len({before, renamed, sha256_files([second])}) == 3
    assert sha256_file(second) == "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"


def test_a_sparse_file_of_terabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(OSError, match="more than 64 GiB"):
        sha256_file(tmp_path / "a")
