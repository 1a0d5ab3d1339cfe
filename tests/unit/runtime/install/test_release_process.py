"""Verbs of a release in their own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import Device, MakeBundle, last_receipt, silent

from edgepack_runtime.bundle import extract as unpacking
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import Manifest, TargetFacts
from edgepack_runtime.bundle.verify import verify_folder
from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    ExitCode,
    StageFailedError,
    to_json,
)
from edgepack_runtime.install import release_process
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix


@pytest.fixture(scope="module")
def bundle(make_bundle: MakeBundle) -> Path:
    """One with the runtime's sources: one is changed."""
    return make_bundle(sources=True)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def refuse_to_unpack(bundle: Path, error: type[EdgepackError], words: str | None = None) -> None:
    """Expect that `bundle` is not unpacked."""
    with pytest.raises(error, match=words), release_process.unpacked(bundle, check_signature=True):
        raise AssertionError


def test_a_bundle_is_unpacked_privately_and_removed(bundle: Path, temporary: Path) -> None:
    with release_process.unpacked(bundle, check_signature=True) as release:
        verify_folder(release)
        assert release.parent.name == "releases"
        assert release.parent.parent.parent == temporary
        assert release.parent.parent.stat().st_mode & 0o777 == 0o700
        assert release_process.run(release, ["predict", "--output", str(temporary / "out.csv"), "很好"]) == 0
        assert release_process.run(release, ["no-such-verb"]) == ExitCode.USAGE
    with pytest.raises(KeyboardInterrupt), release_process.unpacked(bundle, check_signature=True):
        raise KeyboardInterrupt
    assert [path.name for path in temporary.iterdir()] == ["out.csv"]


def test_a_temporary_folder_that_is_emptied_is_named(bundle: Path, temporary: Path, device: Device) -> None:
    fills = "import shutil, sys; from edgepack_runtime.install import release_process as p; b = p.run\n"
    fills += "def run(release, words): shutil.rmtree(release.parent.parent); return b(release, words)\n"
    fills += "p.run = run; from edgepack_runtime.cli.main import main; sys.exit(main())"
    path = ":".join(entry for entry in sys.path if entry)
    done = device(sys.executable, "-c", fills, "selftest", bundle, env={"PYTHONPATH": path, "TMPDIR": str(temporary)})
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert "was removed while the bundle ran from it" in done.stderr
    assert list(temporary.iterdir()) == []


