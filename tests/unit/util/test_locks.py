"""Locks of processes: one holder at a time, or several that share; what a lock file holds decides nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from edgepack.util import locks
from edgepack.util.locks import Lock

THIS = f"process {os.getpid()} on {socket.gethostname()}"


def held(file: Path, *, shared: bool = False) -> Lock:
    found = locks.take(file, shared=shared)
    assert isinstance(found, Lock)
    return found


def test_one_process_holds_it_until_it_gives_it_back(tmp_path: Path) -> None:
    first = held(tmp_path / "lock")
    assert locks.take(tmp_path / "lock") == locks.take(tmp_path / "lock", shared=True) == THIS
    first.release()
    held(tmp_path / "lock").release()


def test_those_who_share_exclude_one_who_wants_it_alone(tmp_path: Path) -> None:
    one, two = held(tmp_path / "lock", shared=True), held(tmp_path / "lock", shared=True)
    one.release()
    assert locks.take(tmp_path / "lock") == THIS
    two.release()
    held(tmp_path / "lock").release()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[1]", b"process 1 on \x1b[31m", b"process \n", b"x" * 2**20, b'{"host": null}']
)
def test_a_file_that_somebody_else_wrote_names_nobody(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "lock"
    file.write_bytes(content)
    mine = held(file)
    file.write_bytes(content)
    assert locks.take(file) == locks.UNKNOWN
    mine.release()
    held(file).release()


def test_a_pipe_makes_nobody_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    mine = held(tmp_path / "lock")
    assert locks.take(tmp_path / "lock") == locks.UNKNOWN
    mine.release()


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_file_is_an_error(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "lock"
    file.mkdir() if kind == "folder" else file.symlink_to(tmp_path / "other")
    with pytest.raises(OSError):
        locks.take(file)
    assert not (tmp_path / "other").exists()


def _add(folder: Path, times: int) -> None:
    """Add 1 to a counter under the lock, with a read and a write that nothing else keeps apart."""
    for _ in range(times):
        while isinstance(turn := locks.take(folder / "lock"), str):
            time.sleep(0.0005)
        counter = folder / "counter"
        number = int(counter.read_text(encoding="ascii"))
        time.sleep(0)
        counter.write_text(str(number + 1), encoding="ascii")
        turn.release()


def test_processes_never_hold_it_together(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0", encoding="ascii")
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_add, args=(tmp_path, 25)) for _ in range(4)]
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
    os.waitpid(child, 0)
    held(tmp_path / "lock").release()
