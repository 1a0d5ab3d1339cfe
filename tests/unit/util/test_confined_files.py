"""Names of files that come from somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgepack.util import confined_files


def test_a_file_of_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("sub/a")
    (tmp_path / "here").symlink_to(tmp_path)
    for name in ("sub/a", "./sub/a", "link", "here/sub/a"):
        assert confined_files.read(tmp_path, name) == b"1"
    assert confined_files.read(tmp_path / "here", "sub/a") == b"1"  # the folder itself may be a link


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../secret", "not a name of a file below the folder inner"),
        ("sub/../../secret", "not a name"),
        ("/etc/passwd", "not a name"),
        ("", "not a name"),
        ("a\0", "not a name"),
        ("out", "leads out of the folder"),
        ("sub", "not a regular file"),
        ("pipe", "not a regular file"),
        ("large", "more than 0 MiB"),
    ],
)
def test_what_is_not_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"1")
    (inner / "out").symlink_to("../secret")
    (inner / "large").write_bytes(bytes(11))
    os.mkfifo(inner / "pipe")
    with pytest.raises(ValueError, match=reason):
        confined_files.read(inner, name, 10)
    with pytest.raises(FileNotFoundError):
        confined_files.read(inner, "missing", 10)
