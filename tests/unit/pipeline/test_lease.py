"""Leases: one holder at a time, whatever the machine; a dead one makes nobody wait."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from edgepack.pipeline import lease
from edgepack.pipeline.lease import EXPIRES_SECONDS, Holder, Lease

ELSEWHERE = Holder("node7", "another kernel", 42, 1)


def held(name: Path) -> Lease:
    found = lease.take(name)
    assert isinstance(found, Lease)
    return found


def left_by(holder: Holder, name: Path, *, untouched_seconds: float = 0) -> None:
    file = name.with_name(f"{name.name}.1")
    file.write_text(json.dumps(asdict(holder)), encoding="ascii")
    moment = time.time() - untouched_seconds
    os.utime(file, (moment, moment))


def test_one_process_holds_it_until_it_gives_it_back(tmp_path: Path) -> None:
    name = tmp_path / "result.lock"
    first = held(name)
    assert lease.take(name) == Holder.this_process()
    assert lease.holders(name) == [Holder.this_process()]
    first.release()
    assert lease.holders(name) == []
    held(name).release()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["result.lock.1", "result.lock.2"]
    lease.remove(name)
    assert list(tmp_path.iterdir()) == []


def test_shared_ones_exist_side_by_side_and_leave_nothing(tmp_path: Path) -> None:
    name = tmp_path / "build"
    one, two = lease.share(name), lease.share(name)
    assert lease.holders(name) == [Holder.this_process()] * 2
    one.release()
    three = lease.share(name)
    two.release()
    three.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("holder", "seconds", "holds"),
    [
        (ELSEWHERE, 0, True),
        (ELSEWHERE, EXPIRES_SECONDS / 2, True),
        (ELSEWHERE, 2 * EXPIRES_SECONDS, False),
        (Holder.this_process(), 2 * EXPIRES_SECONDS, True),  # it was stopped, and may go on
        (replace(Holder.this_process(), started=1), 0, False),  # its number was given again
        (replace(Holder.this_process(), pid=2**22 + 1), 0, False),
        (replace(Holder.this_process(), started=-1), 0, True),  # its /proc does not show it
        (replace(Holder.this_process(), started=-1), 2 * EXPIRES_SECONDS, False),
    ],
)
def test_the_process_decides_here_and_the_last_touch_elsewhere(
    tmp_path: Path, holder: Holder, seconds: float, holds: bool
) -> None:
    name = tmp_path / "lock"
    left_by(holder, name, untouched_seconds=seconds)
    assert lease.holders(name) == ([holder] if holds else [])
    found = lease.take(name)
    if isinstance(found, Lease):
        found.release()
    assert isinstance(found, Lease) != holds


def test_a_full_disk_gives_leases_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        first = held(tmp_path / "lock")
    assert lease.take(tmp_path / "lock") == lease.UNKNOWN
    first.release()
    held(tmp_path / "lock").release()


@pytest.mark.parametrize("text", ["", "{", '{"host": "x"}', "[1]", "7"])
def test_a_file_that_is_being_written_holds_until_it_expires(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lock.1"
    file.write_text(text, encoding="ascii")
    assert lease.holders(tmp_path / "lock") == [lease.UNKNOWN]
    os.utime(file, (1, 1))
    assert lease.holders(tmp_path / "lock") == []


def test_a_holder_that_was_overtaken_gives_nothing_back(tmp_path: Path) -> None:
    name = tmp_path / "lock"
    first = held(name)
    left_by(ELSEWHERE, name, untouched_seconds=2 * EXPIRES_SECONDS)  # as if it were cut off from here
    second = held(name)
    first.release()
    assert lease.take(name) == Holder.this_process()
    second.release()


def test_a_holder_touches_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_TOUCH_SECONDS", 0.001)
    first = held(tmp_path / "lock")
    file = tmp_path / "lock.1"
    os.utime(file, (1, 1))
    waited = threading.Event()
    while file.stat().st_mtime == 1:
        waited.wait(0.001)
    file.unlink()  # a file server that is away for a moment ends nothing
    waited.wait(0.01)
    first.release()


def test_other_files_are_no_leases(tmp_path: Path) -> None:
    for name in ("lock", "lock.", "lock.x", "lock.1.tmp", "lock.²"):
        (tmp_path / name).write_text("", encoding="ascii")
    held(tmp_path / "lock").release()
    assert (tmp_path / "lock.1").stat().st_mtime == 0


def _add(folder: Path, times: int) -> None:
    """Add 1 to a counter under the lease, with a read and a write that nothing else keeps apart."""
    for _ in range(times):
        while isinstance(turn := lease.take(folder / "lock"), Holder):
            time.sleep(0.0005)
        counter = folder / "counter"
        number = int(counter.read_text(encoding="ascii"))
        time.sleep(0)
        counter.write_text(str(number + 1), encoding="ascii")
        turn.release()


def test_processes_never_hold_it_together(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0", encoding="ascii")
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_add, args=(tmp_path, 25)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "counter").read_text(encoding="ascii") == "100"


def test_a_killed_holder_makes_nobody_wait(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        held(tmp_path / "lock")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    held(tmp_path / "lock").release()
    os.waitpid(child, 0)
    held(tmp_path / "lock").release()
