"""One lock a device: everybody can take it, and what somebody puts in its place harms nobody."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from edgepack.targets import remote_lock
from edgepack.targets.remote_lock import FILE_NAME


class EnoughError(Exception):
    """It was waited for."""


def waits(holder: str) -> None:
    raise EnoughError(holder)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_second_one_waits_and_hears_who_holds_it(shared: Path) -> None:
    with (
        remote_lock.held([str(shared)], waits) as found,
        pytest.raises(EnoughError, match=rf"process {os.getpid()} of \S+ \("),
        remote_lock.held([str(shared)], waits),
    ):
        pytest.fail("it did not wait")
    assert found == ([str(shared)], [])
    with remote_lock.held([str(shared)], waits):
        pass  # it was let go of, by the one that waited too


def test_its_file_is_empty_and_to_be_read_by_everybody_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0o077)
    try:
        with remote_lock.held([str(shared)], waits):
            pass
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    found = (shared / FILE_NAME).stat()
    assert (found.st_mode & 0o777, found.st_size) == (0o444, 0)


def test_one_place_that_two_have_in_common_is_enough(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    with remote_lock.held(["/nonexistent", str(shared)], waits) as found:
        assert (found.folders, len(found.unfit)) == ([str(shared)], 1)
        with pytest.raises(EnoughError), remote_lock.held([str(tmp_path / "own"), str(shared)], waits):
            pytest.fail("it did not wait")


def test_a_folder_by_two_names_is_locked_once(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(shared)
    with remote_lock.held([str(shared), str(tmp_path / "alias")], waits) as found:
        assert found == ([str(shared)], [])


def test_what_lies_there_and_is_no_such_file_is_left_alone(shared: Path, tmp_path: Path) -> None:
    path, other = shared / FILE_NAME, tmp_path / "other"
    other.write_text("")

    def put_link() -> None:
        path.symlink_to(other)

    def put_second_name() -> None:
        path.hardlink_to(other)

    def put_pipe() -> None:
        os.mkfifo(path)

    def put_content() -> None:
        path.write_text("x")

    def put_file_of_nobody() -> None:
        path.touch(mode=0)

    with other.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # nobody waits for it
        for put in (put_link, put_second_name, put_pipe, put_content, path.mkdir, put_file_of_nobody):
            if put is put_file_of_nobody and os.geteuid() == 0:
                continue  # root may read it
            put()
            with remote_lock.held([str(shared)], waits) as found:
                assert found.folders == []
                assert found.unfit[0].startswith(f"{shared}: ")
            assert os.path.lexists(path)
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
    assert other.read_text() == ""


def test_a_link_to_nowhere_makes_no_file_there(shared: Path, tmp_path: Path) -> None:
    (shared / FILE_NAME).symlink_to(tmp_path / "made")
    with remote_lock.held([str(shared)], waits) as found:
        assert found.unfit == [f"{shared}: {FILE_NAME} is a link"]
    assert not (tmp_path / "made").exists()


def test_a_folder_that_anybody_may_clear_is_none(shared: Path) -> None:
    shared.chmod(0o777)
    with remote_lock.held([str(shared)], waits) as found:
        assert found == ([], [f"{shared}: anybody may remove what lies there"])


@pytest.mark.parametrize("puts", [False, True])
def test_one_that_was_taken_away_meanwhile_is_not_believed(shared: Path, puts: bool) -> None:
    """Whoever waits, and gets what lies there no more, begins anew."""
    path = shared / FILE_NAME
    path.touch()
    with path.open() as first:
        fcntl.flock(first, fcntl.LOCK_EX)

        def replaced(holder: str) -> None:
            path.unlink()
            if puts:
                path.touch()
            fcntl.flock(first, fcntl.LOCK_UN)

        with remote_lock.held([str(shared)], replaced) as found:
            assert found.folders == [str(shared)]
            with path.open() as now, pytest.raises(BlockingIOError):
                fcntl.flock(now, fcntl.LOCK_EX | fcntl.LOCK_NB)
