"""Kills, power cuts and failing calls before system calls of install, rollback and uninstall."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime import crash, lost_writes, syscalls

SCENARIOS = ["first install", "update", "same again", "repair", "rollback", "uninstall", "purge"]
SHORT = {"same again": 4, "rollback": 9, "uninstall": 23, "purge": 13}  # strides of those with few calls
OFTEN = ("update", "rollback")  # without power and with failing calls, the other scenarios are part of the sweep
EVERY = [pytest.param(name, 1, marks=pytest.mark.sweep, id=f"{name}, every call") for name in SCENARIOS]


def strides(stride: int, names: Sequence[str]) -> list[Any]:
    """Some calls of each scenario, and in the sweep every call of all (25 minutes on two cores)."""
    return [*(pytest.param(name, SHORT.get(name, stride), id=name) for name in names), *EVERY]


@pytest.fixture(scope="module", autouse=True)
def _traceable() -> None:
    reason = syscalls.unavailable()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> crash.Bench:
    (tmp_path / "bundles").mkdir()
    found = {scenario.name: scenario for scenario in crash.scenarios(tmp_path / "bundles")}
    assert list(found) == SCENARIOS
    return crash.Bench(tmp_path, found[request.param])


@pytest.mark.parametrize(("bench", "stride"), strides(37, SCENARIOS), indirect=["bench"])
def test_killed_before_a_call(bench: crash.Bench, stride: int) -> None:
    tally = crash.kill(bench, stride)
    assert tally.failures == []
    assert tally.points == tally.states > 2


@pytest.mark.parametrize(("bench", "stride"), strides(59, OFTEN), indirect=["bench"])
def test_without_power_before_a_call(bench: crash.Bench, stride: int) -> None:
    tally = crash.power(bench, stride, seeds=4 if stride == 1 else 1)
    assert tally.failures == []
    assert tally.states > tally.points > 1


@pytest.mark.parametrize(("bench", "stride"), strides(61, OFTEN), indirect=["bench"])
def test_a_call_that_fails(bench: crash.Bench, stride: int) -> None:
    tally = crash.fault(bench, stride)
    assert tally.failures == []
    assert tally.states > tally.points > 1


@pytest.mark.parametrize("bench", ["update"], indirect=True)
def test_the_checks_find_a_partial_release(bench: crash.Bench) -> None:
    bench.reset()
    (release,) = (bench.root / "releases").iterdir()
    (release / "model" / "answer.txt").write_bytes(b"")
    with pytest.raises(AssertionError, match="does not answer"):
        bench.check(serves=("1.0.0",))
    bench.reset()
    with pytest.raises(AssertionError, match=r"1\.0\.0 serves"):
        bench.check(serves=("2.0.0",))


def stopped(program: Callable[[], int], folder: Path) -> list[tuple[str, list[str]]]:
    seen: list[syscalls.Call] = []
    assert syscalls.run(program, folder, seen.append) == 7
    return [(call.name, [Path(path).name for path in call.paths]) for call in seen]


def test_every_process_is_stopped_at_what_changes_the_folder(tmp_path: Path) -> None:
    def program() -> int:
        (tmp_path / "a").write_text("hello")
        (tmp_path / "a").replace(tmp_path / "b")
        (tmp_path / "b").read_text()
        Path("/dev/null").write_text("not counted")
        subprocess.run(["/bin/sh", "-c", f"echo x >{tmp_path}/c; exec rm {tmp_path}/c"], check=True)
        descriptor = os.open(tmp_path, os.O_RDONLY)
        os.fsync(descriptor)
        os.mkdir("d", dir_fd=descriptor)
        return 7

    found = stopped(program, tmp_path)
    names = [name for name, _ in found]
    assert [path for _, path in found] == [["a"], ["a"], ["a", "b"], ["c"], ["c"], ["c"], [tmp_path.name], ["d"]]
    assert names[:5] == ["openat", "write", "rename", "openat", "write"]
    assert names[6:] == ["fsync", "mkdirat"]


def test_a_kill_comes_before_the_call_and_for_every_process(tmp_path: Path) -> None:
    def program() -> int:
        subprocess.run(["/bin/sh", "-c", f"echo $$ >{tmp_path}/pid; rm {tmp_path}/pid; sleep 60"], check=True)
        return 7

    def at(call: syscalls.Call) -> syscalls.Kill | None:
        return syscalls.Kill() if call.name.startswith("unlink") else None

    assert syscalls.run(program, tmp_path, at) == -signal.SIGKILL
    assert not Path("/proc", (tmp_path / "pid").read_text().strip(), "root").exists()


def test_a_call_fails_as_it_is_told_to(tmp_path: Path) -> None:
    def program() -> int:
        try:
            (tmp_path / "folder").mkdir()
        except OSError as error:
            return 7 if error.errno == errno.EROFS else 8
        return 9

    assert syscalls.run(program, tmp_path, lambda call: syscalls.Fail(errno.EROFS)) == 7
    assert list(tmp_path.iterdir()) == []


Tree = dict[str, tuple[str, bytes]]


def left(tmp_path: Path, program: Callable[[], object]) -> tuple[lost_writes.Disk, Tree]:
    """The model of the disk after `program`, and its content after the worst power cut."""

    def run() -> int:
        program()
        return 0

    disk = lost_writes.Disk(tmp_path)
    code, operations = lost_writes.record(run, tmp_path)
    assert code == 0
    for operation in operations:
        disk.do(operation)
    assert disk.now() == lost_writes.read_in(tmp_path)
    return disk, disk.after_a_cut(lambda: False, lambda: "old")


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_what_is_not_fsynced_is_lost(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "gone").touch()

    def program() -> None:
        (tmp_path / "new").write_text("new")
        (tmp_path / "old").write_text("changed")
        (tmp_path / "gone").unlink()
        (tmp_path / "link").symlink_to("old")
        (tmp_path / "folder").mkdir()

    disk, lost = left(tmp_path, program)
    assert lost == {"old": ("file", b"old"), "gone": ("file", b"")}
    names = disk.after_a_cut(lambda: True, lambda: "old")
    assert names["new"] == ("file", b"")
    assert names["link"] == ("link", b"old")
    assert set(names) == {"new", "old", "link", "folder"}
    assert disk.after_a_cut(lambda: False, lambda: "cut")["old"] == ("file", b"")


def test_file_and_folder_are_durable_each_by_itself(tmp_path: Path) -> None:
    def file_only() -> None:
        (tmp_path / "a").write_text("data")
        sync(tmp_path / "a")

    def folder_only() -> None:
        (tmp_path / "b").write_text("data")
        sync(tmp_path)

    assert left(tmp_path, file_only)[1] == {}
    assert left(tmp_path, folder_only)[1] == {"a": ("file", b"data"), "b": ("file", b"")}


@pytest.mark.parametrize("careful", [True, False])
def test_a_rename_over_a_file_that_was_not_fsynced(tmp_path: Path, careful: bool) -> None:
    (tmp_path / "state").write_text("old")

    def program() -> None:
        (tmp_path / "tmp").write_text("new")
        if careful:
            sync(tmp_path / "tmp")
        (tmp_path / "tmp").replace(tmp_path / "state")
        sync(tmp_path)

    assert left(tmp_path, program)[1] == {"state": ("file", b"new" if careful else b"")}


def test_a_rename_to_another_folder_is_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "stage" / "r").mkdir(parents=True)
    (tmp_path / "releases").mkdir()

    def program() -> None:
        (tmp_path / "stage" / "r").rename(tmp_path / "releases" / "r")

    disk, lost = left(tmp_path, program)
    chance = random.Random(1)
    seen = {lost_writes.digest(tree): tree for _, tree in lost_writes.cuts(disk, 20, chance)}
    assert sorted(sorted(tree) for tree in seen.values()) == [
        ["releases", "releases/r", "stage"],
        ["releases", "stage", "stage/r"],
    ]
    assert set(lost) == {"releases", "stage", "stage/r"}
