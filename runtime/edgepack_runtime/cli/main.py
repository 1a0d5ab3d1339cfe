"""The command line of a bundle, of an installed release, and of `edgert`, which works on either.

A bundle or release means itself and is never named on its command line; `edgert` names one. Results go to stdout (UTF-8
in any locale), everything else to stderr. Each verb imports its own modules when it runs: ONNX Runtime exists only in
an unpacked release, and a cold start of `predict` should not import the installer.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import re
import signal
import sys
from typing import Callable, List, Optional, Sequence

from edgepack_runtime import messages
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, printable, to_json
from edgepack_runtime.util import signals, streams
from edgepack_runtime.util.fs import unfit

Verb = Callable[[argparse.Namespace, Context, List[str]], int]

_MISSING = re.compile(r"(lib\S*\.so[\w.]*): cannot open shared object file")

__all__ = ["Context", "main", "run"]


def main() -> int:
    """Entry point of `edgert`."""
    return run(sys.argv[1:], Context("edgert", bundle=None, release=None))


def run(arguments: Sequence[str], context: Context) -> int:
    """Run one command line and return its exit code. Only here, errors become messages."""
    streams.open_closed()
    streams.go_on_without_stderr()
    # JSON may hold half a surrogate pair: print its escape.
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stdin, "strict")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    with signals.raising((signal.SIGTERM, signal.SIGINT), _error_of) as arrived:
        as_json = False
        try:
            options = build_parser(context).parse_args(list(arguments))
            as_json = getattr(options, "json", False)
            verb: Verb = getattr(importlib.import_module(_MODULES[options.verb]), f"run_{options.verb}")
            code = verb(options, context, list(arguments))
            sys.stdout.flush()
        except KeyboardInterrupt:
            return _ended_by(signal.SIGINT)
        except Exception as error:  # noqa: BLE001 - `_report` raises an unexpected one again
            if arrived:  # a library turned the signal into its own error
                return _ended_by(arrived[0])
            return _report(error, context, as_json=as_json)
    return int(code)


def _report(error: Exception, context: Context, *, as_json: bool) -> int:
    """Print the error that ended a command and return its exit code. An unexpected error is raised again."""
    if isinstance(error, BrokenPipeError):
        streams.redirect_to_devnull(sys.stdout.fileno())
        return streams.READER_GONE
    known: Optional[EdgepackError] = None
    if isinstance(error, EdgepackError):
        known = error
    # ctypes reports a missing library as an OSError without errno.
    elif isinstance(error, (ImportError, MemoryError)) or (isinstance(error, OSError) and _MISSING.search(str(error))):
        known = _unloadable(context, error)
    elif isinstance(error, OSError):  # most often stdout on a full disk
        streams.redirect_to_devnull(sys.stdout.fileno())
        known = unfit(f"{context.prog} failed", error)
    if as_json:
        unexpected = EdgepackError(f"{context.prog} failed unexpectedly", why=f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):
            print(printable(json.dumps({"error": to_json(known or unexpected)}, ensure_ascii=False)), flush=True)
    if known is None:
        raise error
    print(messages.shown(known), file=sys.stderr)
    return int(known.exit_code)


def _unloadable(context: Context, error: Exception) -> EnvironmentUnfitError:
    """The error for a library that cannot be loaded, or for lack of memory."""
    if isinstance(error, MemoryError):
        return EnvironmentUnfitError(
            f"memory ran out in {context.prog}", why=str(error), fix="stop other programs, or build a smaller model"
        )
    missing = _MISSING.search(str(error))
    fix = "run `verify`; if it is intact, build the bundle for a target that fits this system"
    if missing:
        fix = f"install the system package with {missing.group(1)}"
    first = str(error).strip().splitlines() or [type(error).__name__]
    return EnvironmentUnfitError(
        f"a library that {context.prog} needs cannot be loaded", why=missing.group(0) if missing else first[0], fix=fix
    )


def _error_of(number: int) -> BaseException:
    """What signal `number` raises, so that temporary files are removed."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(signals.exit_code(number))


def _ended_by(number: int) -> int:
    """Exit code of a command that was ended by signal `number`."""
    if number == signal.SIGINT:
        print("interrupted", file=sys.stderr)
    return signals.exit_code(number)


_MODULES = {
    **dict.fromkeys(("predict", "bench", "serve"), "edgepack_runtime.cli.model_commands"),
    **dict.fromkeys(
        (
            "doctor", "verify", "readme", "install", "status", "trust", "rollback", "uninstall", "selftest", "gate",
            "tune", "env",
        ),
        "edgepack_runtime.cli.release_commands",
    ),
}  # fmt: skip
