from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.targets import downloads


def test_it_is_made_in_the_cache_and_goes(tmp_path: Path) -> None:
    store = tmp_path / "new" / "wheels"
    with downloads.download_folder(store) as folder:
        (folder / "wheel").write_bytes(b"1")
        assert folder.parent == store
    assert list(store.iterdir()) == []


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    left = tmp_path / ".fetching-dead" / "wheels"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"1")
    (tmp_path / ("a" * 64)).mkdir()
    with downloads.download_folder(tmp_path):
        assert not left.parent.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a" * 64]


def test_what_another_process_fetches_into_stays(tmp_path: Path) -> None:
    with downloads.download_folder(tmp_path) as one, downloads.download_folder(tmp_path) as two:
        assert one.is_dir()
        assert two.is_dir()
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_who_holds_the_lock_alone_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_PATIENCE_S", 0.0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(EnvironmentUnfitError, match="locked"), downloads.download_folder(tmp_path):
        pass
    os.close(descriptor)
    with downloads.download_folder(tmp_path):
        pass


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(**_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "x"))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", read_only)
    with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught, \
            downloads.download_folder(tmp_path):  # fmt: skip
        pass
    assert "Read-only file system" in caught.value.why
    assert "--wheel-cache" in caught.value.fix
