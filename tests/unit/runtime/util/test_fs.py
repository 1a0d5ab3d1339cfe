"""Atomic writes, modes, and errors of the file system."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util import fs


def failing(code: int) -> Callable[..., NoReturn]:
    """A system call that fails."""

    def call(*arguments: Any) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


def test_an_atomic_write_that_fails_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    fs.write_atomic(path, b"old")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        fs.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("planted", ["probe.json", ".probe.json.tmp"])
def test_an_atomic_write_follows_no_link_and_no_umask(tmp_path: Path, planted: str) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / planted).symlink_to("victim")
    for mask in (0, 0o077):
        before = os.umask(mask)
        try:
            fs.write_atomic(tmp_path / "probe.json", b"%o" % mask)
        finally:
            os.umask(before)
        assert (tmp_path / "probe.json").read_bytes() == b"%o" % mask
        assert stat.S_IMODE((tmp_path / "probe.json").lstat().st_mode) == 0o644
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_folder_is_at_no_moment_open_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda self, mode: made.append(stat.S_IMODE(self.stat().st_mode)))
    made: list[int] = []
    before = os.umask(0)
    try:
        fs.make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made == [0o755, 0o755]


def test_only_a_file_system_without_modes_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fchmod", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        fs.write_atomic(tmp_path / "probe.json", b"{}")
    assert list(tmp_path.iterdir()) == []
    for code in (errno.EPERM, errno.ENOSYS):
        monkeypatch.setattr(os, "fchmod", failing(code))
        fs.write_atomic(tmp_path / "probe.json", b"%d" % code)
        assert (tmp_path / "probe.json").read_bytes() == b"%d" % code


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EROFS, "another one"), (errno.EACCES, "as a user"), (errno.EIO, "disk")],
)
def test_os_errors_become_advice(code: int, advice: str) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught, fs.os_errors("it cannot be done"):
        raise OSError(code, os.strerror(code), "/some/file")
    assert caught.value.what == "it cannot be done"
    assert caught.value.why == f"/some/file: {os.strerror(code)}"
    assert advice in caught.value.fix


def test_folders_inside_of_each_other_are_removed_whatever_their_number(tmp_path: Path) -> None:
    top, here = tmp_path / "top", Path.cwd()
    top.mkdir()
    os.chdir(top)
    try:
        for _ in range(3000):
            Path("file").touch()
            Path("inside").mkdir()
            os.chdir("inside")
    finally:
        os.chdir(here)
    fs.remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_removal_is_repeated_while_a_process_still_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    real, failures = shutil.rmtree, [OSError(errno.ENOTEMPTY, "Directory not empty"), OSError(errno.ENOENT, "gone")]

    def busy(path: Path) -> None:
        if failures:
            raise failures.pop()
        real(path)

    monkeypatch.setattr(shutil, "rmtree", busy)
    monkeypatch.setattr(fs, "_REMOVE_PAUSE_S", 0)
    fs.remove_tree(folder)
    assert not folder.exists()
    fs.remove_tree(folder)
    folder.mkdir()
    failures.append(OSError(errno.EROFS, "Read-only file system"))
    with pytest.raises(OSError, match="Read-only"):
        fs.remove_tree(folder)
    failures.extend(OSError(errno.ENOTEMPTY, "Directory not empty") for _ in range(100))
    with pytest.raises(OSError, match="not empty"):
        fs.remove_tree(folder)


def test_switching_a_link_replaces_it(prefix: Prefix) -> None:
    for name in ("one", "two"):
        (prefix.releases / name).mkdir(parents=True)
        (prefix.root / ".current.tmp").write_text("a leftover")
        fs.switch_link(prefix.current, f"releases/{name}")
        assert prefix.current_id() == name
    assert not (prefix.root / ".current.tmp").exists()


def test_a_folder_made_by_another_process_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def late(self: Path, mode: int) -> None:
        mkdir(self, mode)
        mkdir(self, mode)

    monkeypatch.setattr(Path, "mkdir", late)
    assert fs.make_folder(tmp_path / "a" / "b") == [tmp_path / "a" / "b", tmp_path / "a"]
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(FileExistsError):
        fs.make_folder(tmp_path / "c", fresh=True)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fs.make_folder(tmp_path / "file")


def test_temporary_files_are_never_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "full"), str(tmp_path)])
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FileNotFoundError, match="none of /tmp"):
        fs.temporary_base()
    monkeypatch.setenv("TMPDIR", ".")  # an explicit choice
    assert fs.temporary_base() == str(tmp_path)
    monkeypatch.chdir("/")
    assert fs.temporary_base() == str(tmp_path)


def test_the_folder_for_temporary_files_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", ".")
    monkeypatch.chdir(tmp_path)
    assert fs.temporary_base() == str(tmp_path)


def test_temporary_files_lie_where_nobody_else_can_replace_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mode, safe in ((0o700, True), (0o1777, True), (0o777, False)):
        tmp_path.chmod(mode)
        if safe:
            fs.require_safe_base(tmp_path)
        else:
            with pytest.raises(PermissionError, match="other users may replace"):
                fs.require_safe_base(tmp_path)
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "below").mkdir(exist_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "below")
        if safe:
            assert fs.require_safe_base(tmp_path / "link") == tmp_path / "below"
        else:
            with pytest.raises(PermissionError, match="other users may replace"):
                fs.require_safe_base(tmp_path / "link")
    tmp_path.chmod(0o700)
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(tmp_path, 65534, 65534)
    with pytest.raises(PermissionError, match="other users may replace"):
        fs.require_safe_base(tmp_path)


def test_what_is_read_as_a_whole_is_a_regular_file_of_limited_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"12345")
    assert fs.read_regular(tmp_path / "file", 5) == b"12345"
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**30)
    for name in ("pipe", "endless", "file"):
        with pytest.raises(OSError, match=r"regular|more than"):
            fs.read_regular(tmp_path / name, 4)
    tracemalloc.start()
    with pytest.raises(OSError, match="more than"):
        fs.read_regular(tmp_path / "sparse")
    assert tracemalloc.get_traced_memory()[1] < 2**20  # nothing of it was read
    tracemalloc.stop()


def test_an_error_of_access_names_no_option_that_the_command_may_not_have() -> None:
    error = fs.unfit("out.csv cannot be written", PermissionError(errno.EACCES, "Permission denied", "out.csv"))
    assert error.fix == "run as a user with access to it, or choose another one"


@pytest.mark.parametrize("dangling", [False, True])
def test_nothing_is_written_through_a_link_at_the_random_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dangling: bool
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    victim = tmp_path / "victim"
    if not dangling:
        victim.write_bytes(b"old")
    fs.random_name(tmp_path / "out").symlink_to(victim)
    with pytest.raises(OSError, match="File exists"):
        fs.write_atomic(tmp_path / "out", b"new")
    assert victim.exists() != dangling
    assert dangling or victim.read_bytes() == b"old"


def test_the_cache_of_a_user_is_where_a_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fs.user_cache() == tmp_path / "mine"
    monkeypatch.setenv("EDGEPACK_CACHE", "")
    assert fs.user_cache() == tmp_path / "xdg/edgepack"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fs.user_cache() == tmp_path / ".cache/edgepack"
    monkeypatch.setattr(Path, "home", lambda: {}["nobody"])
    with pytest.raises(EnvironmentUnfitError, match="set EDGEPACK_CACHE"):
        fs.user_cache()
