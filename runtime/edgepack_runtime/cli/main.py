"""The command line of a bundle, of an installed release, and of `edgert` (which works on either).

One scheme: inside a bundle or release, that one is meant and never named; `edgert` names it. Results go to
stdout (UTF-8, whatever the locale), everything else to stderr. Each verb imports what it alone needs when it runs:
numpy and onnxruntime exist only in an unpacked release (from a bundle that is not installed, a verb that needs
them runs in a temporary unpacked copy), and a cold start of `predict` should not wait for what `install` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Callable, Dict, List, NoReturn, Optional, Sequence

from edgepack_runtime.cli import model_commands, release_commands
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, to_json
from edgepack_runtime.util.fs import unfit

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 128 + 2, 128 + 13, 128 + 15  # as a shell reports those signals

_MISSING = re.compile(r"(lib\S*\.so[\w.]*): cannot open shared object file")

__all__ = ["Context", "main", "run"]


def main() -> int:
    """Entry point of `edgert`."""
    return run(sys.argv[1:], Context("edgert", bundle=None, release=None))


def run(arguments: Sequence[str], context: Context) -> int:
    """Run one command line and return its exit code. The one place where errors become messages."""
    _open_streams()
    # Half a surrogate pair, which JSON may hold, is printed as JSON escapes it.
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stdin, "strict")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    # ONNX Runtime's own wheels (1.31 on Linux) otherwise write a device id and a database below HOME when they are
    # imported, and try to send them. It has to be set before that; the processes we start inherit it.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # NumPy's OpenBLAS otherwise starts a thread for each core when it is imported, for products that nobody computes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arrived = _notice_signals()
    as_json = False
    try:
        options = build_parser(context).parse_args(list(arguments))
        as_json = getattr(options, "json", False)
        code = _VERBS[options.verb](options, context, list(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _ended_by(signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - `_report` raises an unexpected one again
        if arrived:  # a library that was just being loaded makes an error of its own of it
            return _ended_by(arrived[0])
        return _report(error, context, as_json=as_json)
    return int(code)


def _report(error: Exception, context: Context, *, as_json: bool) -> int:
    """Print what ended a command, and return its exit code; an unexpected error is raised again."""
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has had enough.
        _drop_output()
        return _BROKEN_PIPE
    if isinstance(error, EdgepackError):
        known = error
    # What ctypes cannot load is an OSError without a number.
    elif isinstance(error, (ImportError, MemoryError)) or (isinstance(error, OSError) and _MISSING.search(str(error))):
        known = _unloadable(context, error)
    elif isinstance(error, OSError):  # a result that finds no room on the disk its reader chose, most of all
        _drop_output()
        known = unfit(f"{context.prog} could not go on", error)
    else:
        raise error
    print(f"error: {known}", file=sys.stderr)
    if as_json:
        with contextlib.suppress(OSError):
            print(json.dumps({"error": to_json(known)}, ensure_ascii=False), flush=True)
    return int(known.exit_code)


def _unloadable(context: Context, error: Exception) -> EnvironmentUnfitError:
    """What it means that a library cannot be loaded, or that there is no memory for what is."""
    if isinstance(error, MemoryError):
        return EnvironmentUnfitError(
            f"memory ran out in {context.prog}", why=str(error), fix="stop something, or build a smaller model"
        )
    missing = _MISSING.search(str(error))
    fix = "verify it; where it is intact, build it for a target that this system is like"
    if missing:
        fix = f"install the system package with {missing.group(1)}"
    first = str(error).strip().splitlines() or [type(error).__name__]
    return EnvironmentUnfitError(
        f"a library that {context.prog} needs cannot be loaded", why=missing.group(0) if missing else first[0], fix=fix
    )


def _notice_signals() -> List[int]:
    """Have SIGTERM and SIGINT end this process in order, so that temporary folders and half-staged releases are
    cleared; return the list that they will stand in. A SIGINT that is ignored, as in the background, stays so."""
    arrived: List[int] = []

    def end(number: int, frame: Optional[FrameType]) -> NoReturn:
        arrived.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(_TERMINATED)

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    return arrived


def _ended_by(number: int) -> int:
    """The exit code of a command that the signal `number` ended."""
    if number == signal.SIGTERM:
        return _TERMINATED
    print("interrupted", file=sys.stderr)
    return _INTERRUPTED


def _open_streams() -> None:
    """Give a process that was started with closed streams some that lead nowhere, and a stderr that may fail."""
    told = sys.stderr
    if isinstance(told, io.TextIOWrapper) and told is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Told(2, "wb", closefd=False)),
            encoding=told.encoding,
            errors="backslashreplace",
            line_buffering=True,
        )
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for as long as we run


class _Told(io.FileIO):
    """What is told of progress and errors, to whoever still listens.

    A terminal that was closed, a pager that has had enough or a log on a full disk must not break an install off in the
    middle, least of all where it is just about to switch back, nor hide its exit code.
    """

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _drop_output() -> None:
    """Send what is left in stdout's buffer nowhere: Python would fail on it once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_VERBS: Dict[str, Callable[[argparse.Namespace, Context, List[str]], int]] = {
    "doctor": release_commands.run_doctor,
    "verify": release_commands.run_verify,
    "install": release_commands.run_install,
    "status": release_commands.run_status,
    "trust": release_commands.run_trust,
    "rollback": release_commands.run_rollback,
    "uninstall": release_commands.run_uninstall,
    "selftest": release_commands.run_selftest,
    "gate": release_commands.run_gate,
    "tune": release_commands.run_tune,
    "env": release_commands.run_env,
    "bench": model_commands.run_bench,
    "predict": model_commands.run_predict,
    "serve": model_commands.run_serve,
}
