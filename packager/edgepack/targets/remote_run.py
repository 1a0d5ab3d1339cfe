"""Runs a verb on a device, for somebody who reads along (sent there; standard library, Python >= 3.8)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence

from edgepack.targets.remote_input import GoneError, Input
from edgepack_runtime import isolated
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError

MAX_RESULT_BYTES = 4 * 1024 * 1024  # of what a verb prints on its stdout
MAX_LINE_BYTES = 2000
LOOK_S = 0.2
_GRACE_S = 10.0  # after SIGTERM
Tell = Callable[[str], None]


def run(line: Sequence[str], given: Optional[bytes], source: Input, tell: Tell) -> Dict[str, Any]:
    """Run a verb that prints JSON, with what it is `given` as its standard input; `tell` gets its lines as they come.

    It ends when whoever asked is gone.

    Raises:
        EnvironmentUnfitError: it cannot be started.
        StageFailedError: it died, or prints without end.
        GoneError: nobody waits for it any more.
    """
    try:
        process = subprocess.Popen(
            list(line),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=isolated.dies_with_us(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentUnfitError(f"{line[0]} cannot be started", why=str(error)) from error
    assert process.stdout is not None and process.stderr is not None
    result, last = bytearray(), [""] * 8
    readers = [
        threading.Thread(target=_read, args=(process.stdout, result), daemon=True),
        threading.Thread(target=_tell, args=(process.stderr, last, tell), daemon=True),
    ]
    if given is not None:
        readers.append(threading.Thread(target=_write, args=(process.stdin, given), daemon=True))
    for reader in readers:
        reader.start()
    try:
        while process.poll() is None:
            if source.is_over(LOOK_S):
                raise GoneError("the other end closed")
    finally:
        _end(process)
    for reader in readers:
        reader.join(timeout=_GRACE_S)
    if len(result) > MAX_RESULT_BYTES:
        raise StageFailedError(f"the gate printed more than {MAX_RESULT_BYTES} bytes")
    if process.returncode < 0:
        raise isolated.died("gate", process.returncode)
    tail = "\n".join(filter(None, last[-8:]))
    return {"exit_code": process.returncode, "stdout": result.decode("utf-8", "replace"), "tail": tail}


def _read(source: BinaryIO, result: bytearray) -> None:
    for data in iter(lambda: source.read(65536), b""):
        if len(result) <= MAX_RESULT_BYTES:  # the rest is read, so that it can end, and not kept
            result.extend(data)


def _tell(source: BinaryIO, last: List[str], tell: Tell) -> None:
    with contextlib.suppress(GoneError):
        for line in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
            last.append(line.decode("utf-8", "replace").rstrip())
            tell(last[-1])


def _write(sink: BinaryIO, data: bytes) -> None:
    with contextlib.suppress(OSError), sink:  # it may end before it has read all
        sink.write(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process and of those it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # children that outlived it
