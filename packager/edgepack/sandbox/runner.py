"""Run a function on graphs that a user brought in a process of its own, which cannot harm the build.

Graphs are programs: they loop, take memory, and crash the library that runs them. The process has limits of memory,
files and time, writes to one folder alone, and ends with the build, as does all that it starts.
`python -m edgepack.sandbox.runner FOLDER` reads its job from a folder in there, and writes progress and result to it
as JSON.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from pydantic import TypeAdapter

from edgepack.errors import EdgepackError, StageFailedError, error_of, to_document
from edgepack.progress import Progress, ProgressReader, ProgressWriter
from edgepack.sandbox.confinement import NOT_CONFINED, SandboxLimits, confine
from edgepack.util.text import mib
from edgepack_runtime.install import release_process
from edgepack_runtime.util import gate_lock
from edgepack_runtime.util.fs import FILE_MODE, FOLDER_MODE, open_regular, read_regular, remove_tree, walk
from edgepack_runtime.util.streams import redirect_to_devnull

T = TypeVar("T")
COMMAND: Final = (sys.executable, "-I", "-m", "edgepack.sandbox.runner")
_LIMITS, _JOB, _PROGRESS, _RESULT, _LOG = "limits.pickle", "job.pickle", "progress.jsonl", "result.json", "process.log"
_POLL_S: Final = 0.05
_LOOK_S: Final = 1.0  # between two looks at the memory, which take some ms
_END_S: Final = 10.0
_STOP_S: Final = 0.1  # until SIGSTOP has stopped a process
_MOST_PROCESSES: Final = 300  # the kernel's own memory for one is in no limit
_MOST_THREADS: Final = 4000  # a library starts one for each core, and a machine has room for some 30,000
_LAST_LINES: Final = 12
_MOST_SAID: Final = 4000  # characters of these lines
_MOST_LOG_BYTES: Final = 1 << 16
_MOST_LOGS: Final = 4  # ours, and what libraries write for a graph each
_TURN_BYTES: Final = 1 << 16  # of progress between two looks at time and memory: 3,000 steps of a bar
_MOST_PROGRESS_BYTES: Final = 1 << 26  # of a job: three million steps of a bar
_MOST_LEVELS: Final = 20  # of folders that it leaves
_MOST_LEFT_FILES: Final = 10_000  # that a job leaves: those of a model folder are some tens
# Memory in /proc/PID/status that is no file: also what was swapped out, and the tables of pages.
_MEMORY: Final = (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE")
# What Python, the C++ library, ONNX Runtime and Paddle say when memory is refused.
_NO_MEMORY: Final = ("MemoryError", "bad_alloc", "bad allocation", "allocate", "Fail to alloc", "ResourceExhausted")
_VARIABLES: Final = frozenset(
    ["PATH", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "TZ", "XDG_RUNTIME_DIR", gate_lock.VARIABLE]
)
_PREFIXES: Final = (
    "LC_",
    "PYTHON",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "CUDA_",
    "NVIDIA_",
    "FLAGS_",
    "ORT_",
    "XDG_CACHE",
)
_LARGE_FILE: Final = os.strerror(errno.EFBIG)
_SUSPECT: Final = "if the model is a small one, do not trust it: its graph may have been made for this"


def run(
    job: Callable[..., T],
    returns: type[T],
    folder: Path,
    progress: Progress,
    *,
    stage: str,
    reads: Sequence[Path] | None = None,
    leaves: Collection[str] = (),
    limits: SandboxLimits | None = None,
) -> T:
    """Call `job(progress=...)` in a confined process.

    Args:
        job: a function of a module, or a `functools.partial` of one.
        returns: what it returns: a dataclass of JSON values and paths.
        folder: the only folder that it may write. It is made for this job alone and must not exist: what the job puts
            into it could have a name that the build uses later.
        stage: begins messages.
        reads: files and folders that it may read, besides Python, its packages and the system's libraries; None:
            everything, for a job that runs the user's own Python.
        leaves: the files that remain in `folder`, all of them and no others. Without any, and after an
            error, the folder is removed.
        limits: those of this machine by default.

    Raises:
        EdgepackError, OSError: what the job raised.
        FileExistsError: `folder` exists.
        StageFailedError: it exceeded a limit, or its process ended without a result.
    """
    limits = limits or SandboxLimits.here(folder.parent)
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        stack.callback(remove_tree, folder)
        scratch = Path(tempfile.mkdtemp(prefix=".sandbox-", dir=folder)).resolve()
        confinement = (limits, folder.resolve(), None if reads is None else [path.resolve() for path in reads])
        (scratch / _LIMITS).write_bytes(pickle.dumps(confinement))
        (scratch / _JOB).write_bytes(pickle.dumps(job))
        code = _watched(scratch, progress, limits, stage)
        found = _result(scratch, returns, code, limits, stage)
        remove_tree(scratch)
        _require_plain(folder, limits, stage)
        _require_inside(found, folder, stage)
        _require_left(folder, leaves, stage)
        if leaves:
            stack.pop_all()
    return found


def _watched(scratch: Path, progress: Progress, limits: SandboxLimits, stage: str) -> int:
    """Run the process to its end and return its exit code. Whatever ends this ends the process."""
    with (scratch / _LOG).open("wb") as log, ExitStack() as bars:
        process = subprocess.Popen(
            [*COMMAND, str(scratch)],
            env={**_variables(), "TMPDIR": str(scratch), "HOME": str(scratch)},
            stdin=subprocess.PIPE,  # closes with the build, however that ends
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the build alone, and all that the process starts can be ended
            preexec_fn=release_process.die_with_parent(),
        )
        reader = ProgressReader(scratch / _PROGRESS, progress, bars, _MOST_PROGRESS_BYTES)
        heard = looked = time.monotonic()
        try:
            while _runs(process):
                if limits.memory_bytes is not None and time.monotonic() - looked > _LOOK_S:
                    looked = time.monotonic()
                    used = _use(process.pid)
                    if used.memory_bytes > limits.memory_bytes:
                        raise _too_much_memory(limits, stage, "its processes together took more")
                    if used.threads > _MOST_THREADS or used.processes > _MOST_PROCESSES:
                        most = f"{_MOST_PROCESSES} processes or {_MOST_THREADS} threads"
                        raise StageFailedError(
                            f"{stage}: the model was stopped: it runs more than {most}", fix=_SUSPECT
                        )
                if _heard(reader, stage):
                    heard = time.monotonic()
                elif time.monotonic() - heard > limits.silence_s:
                    raise StageFailedError(
                        f"{stage}: the model was stopped: no progress within {limits.silence_s:g} s",
                        fix=f"try the graph alone, on one input; {_SUSPECT}",
                    )
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a graph in a loop hears no other signal
            process.wait()
            # What is in a system call finishes it.
            _wait_until(lambda: not any(member.runs for member in _members(process.pid)), _END_S)
            assert process.stdin is not None
            process.stdin.close()
        while _heard(reader, stage):  # the rest: nobody writes any more
            pass
        return process.returncode


class _Use(NamedTuple):
    """What a group of processes uses; `is_whole` unless one began or ended meanwhile: it may have another's memory.

    The limit of `RLIMIT_DATA` is of each process, and knows no shared memory and no stack that `mremap` enlarged.
    """

    memory_bytes: int
    processes: int
    threads: int
    is_whole: bool


def _use(group: int) -> _Use:
    """Use of a group: its memory that is no file, and its threads."""
    found = _look(group)
    if found.is_whole:
        return found
    with contextlib.suppress(ProcessLookupError):  # they have ended
        os.killpg(group, signal.SIGSTOP)
        try:
            _wait_until(lambda: all(map(_is_stopped, _members(group))), _STOP_S)
            found = _look(group)
        finally:
            os.killpg(group, signal.SIGCONT)
    return found


def _look(group: int) -> _Use:
    memory, threads, is_whole = 0, 0, True
    members = list(_members(group))
    for member in members:
        threads += member.threads
        if not member.runs:
            is_whole = False
            continue
        try:
            # Of a thread that lives: the first one may have ended before the others.
            statuses = ((task / "status").read_bytes() for task in (member.folder / "task").iterdir())
            status = next(one for one in statuses if b"RssAnon" in one)
        except (OSError, StopIteration):
            is_whole = False
            continue
        # By line: a process chooses its name, which has a line to itself, with its line breaks escaped.
        lines = (line.partition(b":") for line in status.split(b"\n"))
        memory += sum(int(value.split()[0]) for key, _, value in lines if key in _MEMORY)
    known = {member.folder for member in members}
    is_whole = is_whole and all(member.folder in known for member in _members(group))
    return _Use(1024 * memory, sum(member.state != b"" for member in members), threads, is_whole)


def _is_stopped(member: _Member) -> bool:
    """Whether no thread of a process goes on: the first one may wait for a child while others run."""
    with contextlib.suppress(OSError, IndexError):  # it has ended
        stats = ((task / "stat").read_bytes() for task in (member.folder / "task").iterdir())
        return all(stat.rpartition(b")")[2].split()[0] in (b"T", b"t", b"Z", b"X") for stat in stats)
    return True


class _Member(NamedTuple):
    """A process in /proc, with fields of its `stat`; without a state if it is gone."""

    folder: Path
    state: bytes
    threads: int

    @property
    def runs(self) -> bool:
        return self.state not in (b"", b"Z", b"X") or self.threads > 1


def _members(group: int) -> Iterator[_Member]:
    """The processes of a group, and those that have gone since they were listed, which may have been of it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()  # after the name
            state, its_group, threads = fields[0], fields[2], int(fields[17])
        except (OSError, ValueError, IndexError):
            yield _Member(process, b"", 0)
            continue
        if int(its_group) == group:
            yield _Member(process, state, threads)


