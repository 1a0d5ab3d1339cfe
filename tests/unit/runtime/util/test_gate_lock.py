"""Gates of one device wait for each other, in one process and across processes."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.installing import MakeBundle, silent

from edgepack.gating.local import run_verb
from edgepack.progress import SILENT
from edgepack.targets.this_machine import base_python
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util import gate_lock

WAITING = "another gate is running on this device"


class Log:
    """Progress that releases the other gate's lock when a message about waiting arrives."""

    task = SILENT.task

    def __init__(self, other: contextlib.ExitStack) -> None:
        self._other = other
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text.strip())
        if WAITING in text:
            self._other.close()

    @property
    def waits(self) -> int:
        return sum(WAITING in line for line in self.lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(gate_lock.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[contextlib.ExitStack]:
    """Another process's gate, which holds the lock until this is closed."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(gate_lock.hold(pytest.fail))
        monkeypatch.setenv(gate_lock.VARIABLE, str(folder))
        yield stack


def test_child_processes_do_not_take_the_lock_again(folder: Path) -> None:
    script = "from edgepack_runtime.util import gate_lock\nwith gate_lock.hold(print): print('inside')"
    with gate_lock.hold(pytest.fail):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "inside\n"
    assert os.environ[gate_lock.VARIABLE] == str(folder)


def test_the_first_writable_folder_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gate_lock.VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setattr(gate_lock.os, "access", lambda path, mode: path == str(tmp_path))
    monkeypatch.setattr(gate_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    umask = os.umask(0o077)
    try:
        with gate_lock.hold(pytest.fail):
            assert os.environ[gate_lock.VARIABLE] == ""
    finally:
        os.umask(umask)
    assert gate_lock.VARIABLE not in os.environ
    assert (tmp_path / gate_lock.FILE_NAME).stat().st_mode & 0o777 == 0o644  # other users can open it


def test_a_link_is_not_followed(folder: Path) -> None:
    (folder / gate_lock.FILE_NAME).symlink_to(folder / "made")
    with pytest.raises(EnvironmentUnfitError, match="the gate lock cannot be opened"), gate_lock.hold(print):
        pytest.fail("the link was followed")
    assert not (folder / "made").exists()


def test_a_lock_that_another_process_makes_in_the_meantime_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: str, flags: int, mode: int = 0) -> int:
        if flags & os.O_CREAT:
            os.close(open_file(path, flags, 0o600))
        return open_file(path, flags, mode)

    open_file, lock = os.open, folder / gate_lock.FILE_NAME
    monkeypatch.setattr(gate_lock.os, "open", late)
    with gate_lock.hold(pytest.fail):
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600  # it is not this process's to change


def test_a_gate_of_the_build_side_waits(bundle: Path, other: contextlib.ExitStack) -> None:
    log = Log(other)
    assert run_verb([base_python(), "-I", "-S", bundle, "gate"], log.line).exit_code == 0
    assert log.waits == 1


def test_an_install_waits_and_its_own_gate_does_not_wait_for_it(
    bundle: Path, other: contextlib.ExitStack, prefix: Prefix
) -> None:
    log = Log(other)
    receipt = install(bundle, prefix.root, log=log.line)
    assert receipt["verdict"] == "installed"
    assert log.waits == 1
    assert any(WAITING in note for note in receipt["notes"])


@pytest.mark.parametrize(("verb", "begins"), [("gate", "measuring"), ("tune", "trying")])
def test_a_verb_of_an_installed_release_waits(
    once_installed: Prefix, other: contextlib.ExitStack, verb: str, begins: str
) -> None:
    log = Log(other)
    line = [str(once_installed.bin / "sentiment"), verb]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for text in process.stderr:
            log.line(text)
    assert process.returncode == 0
    assert WAITING in log.lines[0]
    assert log.lines[1].startswith(begins)


@pytest.mark.usefixtures("other")
def test_an_install_that_waited_too_long_changes_nothing(
    once_installed: Prefix, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = once_installed.current_id()
    monkeypatch.setattr(gate_lock, "WAIT_S", 0.1)
    with pytest.raises(EnvironmentUnfitError, match="another gate held the lock"):
        install(make_bundle(version="1.3.0", sequence=2), once_installed.root, log=silent)
    assert once_installed.current_id() == serving
