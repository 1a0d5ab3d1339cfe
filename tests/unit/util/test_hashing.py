from __future__ import annotations

from pathlib import Path

from edgepack.util.hashing import sha256_file, sha256_folder


def test_folder_digests_see_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    before = sha256_folder(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = sha256_folder(tmp_path)
    (tmp_path / "b").write_bytes(b"2")
    assert len({before, renamed, sha256_folder(tmp_path)}) == 3
    assert sha256_file(tmp_path / "b") == "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"