def _wait_until(condition: Callable[[], bool], most_s: float) -> None:
    end = time.monotonic() + most_s
    while not condition() and time.monotonic() < end:
        time.sleep(min(_POLL_S, most_s / 10))


def _variables() -> dict[str, str]:
    """The variables that programs and libraries are configured by; others may hold secrets of the user."""
    return {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith(_PREFIXES)}


def _runs(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _heard(reader: ProgressReader, stage: str) -> bool:
    try:
        return reader.catch_up(_TURN_BYTES) > 0
    except (OSError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise StageFailedError(f"{stage}: the process of the model wrote no progress", why=str(error)) from error


def _result(scratch: Path, returns: type[T], code: int, limits: SandboxLimits, stage: str) -> T:
    """What the process returned."""
    try:
        document = json.loads(read_regular(scratch / _RESULT))
        if "error" not in document:
            return TypeAdapter(returns).validate_python(document["result"])
        error = error_of(document["error"])
    except FileNotFoundError:
        raise _ended(scratch, code, limits, stage) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as unreadable:
        raise StageFailedError(
            f"{stage}: the process of the model wrote no result", why=str(unreadable)
        ) from unreadable
    raise _exceeded(error.why if isinstance(error, EdgepackError) else str(error), limits, stage) or error


def _ended(scratch: Path, code: int, limits: SandboxLimits, stage: str) -> StageFailedError:
    """The error for a process that ended without a result: Paddle and others end theirs for some graphs."""
    with os.scandir(scratch) as entries:
        of_libraries = (Path(entry) for entry in entries if entry.name.endswith(".log") and entry.name != _LOG)
        logs = b"".join(map(_last_bytes, itertools.islice(itertools.chain([scratch / _LOG], of_libraries), _MOST_LOGS)))
    lines = logs.decode("utf-8", "replace").splitlines()
    said = "\n".join([line for line in lines if line.strip()][-_LAST_LINES:])[-_MOST_SAID:]
    fix = f"export the model again, with other versions or as .onnx; {_SUSPECT}"
    killed = release_process.killed_error("process of the model", code) if code < 0 else None
    what = killed.what if killed is not None else f"a library ended the process of the model (exit code {code})"
    why = said or (killed.why if killed is not None else "it printed nothing")
    return _exceeded(said, limits, stage) or StageFailedError(f"{stage}: {what}", why=why, fix=fix)


def _last_bytes(log: Path) -> bytes:
    """The end of a log; nothing of a link, which may lead to a file of the user, or of what is no file."""
    if log.is_symlink():
        return b""
    try:
        with open_regular(log) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _MOST_LOG_BYTES))
            return stream.read(_MOST_LOG_BYTES)
    except OSError:
        return b""


