"""Run verbs of an unpacked release in their own Python process.

The process is `python -I -S -B <release>/__main__.py VERB`, with the interpreter of the release if it carries one. `-I`
ignores PYTHON* variables and the user's packages, `-S` ignores the system's site-packages, so that only the bundle and
the standard library are imported. `-B` writes no bytecode, which no manifest would list. A bundle that is not installed
is unpacked into a private folder with the layout of a prefix (`releases/<id>/`).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
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
from edgepack_runtime.bundle.interpreter import folder as interpreter_folder
from edgepack_runtime.bundle.manifest import MAIN_NAME, PYTHON_FOLDER, release_id
from edgepack_runtime.device import doctor
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, ExitCode, StageFailedError, reported
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util.fs import make_folder, os_errors, remove_tree, require_safe_base, temporary_base
from edgepack_runtime.util.signals import exit_code

SELFTEST_TIMEOUT_S = 900.0  # also of tuning
_END_S = 30.0  # for a verb to clean up
_UNPACKED_MARK = ".edgepack-once"  # in an interpreter that the stub of a bundle unpacked for one command
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SIGNAL_HINTS = {  # cause, remedy
    signal.SIGILL: (
        "this CPU lacks an instruction that the bundle's libraries use",
        "see `doctor` for this CPU; build the bundle for a target that fits it",
    ),
    signal.SIGKILL: (
        "most often the kernel, when memory ran out",
        "see `dmesg`; stop other programs, or build a smaller model",
    ),
    signal.SIGBUS: ("most often a disk error while a file was mapped", "see `dmesg`; try another disk"),
    signal.SIGSEGV: (
        "most often a library of the bundle that does not fit this system",
        "see `doctor` for this system; build the bundle for a target that fits it",
    ),
    signal.SIGABRT: (
        "a library aborted, perhaps for lack of memory; see its message above",
        "stop other programs, or build a smaller model",
    ),
}


def servers(prefix: Prefix) -> Dict[int, str]:
    """The processes that run `serve` of a release in `prefix`, with that release, as far as this user may see them."""
    command = re.compile("\0" + re.escape(os.path.realpath(prefix.releases)) + "/([^\0/]+)/__main__\\.py\0serve\0")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or /proc is not there
            line = command.search(os.fsdecode((process / "cmdline").read_bytes()))
            if line is not None:
                found[int(process.name)] = line[1]
    return dict(sorted(found.items()))


def carried_interpreter(release: Path) -> Optional[str]:
    """Absolute path of the interpreter in `release`; None if it runs on the device's.

    A container has no shell for the script `python3`, and starts `cpython` beside it: then so do we.
    """
    path = release / platform.machine() / PYTHON_FOLDER / "bin" / "python3"
    if not path.is_file():
        return None
    return sys.executable if Path(sys.executable) == path.with_name("cpython") else str(path)


def interpreter() -> str:
    """Absolute path of the device's Python: ours, or the base Python of our virtual environment.

    Raises:
        EnvironmentUnfitError: this process does not know its executable.
    """
    path = Path(sys.executable or "")
    if not path.is_absolute():
        raise EnvironmentUnfitError("the path of this Python is unknown", fix="start it by its full path")
    if (path.parent.parent / "pyvenv.cfg").exists():
        return os.path.realpath(path)
    return str(path)


def command(release: Path, arguments: Sequence[str], *, python: Optional[str] = None) -> List[str]:
    """The command line that runs `arguments` (verb first) in `release`.

    Args:
        python: for a release that carries no interpreter; `interpreter()` by default.
    """
    chosen = carried_interpreter(release) or python or interpreter()
    return [chosen, "-I", "-S", "-B", str(release / MAIN_NAME), *arguments]


def run(release: Path, arguments: Sequence[str]) -> int:
    """Run a verb of `release` on this process's own stdin, stdout and stderr; return its exit code.

    SIGTERM is passed on, and the verb ends by itself; all but `serve`, which has limits of its own, within
    `_END_S` seconds.

    Raises:
        StageFailedError: a signal killed it.
    """
    code = run_to_end(command(release, arguments), end_s=None if arguments[0] == "serve" else _END_S)
    if code < 0:
        raise killed_error(arguments[0], code)
    return code


def run_to_end(line: Sequence[str], *, end_s: Optional[float] = None) -> int:
    """Run `line`, forward SIGTERM to it and return its exit code. A terminal sends SIGINT to both processes.

    A child that a signal ends which was meant for it, before it has a handler, has the shell's code of the signal.

    Args:
        end_s: seconds after a forwarded SIGTERM until the child is killed; None: never. A graph in a loop keeps Python
            from its signals.
    """
    numbers = (signal.SIGTERM, signal.SIGINT)
    arrived: List[int] = []
    timers: List[threading.Timer] = []
    before = {number: signal.getsignal(number) for number in numbers}
    with _held(numbers) as (start, release):
        child = subprocess.Popen(list(line), preexec_fn=start)

        def kill() -> None:
            arrived.append(signal.SIGKILL)
            child.kill()

        def forward(number: int, frame: Optional[FrameType]) -> None:
            arrived.append(number)
            if number == signal.SIGTERM:
                child.send_signal(number)
                if end_s is not None and not timers:
                    timers.append(threading.Timer(end_s, kill))
                    timers[0].daemon = True
                    timers[0].start()

        try:
            for number in numbers:
                signal.signal(number, forward)
            release()
            code = child.wait()
        finally:
            for timer in timers:
                timer.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)
    if signal.SIGKILL in arrived:
        return exit_code(signal.SIGTERM)
    return exit_code(-code) if -code in arrived else code


def run_json(
    line: Sequence[str], verb: str, *, accepted: Sequence[ExitCode], timeout_s: Optional[float] = None
) -> Tuple[ExitCode, Dict[str, Any]]:
    """Run `line`, which prints one JSON object on stdout. Its stderr is ours.

    Raises:
        StageFailedError: it was killed, ended with a code that is not `accepted`, took longer than `timeout_s`
            seconds, or did not print a JSON object.
        EnvironmentUnfitError: it reported that this device lacks a library or memory, or it could not be started.
    """
    try:
        code, stdout = _output(line, timeout_s)
    except subprocess.TimeoutExpired as error:
        raise StageFailedError(
            f"the {verb} did not end within {timeout_s:g} s", fix="check the load of this device"
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentUnfitError(
            f"the {verb} could not be started",
            why=str(error),
            fix="stop other programs, or check the limits of this user (`ulimit -a`)",
        ) from error
    if code < 0:
        raise killed_error(verb, code)
    output = stdout.decode("utf-8", "replace")
    if code not in tuple(accepted):
        unfit = code == ExitCode.ENVIRONMENT_UNFIT
        kind = EnvironmentUnfitError if unfit else StageFailedError
        cause = reported(output)
        if cause is None:
            raise kind(f"the {verb} failed with exit code {code}", why="see its messages above")
        raise kind(f"the {verb} failed: {cause.what}", why=cause.why, fix=cause.fix)
    try:
        document = json.loads(output)
        if not isinstance(document, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise StageFailedError(
            f"the {verb} did not print its result", why=f"its output is not JSON: {error}"
        ) from error
    return ExitCode(code), document


def _output(line: Sequence[str], timeout_s: Optional[float]) -> Tuple[int, bytes]:
    """Run `line` and return its exit code and stdout. It is killed when this ends with an error.

    An interrupted install removes the files of the release: a process of it that lived on would report damage. So
    signals wait until the process is known, and Ctrl-C on a terminal reaches this process alone.
    """
    with _held((signal.SIGINT, signal.SIGTERM)) as (start, release):
        child = subprocess.Popen(
            list(line),
            stdin=subprocess.PIPE,  # not DEVNULL: the smallest systems have no /dev/null
            stdout=subprocess.PIPE,
            preexec_fn=start,
            start_new_session=True,
        )
        with child:
            try:
                release()
                stdout, _ = child.communicate(b"", timeout_s)
                return child.returncode, stdout
            except BaseException:
                child.kill()
                raise


@contextlib.contextmanager
def _held(numbers: Sequence[int]) -> Iterator[Tuple[Callable[[], None], Callable[[], None]]]:
    """Hold signals back while a child is started: yields a `preexec_fn`, and what lets them in again here."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    ask = die_with_parent()

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def start() -> None:
        ask()
        release()

    try:
        yield start, release
    finally:
        release()