def test_files_that_change_after_the_check_are_not_run(
    bundle: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract = unpacking.extract

    def swapped(archive: Archive, manifest: Manifest, folder: Path, **options: Any) -> None:
        extract(archive, manifest, folder, **options)
        (folder / "edgepack_runtime/cli/main.py").write_text("print('code of the stick')\n")

    monkeypatch.setattr(unpacking, "extract", swapped)
    refuse_to_unpack(bundle, BundleInvalidError, r"edgepack_runtime/cli/main\.py")
    assert list(temporary.iterdir()) == []


def test_damage_and_unfit_devices_are_found_before_unpacking(
    make_bundle: MakeBundle, bundle: Path, temporary: Path, tmp_path: Path
) -> None:
    raw = bytearray(bundle.read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "x.edgepack").write_bytes(raw)
    refuse_to_unpack(tmp_path / "x.edgepack", BundleInvalidError)
    facts = TargetFacts("old", ("x86_64",), "99.0", "host", "CPUExecutionProvider")
    refuse_to_unpack(make_bundle(target=facts), EnvironmentUnfitError, "C library")
    assert list(temporary.iterdir()) == []


def test_tmpdir_is_used_or_refused_but_never_replaced(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for bad, reason in ((tmp_path / "none", "is not a folder"), (Path("/proc"), "free at /proc")):
        monkeypatch.setenv("TMPDIR", str(bad))
        refuse_to_unpack(bundle, EnvironmentUnfitError, reason)
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def refuse(**options: object) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    refuse_to_unpack(bundle, EnvironmentUnfitError, "Permission denied")

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(tempfile, "gettempdir", none)
    refuse_to_unpack(bundle, EnvironmentUnfitError, "set TMPDIR")


def test_a_verb_ends_with_a_json_object_and_an_accepted_code(tmp_path: Path) -> None:
    accepted = [ExitCode.OK, ExitCode.GATE_FAILED]
    code, found = release_process.run_json(
        python("print('{\"a\": 1}'); raise SystemExit(6)"), "gate", accepted=accepted
    )
    assert (code, found) == (ExitCode.GATE_FAILED, {"a": 1})
    for line in ("print('[1]')", "print('no')", "pass"):
        with pytest.raises(StageFailedError, match="the gate did not print its result"):
            release_process.run_json(python(line), "gate", accepted=accepted)
    with pytest.raises(StageFailedError, match=r"did not end within 0\.2 s"):
        release_process.run_json(python("import time; time.sleep(60)"), "gate", accepted=accepted, timeout_s=0.2)
    with pytest.raises(EnvironmentUnfitError, match="the gate could not be started"):
        release_process.run_json([str(tmp_path / "none")], "gate", accepted=accepted)


def test_a_child_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    child = "import os, time; print(os.getpid(), file=open('pid', 'w'), flush=True); time.sleep(60)"
    line = [sys.executable, "-c", child]
    parent = f"from edgepack_runtime.install import release_process as it; it.run_json({line!r}, 'x', accepted=[])"
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, env=path)
    deadline = time.monotonic() + 30
    while not (pid := (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""):
        assert time.monotonic() < deadline
    process.kill()
    process.wait(30)
    status = Path("/proc", pid.strip(), "stat")
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":  # a zombie waits for init only
        assert time.monotonic() < deadline, "it lives on"


def test_ctrl_c_ends_a_child_before_it_can_speak(tmp_path: Path) -> None:
    child = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('a child hears it', file=sys.stderr, flush=True))\n"
        "print(os.getpid(), file=open('pid', 'w'), flush=True)\n"
        "time.sleep(60)\n"
    )
    line = [sys.executable, "-c", child]
    parent = f"from edgepack_runtime.install import release_process as it; it.run_json({line!r}, 'x', accepted=[])"
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        cwd=tmp_path,
        env=path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell ignores it for jobs in its background
    )
    deadline = time.monotonic() + 30
    while not (pid := (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""):
        assert time.monotonic() < deadline
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors and "a child hears it" not in errors
    assert not Path("/proc", pid.strip()).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_child_is_started_ends_it_too(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            started.append(self)
            signal.pthread_kill(threading.get_ident(), number)  # before the caller knows it

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, end)
    monkeypatch.setattr(subprocess, "Popen", Started)
    try:
        with pytest.raises(KeyboardInterrupt):
            release_process.run_json(python("import time; time.sleep(60)"), "gate", accepted=[])
    finally:
        signal.signal(number, before)
    assert [child.returncode for child in started] == [-signal.SIGKILL]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    monkeypatch.undo()
    blocked = "import json, signal; print(json.dumps({'blocked': len(signal.pthread_sigmask(signal.SIG_BLOCK, []))}))"
    assert release_process.run_json(python(blocked), "gate", accepted=[ExitCode.OK])[1] == {"blocked": 0}


def test_the_interpreter_outlives_its_virtual_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python_of_venv = tmp_path / "bin" / "python"
    python_of_venv.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(python_of_venv))
    assert release_process.interpreter() == str(python_of_venv)
    (tmp_path / "pyvenv.cfg").touch()
    assert release_process.interpreter() == os.path.realpath(python_of_venv)
    for unknown in ("", None, "python"):
        monkeypatch.setattr(sys, "executable", unknown)
        with pytest.raises(EnvironmentUnfitError):
            release_process.interpreter()