def _exceeded(why: str, limits: SandboxLimits, stage: str) -> StageFailedError | None:
    """The error of a process that a limit stopped; None if `why` speaks of none."""
    if _LARGE_FILE in why:
        return StageFailedError(
            f"{stage}: the model was refused a file of more than {mib(limits.file_bytes)}",
            why=why,
            fix=f"free space on the disk: half of what is free is allowed; {_SUSPECT}",
        )
    if not any(words in why for words in _NO_MEMORY):
        return None
    return _too_much_memory(limits, stage, why)


def _too_much_memory(limits: SandboxLimits, stage: str, why: str) -> StageFailedError:
    allowed = "there is" if limits.memory_bytes is None else mib(limits.memory_bytes)
    return StageFailedError(
        f"{stage}: the model was refused more memory than {allowed}",
        why=why,
        fix=f"stop other programs, or build on a machine with more memory; {_SUSPECT}",
    )


def _require_plain(folder: Path, limits: SandboxLimits, stage: str) -> None:
    """What a bundle will carry are files: a link would put another file of the user into it.

    And they are no more than the disk had room for: a sparse file takes none of it, and all of it is read.
    """
    most_bytes, left_bytes = 2 * limits.file_bytes, 0
    try:
        for number, (path, kind) in enumerate(walk(folder)):
            if kind not in ("file", "folder"):
                raise StageFailedError(f"{stage}: the process of the model left a {kind}, {path}", fix=_SUSPECT)
            if path.count("/") >= _MOST_LEVELS:
                raise StageFailedError(
                    f"{stage}: the process of the model left folders of more than {_MOST_LEVELS} levels", fix=_SUSPECT
                )
            descriptor = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fchmod(descriptor, FOLDER_MODE if kind == "folder" else FILE_MODE)  # it cannot do so itself
                left_bytes += os.fstat(descriptor).st_size if kind == "file" else 0
            finally:
                os.close(descriptor)
            if number >= _MOST_LEFT_FILES or left_bytes > most_bytes:
                raise StageFailedError(
                    f"{stage}: the process of the model left more than {_MOST_LEFT_FILES} files or {mib(most_bytes)}",
                    fix=_SUSPECT,
                )
    except (OSError, RecursionError) as error:
        what = f"{stage}: what the process of the model left cannot be read"
        raise StageFailedError(what, why=str(error)[:500], fix=_SUSPECT) from error


