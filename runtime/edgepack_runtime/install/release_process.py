"""Runs verbs of an unpacked release in a Python of their own (standard library only).

The child is started as `python -I -S <release>/__main__.py VERB`. `-I` leaves out every PYTHON* variable and the
user's packages, `-S` the system's site-packages: what runs on the device is what the bundle carries and the
standard library, nothing else. A bundle that is not installed is unpacked for it into a private folder laid out
like a prefix (`releases/<id>/` and `cache/`), so that the launcher puts bytecode beside the release here too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from edgepack_runtime.bundle import extract, verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import release_id
from edgepack_runtime.device import doctor
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, ExitCode, StageFailedError, reported
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util.fs import os_errors, remove_tree, temporary_base

SELFTEST_TIMEOUT_S = 900.0  # also of tuning
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SIGNAL_HINTS = {  # why, and what helps
    signal.SIGILL: (
        "this CPU lacks an instruction that the bundle's libraries use",
        "`doctor` names this CPU; build the bundle for a target that fits it",
    ),
    signal.SIGKILL: (
        "most often the kernel, when memory ran out",
        "`dmesg` tells; stop something, or build a smaller model",
    ),
    signal.SIGBUS: ("most often a disk that failed while a file was mapped", "`dmesg` tells; try another disk"),
    signal.SIGSEGV: (
        "most often a library of the bundle that does not fit this system",
        "`doctor` names this system; build the bundle for a target that fits it",
    ),
    signal.SIGABRT: (
        "a library gave up; its message stands above, and memory that ran out is one reason",
        "stop something, or build a smaller model",
    ),
}
_TAIL_BYTES = 8192  # of stderr, the end of which is the cause where no error was reported


def interpreter() -> str:
    """Absolute path of the Python to run releases with: this one, or the one behind it if this is a venv's.

    A virtual environment comes and goes, and nothing of it is used; the Python it was made from stays.

    Raises:
        EnvironmentUnfitError: this process does not know its own executable.
    """
    path = Path(sys.executable or "")
    if not path.is_absolute():
        raise EnvironmentUnfitError("this Python does not know where it lies", fix="start it by its full path")
    if (path.parent.parent / "pyvenv.cfg").exists():
        return os.path.realpath(path)
    return str(path)


def command(release: Path, arguments: Sequence[str], *, python: Optional[str] = None) -> List[str]:
    """The command line that runs `arguments` (verb first) in `release`, on `python` or else on ours."""
    return [python or interpreter(), "-I", "-S", str(release / "__main__.py"), *arguments]


def run(release: Path, arguments: Sequence[str], *, to_drain: bool = False) -> int:
    """Run a verb of `release` on this process's own stdin, stdout and stderr; return its exit code.

    Args:
        to_drain: when this process is told to stop, the verb is told so, and ends when it likes.

    Raises:
        StageFailedError: it was killed by a signal.
    """
    line = command(release, arguments)
    if to_drain:
        code = _run_to_its_end(line)
    else:
        code = subprocess.run(line, preexec_fn=dies_with_us(), check=False).returncode
    if code < 0:
        raise died(arguments[0], code)
    return code


def _run_to_its_end(line: Sequence[str]) -> int:
    """Run `line` and hand on SIGTERM; a SIGINT of the terminal reaches it without us. Return its exit code."""
    child: List[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: Optional[FrameType]) -> None:
        for one in child:
            one.send_signal(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        signal.signal(signal.SIGINT, _wait_for_it)
        child.append(subprocess.Popen(list(line), preexec_fn=dies_with_us()))
        signal.signal(signal.SIGTERM, hand_on)
        return child[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_it(number: int, frame: Optional[FrameType]) -> None:
    """The child got it too, and ends."""


def run_json(
    line: Sequence[str], verb: str, *, accepted: Sequence[ExitCode], timeout_s: Optional[float] = None
) -> Tuple[ExitCode, Dict[str, Any]]:
    """Run `line`, which prints one JSON object on stdout; its stderr goes to ours, and into the error if it fails.

    Raises:
        StageFailedError: it was killed, ended with a code that is not `accepted`, took longer than `timeout_s`
            seconds, or printed something else.
        EnvironmentUnfitError: it says that this device is not fit: it lacks a library, or memory.
    """
    told = bytearray()
    try:
        with _passed_on(told) as stderr:
            done = subprocess.run(
                list(line),
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
                preexec_fn=dies_with_us(),
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise StageFailedError(
            f"the {verb} did not end within {timeout_s:g} s", fix="look at the load of this device"
        ) from error
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # no memory, no process, no thread left
        raise EnvironmentUnfitError(
            f"the {verb} could not be started", why=str(error), fix="stop something, or look at the limits of this user"
        ) from error
    if done.returncode < 0:
        raise died(verb, done.returncode)
    if done.returncode not in tuple(accepted):
        raise _failed(verb, done, told.decode("utf-8", "replace"))
    try:
        document = json.loads(done.stdout.decode("utf-8"))
        if not isinstance(document, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise StageFailedError(
            f"the {verb} did not print its result", why=f"its output is not JSON: {error}"
        ) from error
    return ExitCode(done.returncode), document


@contextlib.contextmanager
def _passed_on(told: bytearray) -> Iterator[int]:
    """A descriptor whose bytes go on to our stderr as they come; the last of them are in `told` after the block."""
    source, sink = os.pipe()

    def pass_on() -> None:
        with open(source, "rb", buffering=0) as lines:  # noqa: PTH123 - a descriptor
            for data in iter(lambda: lines.read(_TAIL_BYTES), b""):
                told.extend(data)
                del told[:-_TAIL_BYTES]
                with contextlib.suppress(OSError):  # nobody reads ours any more; the verb is not to stop for that
                    os.write(2, data)

    thread = threading.Thread(target=pass_on, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is left to be had
        os.close(source)
        os.close(sink)
        raise
    try:
        yield sink
    finally:
        os.close(sink)
        thread.join(timeout=10)  # not for ever: a process that the verb left behind may keep the other end open


def _failed(verb: str, done: subprocess.CompletedProcess[bytes], stderr: str) -> EdgepackError:
    """The error for a verb that failed: the one that it reported, or else the last line on its stderr."""
    error = reported(done.stdout.decode("utf-8", "replace"))
    if error is None:
        lines = stderr.strip().splitlines() or ["it printed nothing"]
        what = f"the {verb} failed with exit code {done.returncode}"
        kind = EnvironmentUnfitError if done.returncode == ExitCode.ENVIRONMENT_UNFIT else StageFailedError
        return kind(what, why=lines[-1].strip())
    kind = EnvironmentUnfitError if isinstance(error, EnvironmentUnfitError) else StageFailedError
    return kind(f"the {verb} failed: {error.what}", why=error.why, fix=error.fix)


def dies_with_us(number: int = signal.SIGKILL) -> Callable[[], None]:
    """What a child does first: ask the kernel (prctl 2) for signal `number` when this process ends, however it ends.

    Otherwise the self-test or gate of an install that was killed would go on, and disturb the next one's.
    """
    import ctypes  # here, and not in the child, where between fork and exec only simple calls are safe

    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)

    return ask


def died(verb: str, code: int) -> StageFailedError:
    """The error for a child that a signal ended (`code` is negative, as in subprocess)."""
    try:
        number = signal.Signals(-code)
    except ValueError:
        return StageFailedError(f"the {verb} was killed by signal {-code}")
    why, fix = _SIGNAL_HINTS.get(number, ("", ""))
    return StageFailedError(f"the {verb} was killed by {number.name}", why=why, fix=fix)


@contextlib.contextmanager
def unpacked(bundle: Path, *, checked: bool) -> Iterator[Path]:
    """A private, verified, unpacked copy of `bundle` that is gone after the block; yields the release folder.

    Args:
        checked: whether it must be signed where keys are pinned for the machine. A bundle that runs already, and
            unpacks itself, is beyond that.

    Raises:
        BundleInvalidError: the bundle is damaged, or not from whom this machine trusts.
        EnvironmentUnfitError: this device cannot run it, or there is no place to unpack it.
    """
    with Archive(bundle) as archive:
        raw, signature = verify.read_sealed(archive)
        if checked:
            trust.require(trust.read_pins(None), bundle.name, raw, signature)
        manifest, _ = verify.verify_archive(archive, raw)
        doctor.require(doctor.check_device(manifest))
        base = _temporary_base(manifest.total_bytes)
        what = f"the bundle cannot be unpacked below {base}"
        with os_errors(what):
            root = Path(tempfile.mkdtemp(prefix=f"{manifest.name}-", dir=base))
        try:
            release = Prefix(root).releases / release_id(manifest, raw)
            with os_errors(what):
                extract.extract(archive, manifest, release, raw=raw, signature=signature, durable=False)
            if checked:  # its code runs next, and the stick may have answered otherwise the second time
                verify.verify_staged(release, manifest, raw, signature)
            yield release
        finally:
            with os_errors(f"the temporary folder {root} cannot be removed"):
                remove_tree(root)


def _temporary_base(needed_bytes: int) -> Path:
    """TMPDIR where it is set (never another folder instead, silently), else the system's."""
    try:
        base = Path(os.environ.get("TMPDIR") or temporary_base()).absolute()
    except OSError as error:
        raise EnvironmentUnfitError(
            "there is no folder for temporary files", why=str(error), fix="set TMPDIR to a folder that can be written"
        ) from error
    if not base.is_dir():
        raise EnvironmentUnfitError(f"TMPDIR {base} is no folder", fix="set TMPDIR to a folder that can be written")
    doctor.require([doctor.check_space(base, needed_bytes), doctor.check_executable(base)])
    return base