def test_a_verb_that_drains_is_told_to_stop_and_waited_for(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import os, signal, sys, time\n"  # not print: the signal may come before that is done with its first line
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'draining\\n'), sys.exit(7)))\n"
        "os.write(1, b'ready\\n')\n"
        "time.sleep(60)\n"
    )
    program = (
        "import sys; from edgepack_runtime.install import release_process;"
        f"sys.exit(release_process.run_to_end([sys.executable, {str(child)!r}]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(release_process.__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.terminate()
        assert parent.stdout.readline() == "draining\n"
        assert parent.wait(30) == 7


def test_a_verb_that_hears_no_signal_is_killed_in_the_end() -> None:
    deaf = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.kill(os.getppid(), 15); time.sleep(60)"
    assert release_process.run_to_end(python(deaf), end_s=0.2) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_verb_that_has_no_handler_yet_ends_as_a_shell_says(number: signal.Signals) -> None:
    line = python(f"import os, signal; signal.signal({number:d}, signal.SIG_DFL); os.kill(os.getppid(), {number:d});"
        f"os.kill(os.getpid(), {number:d}) if {number == signal.SIGINT} else signal.pause()")  # fmt: skip
    assert release_process.run_to_end(line) == 128 + number


def test_a_verb_that_another_signal_ends_is_an_error() -> None:
    assert release_process.run_to_end(python("import os; os.kill(os.getpid(), 15)")) == -signal.SIGTERM


def failing(code: str) -> EdgepackError:
    """The error that a self-test ends in which runs `code`."""
    with pytest.raises(EdgepackError) as caught:
        release_process.run_json(python(code), "self-test", accepted=[ExitCode.OK], timeout_s=60)
    return caught.value


def test_the_error_that_a_verb_reports_is_raised(capfd: pytest.CaptureFixture[str]) -> None:
    sent = json.dumps({"error": to_json(StageFailedError("a logit differs", why="2 and\n1", fix="build again"))})
    error = failing(f"import sys; print({sent!r}); print('noise', file=sys.stderr); raise SystemExit(5)")
    assert isinstance(error, StageFailedError)
    assert (error.what, error.why, error.fix) == (
        "the self-test failed: a logit differs", "2 and\n1", "build again",
    )  # fmt: skip
    assert capfd.readouterr().err == "noise\n"
    sent = json.dumps({"error": to_json(EnvironmentUnfitError("no room here"))})
    error = failing(f"print({sent!r}); raise SystemExit(4)")
    assert isinstance(error, EnvironmentUnfitError)
    assert str(error) == "the self-test failed: no room here"
    assert str(failing("raise SystemExit(3)")) == (
        "the self-test failed with exit code 3\n  why: see its messages above"
    )


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGILL, "lacks an instruction"),
        (signal.SIGSEGV, "does not fit this system"),
        (signal.SIGABRT, "a library aborted"),
        (signal.SIGKILL, "memory ran out"),
    ],
)
def test_the_signal_that_killed_a_verb_is_explained(number: signal.Signals, reason: str) -> None:
    error = failing(f"import os; os.kill(os.getpid(), {int(number)})")
    assert error.what == f"the self-test was killed by {number.name}"
    assert reason in error.why
    assert error.fix


@pytest.mark.parametrize(
    ("line", "why", "fix"),
    [
        (
            "raise ImportError('libfoo.so.1: cannot open shared object file: No such file or directory')",
            "libfoo.so.1: cannot open shared object file", "install the system package with libfoo.so.1",
        ),
        (
            "import ctypes; ctypes.CDLL('libnowhere.so.3')",
            "libnowhere.so.3: cannot open shared object file", "install the system package with libnowhere.so.3",
        ),
        (
            "raise ImportError('IMPORTANT: READ\\n\\nlibopenblas.so.0: cannot open shared object file: x')",
            "libopenblas.so.0: cannot open shared object file", "install the system package with libopenblas.so.0",
        ),
        ("import no_such_module", "No module named 'no_such_module'", "run `verify`; if it is intact"),
        (
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)); bytearray(2**30)",
            "", "stop other programs, or build a smaller model",
        ),
    ],
)  # fmt: skip
def test_install_names_what_a_device_lacks(
    make_bundle: MakeBundle, prefix: Prefix, line: str, why: str, fix: str
) -> None:
    """The library of a real bundle that fails when its self-test imports it, in processes as on a device."""
    with pytest.raises(EnvironmentUnfitError) as caught:
        install(make_bundle(fakelib=line), prefix.root, log=silent)
    what = "memory ran out in sentiment" if not why else "a library that sentiment needs cannot be loaded"
    assert caught.value.what == f"the self-test failed: {what}"
    assert caught.value.why == why
    assert caught.value.fix.startswith(fix)
    assert last_receipt(prefix, "install")["error"] == str(caught.value)
