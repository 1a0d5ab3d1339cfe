"""One lock a device: everybody can take it, and what somebody puts in its place harms nobody."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from installing import MakeBundle

from edgepack.gating.local import run_verb
from edgepack.progress import SILENT
from edgepack.targets.local import base_python
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util import gate_lock
from edgepack_runtime.util.gate_lock import FILE_NAME, Held, Waiting


class EnoughError(Exception):
    """It was waited for."""


def waits(holder: str) -> None:
    raise EnoughError(holder)


@contextlib.contextmanager
def held(folders: Sequence[Path], waiting: Waiting) -> Iterator[Held]:
    """As somebody that another shell started, who knows of no lock that we hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(gate_lock.VARIABLE, ":".join(map(str, folders)))
        with gate_lock.held(waiting) as found:
            yield found


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_second_one_waits_and_hears_who_holds_it(shared: Path) -> None:
    with (
        held([shared], waits) as found,
        pytest.raises(EnoughError, match=rf"process {os.getpid()} of \S+ \("),
        held([shared], waits),
    ):
        pytest.fail("it did not wait")
    assert found == ([str(shared)], [])
    with held([shared], waits):
        pass  # it was let go of, by the one that waited too


def test_its_file_is_empty_and_to_be_read_by_everybody_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0o077)
    try:
        with held([shared], waits):
            pass
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    found = (shared / FILE_NAME).stat()
    assert (found.st_mode & 0o777, found.st_size) == (0o444, 0)


def test_one_place_that_two_have_in_common_is_enough(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    with held([Path("/nonexistent"), shared], waits) as found:
        assert (found.folders, len(found.unfit)) == ([str(shared)], 1)
        with pytest.raises(EnoughError), held([tmp_path / "own", shared], waits):
            pytest.fail("it did not wait")


def test_a_folder_by_two_names_is_locked_once(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(shared)
    with held([shared, tmp_path / "alias"], waits) as found:
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
            with held([shared], waits) as found:
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
    with held([shared], waits) as found:
        assert found.unfit == [f"{shared}: {FILE_NAME} is a link"]
    assert not (tmp_path / "made").exists()


def test_a_folder_that_anybody_may_clear_is_none(shared: Path) -> None:
    shared.chmod(0o777)
    with held([shared], waits) as found:
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

        with held([shared], replaced) as found:
            assert found.folders == [str(shared)]
            with path.open() as now, pytest.raises(BlockingIOError):
                fcntl.flock(now, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_is_started_by_who_holds_it_does_not_wait(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; from edgepack_runtime.util import gate_lock\nwith gate_lock.measuring(print): print('alone')"
    line = [sys.executable, "-c", script]
    monkeypatch.setenv(gate_lock.VARIABLE, str(shared))
    with gate_lock.held(waits):
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout == "alone\n"
    assert os.environ[gate_lock.VARIABLE] == str(shared)


def test_the_folders_are_the_systems_where_none_is_named(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    monkeypatch.delenv(gate_lock.VARIABLE, raising=False)
    monkeypatch.setattr(gate_lock, "FOLDERS", (str(shared),))
    with gate_lock.held(waits) as found:
        assert (found.folders, os.environ[gate_lock.VARIABLE]) == ([str(shared)], "")
    assert gate_lock.VARIABLE not in os.environ


def test_whoever_measures_where_nobody_can_be_waited_for_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gate_lock.VARIABLE, "/nonexistent")
    told: list[str] = []
    with gate_lock.measuring(told.append):
        assert len(told) == 1
    assert told[0].startswith("gates beside this one are not waited for, and disturb times: /nonexistent: No such file")


def test_one_that_is_held_for_too_long_is_told_with_who_holds_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_lock, "WAIT_S", -60.0)
    told: list[str] = []
    paused: list[bool] = []
    with (
        held([shared], waits),
        pytest.raises(EnvironmentUnfitError, match="does not end") as error,
        held([shared], gate_lock.patience(told.append, lambda: paused.append(True))),
    ):
        pytest.fail("it did not wait")
    assert f"last by process {os.getpid()} of " in error.value.why
    assert error.value.exit_code == 4
    assert paused == []
    assert [line.partition(" (")[0] for line in told] == ["another gate is running on this device"]


class LetsGo:
    """Progress of somebody who waits until we let go of the lock: when it is told."""

    def __init__(self, another: contextlib.ExitStack) -> None:
        self._another = another
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text.strip())
        if "another gate is running" in text:
            self._another.close()

    task = SILENT.task


@pytest.fixture
def another(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[contextlib.ExitStack]:
    """A gate of somebody else, who holds the lock until this is closed."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(held([shared], waits))
        monkeypatch.setenv(gate_lock.VARIABLE, str(shared))
        yield stack


def waited(lines: list[str]) -> list[str]:
    """Beginnings of the lines about waiting, and of that by which a gate begins to measure."""
    words = ("note: another gate is running", "note  another gate is running", "measuring")
    return [word for line in lines for word in words if line.startswith(word)]


def test_a_gate_of_this_machine_waits(bundle: Path, another: contextlib.ExitStack) -> None:
    heard = LetsGo(another)
    assert run_verb(bundle, "gate", [], heard, Path(base_python())).exit_code == 0
    assert waited(heard.lines) == ["note: another gate is running", "measuring"]
    assert f"process {os.getpid()} of " in "".join(heard.lines)


def test_an_install_waits_and_its_own_gate_does_not_wait_for_it(
    bundle: Path, another: contextlib.ExitStack, prefix: Prefix
) -> None:
    heard = LetsGo(another)
    receipt = install(bundle, prefix.root, say=heard.line)
    assert receipt["verdict"] == "installed"
    assert waited(heard.lines) == ["note  another gate is running"]
    assert any("another gate is running" in note for note in receipt["notes"])


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("installed") / "prefix")
    install(bundle, prefix.root, say=lambda text: None)
    return prefix


@pytest.mark.parametrize(("verb", "begins"), [("gate", "measuring"), ("tune", "trying")])
def test_an_installed_release_waits(installed: Prefix, another: contextlib.ExitStack, verb: str, begins: str) -> None:
    heard = LetsGo(another)
    line = [str(installed.bin / "sentiment"), verb]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for told in process.stderr:
            heard.line(told)
    assert process.returncode == 0
    assert heard.lines[0].startswith("note: another gate is running")
    assert heard.lines[1] == begins


@pytest.mark.usefixtures("another")
def test_an_install_that_waited_too_long_changes_nothing(
    installed: Prefix, make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = installed.current_id()
    monkeypatch.setattr(gate_lock, "WAIT_S", -60.0)
    with pytest.raises(EnvironmentUnfitError, match="another gate on this device does not end"):
        install(make_bundle(version="1.3.0", sequence=2), installed.root, say=lambda text: None)
    assert installed.current_id() == serving
    assert len(list(installed.receipts.glob("*-install.json"))) == 2