def run_selftest(line: Sequence[str], verb: str = "self-test") -> Dict[str, Any]:
    """Run the self-test `line` and return its result. Raises as `run_json`."""
    return run_json(line, verb, accepted=[ExitCode.OK], timeout_s=SELFTEST_TIMEOUT_S)[1]


def die_with_parent(number: int = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn` that has the kernel send signal `number` to the child when this process ends (prctl 2).

    Otherwise the self-test or gate of a killed install would run on, and disturb the next one.
    """
    import ctypes  # here: between fork and exec only simple calls are safe

    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)

    return ask


def killed_error(verb: str, code: int) -> StageFailedError:
    """The error for a process that a signal killed. `code` is negative, as in `subprocess`."""
    try:
        number = signal.Signals(-code)
    except ValueError:
        return StageFailedError(f"the {verb} was killed by signal {-code}")
    why, fix = _SIGNAL_HINTS.get(number, ("", ""))
    return StageFailedError(f"the {verb} was killed by {number.name}", why=why, fix=fix)


@contextlib.contextmanager
def unpacked(bundle: Path, *, check_signature: bool) -> Iterator[Path]:
    """Unpack `bundle` into a private folder, removed after the block; yields the release folder.

    Args:
        check_signature: whether to check the signature with the keys trusted for the machine; false for a bundle that
            unpacks itself, whose code already runs.

    Raises:
        BundleInvalidError: the bundle is damaged, or not signed by a trusted key.
        EnvironmentUnfitError: this device cannot run it, or it cannot be unpacked here.
    """
    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
        if check_signature:
            trust.require(trust.read_trusted_keys(None), bundle.name, raw, signature)
        manifest, _ = verify.verify_archive(archive, raw)
        doctor.require(doctor.check_device(manifest))
        # A bundle that unpacks itself runs on its interpreter already, and does not unpack it again.
        here = None if check_signature else _unpacked_interpreter()
        machine = platform.machine()
        left_out = None if here is None else interpreter_folder(machine)
        files = [one for one in manifest.files_for(machine) if left_out is None or not one.path.startswith(left_out)]
        needed = sum(one.size for one in files)
        base = _temporary_base(here, needed)
        what = f"the bundle cannot be unpacked below {base}"
        with os_errors(what):
            root = Path(tempfile.mkdtemp(prefix=f"{manifest.name}-", dir=base))
        try:
            release = Prefix(root).releases / release_id(manifest, raw)
            with os_errors(what):
                extract.extract(
                    archive, manifest, release, raw=raw, signature=signature, durable=False, left_out=left_out
                )
                if left_out is not None:
                    make_folder((release / left_out).parent)
                    (release / left_out).symlink_to(sys.prefix)
            if check_signature:  # its code runs next, and the disk may have returned other bytes on the second read
                verify.verify_staged(release, manifest, raw, signature)
            yield release
        except (OSError, EdgepackError):
            require_kept(root)
            raise
        finally:
            with os_errors(f"the temporary folder {root} cannot be removed"):
                remove_tree(root)


def require_kept(path: Path) -> None:
    """Name the cause where `path`, which this process unpacked, is gone.

    Raises:
        EnvironmentUnfitError: something removed it.
    """
    if not path.exists():
        raise EnvironmentUnfitError(
            f"{path} was removed while the bundle ran from it",
            why="something empties that folder of temporary files",
            fix="type the verb again, or set TMPDIR to another folder; what runs for long, run from an install",
        )


def _unpacked_interpreter() -> Optional[Path]:
    """The folder of the running interpreter, if the stub of a bundle unpacked it for this command; otherwise None."""
    folder = Path(sys.prefix)
    return folder if (folder / _UNPACKED_MARK).exists() else None


def _temporary_base(own: Optional[Path], needed_bytes: int) -> Path:
    """The folder `own` of the unpacked interpreter: libraries load from there, and it goes after SIGKILL.

    Otherwise TMPDIR if it is set, else the system's folder. An unusable TMPDIR is an error.
    """
    try:
        base = own or Path(os.environ.get("TMPDIR") or temporary_base()).absolute()
        if base.is_dir():
            safe = require_safe_base(base if own is None else own.parent)
            base = safe if own is None else own
    except OSError as error:
        raise EnvironmentUnfitError(
            "there is no folder for temporary files",
            why=str(error),
            fix="set TMPDIR to a writable folder of your own",
        ) from error
    if not base.is_dir():
        raise EnvironmentUnfitError(f"TMPDIR {base} is not a folder", fix="set TMPDIR to a writable folder")
    why = "this verb unpacks the bundle there for as long as it runs"
    fix = "set TMPDIR to a folder with more space; or install the bundle, and run the verb of the install"
    doctor.require(
        [doctor.check_space(base, needed_bytes, why=why, fix=fix), doctor.check_executable(base, option="TMPDIR")]
    )
    return base