def _require_left(folder: Path, leaves: Collection[str], stage: str) -> None:
    """Nothing has a place there that it was not asked for: what is copied or listed later is the build's own."""
    wanted = {str(path) for leaf in map(PurePosixPath, leaves) for path in (leaf, *leaf.parents)} - {"."}
    left = {path for path, _ in walk(folder)}
    for path in sorted(left ^ wanted):
        verb = "left" if path in left else "did not write"
        raise StageFailedError(f"{stage}: the process of the model {verb} {path[:200]!r}", fix=_SUSPECT)


def _require_inside(found: Any, folder: Path, stage: str) -> None:
    """What the process returned may name files of its folder alone: it may be taken over, and the build may not."""
    pending: list[Any] = [found]
    while pending:
        value = pending.pop()
        if is_dataclass(value):
            pending += vars(value).values()
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, (list, tuple)):
            pending += value
        elif isinstance(value, Path) and not value.resolve().is_relative_to(folder.resolve()):
            raise StageFailedError(
                f"{stage}: the process of the model returned {value}, outside its folder", fix=_SUSPECT
            )


def main() -> NoReturn:
    """Entry point of the process: confine it, call the job, write the result or the error."""
    scratch = Path(sys.argv[1])
    progress = ProgressWriter(scratch / _PROGRESS)
    returned: dict[str, Any]
    _end_with_build()
    try:
        if not confine(*pickle.loads((scratch / _LIMITS).read_bytes())):  # noqa: S301 - the build wrote it
            progress.line(NOT_CONFINED)
        result = pickle.loads((scratch / _JOB).read_bytes())(progress=progress)  # noqa: S301
        returned = {"result": TypeAdapter(type(result)).dump_python(result, mode="json")}
    except Exception as error:  # noqa: BLE001 - whatever it is, the build reports it
        returned = {"error": to_document(error, "the model was not processed")}
    (scratch / _RESULT).write_text(json.dumps(returned), encoding="utf-8")
    os._exit(0)  # without what libraries do at the end of a process: some of them crash there


def _end_with_build() -> None:
    """Start a process that ends all others when the build ends: the kernel does so for the first alone (prctl 2).

    It is not confined, and leads another group: they cannot signal it. In their session, it keeps the number of
    their group from any other.
    """
    if os.fork() == 0:
        os.setpgid(0, 0)
        redirect_to_devnull(1, 2)  # a log that is held open cannot be removed on NFS
        os.read(0, 1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getsid(0), signal.SIGKILL)
        os._exit(0)
    redirect_to_devnull(0)


if __name__ == "__main__":
    main()
