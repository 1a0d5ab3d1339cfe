"""Jobs for the sandbox, which imports this module in its process."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.progress import Progress
from edgepack.sandbox import seccomp
from edgepack_runtime.install.release_process import die_with_parent
from edgepack_runtime.util import fs


def echo(value: Any, progress: Progress) -> Any:
    return value


def fail(error: Exception, progress: Progress) -> dict[str, Any]:
    raise error


def speak(progress: Progress) -> dict[str, Any]:
    progress.line("hello")
    with progress.task("bar", 2) as task:
        task.advance(2)
    return {}


def touch(paths: list[Path], progress: Progress) -> dict[str, str]:
    return tried(paths, lambda path: path.write_text("x", encoding="ascii") and "")


def read(paths: list[Path], progress: Progress) -> dict[str, str]:
    return tried(paths, lambda path: path.read_text(encoding="ascii"))


def tried(paths: list[Path], do: Any) -> dict[str, str]:
    found = {}
    for path in paths:
        try:
            found[str(path)] = do(path) or ""
        except OSError as error:
            found[str(path)] = str(error.errno)
    return found


def connect(port: int, progress: Progress) -> dict[str, Any]:
    try:
        with socket.socket() as client:
            return {"errno": client.connect_ex(("127.0.0.1", port))}
    except OSError as error:
        return {"errno": error.errno}


def open_socket(family: int, progress: Progress) -> dict[str, Any]:
    try:
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_DGRAM).close()
    except OSError as error:
        return {"errno": error.errno}
    return {"errno": 0}


def limit(pid: int, progress: Progress) -> dict[str, Any]:
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (10, 10))
    except OSError as error:
        return {"errno": error.errno}
    return {"errno": 0}


def change(path: Path, progress: Progress) -> dict[str, Any]:
    """What changes a file that may only be read, and another process; the numbers of errors."""

    def mode_of_an_open_file(path: Path) -> None:
        with path.open("rb") as stream:
            os.fchmod(stream.fileno(), 0)

    changes: dict[str, Any] = {
        "mode": lambda path: path.chmod(0),
        "mode of an open file": mode_of_an_open_file,
        "owner": lambda path: os.chown(path, 1, 1),
        "times": lambda path: os.utime(path, (0, 0)),
        "attribute": lambda path: os.setxattr(path, "user.x", b"x"),
        "priority": lambda path: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        "environment": lambda path: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    }
    return {name: tried([path], do)[str(path)] for name, do in changes.items()}


def meet_others(pid: int, progress: Progress) -> dict[str, Any]:
    """Memory and queues that all programs of a user share, namespaces, and a signal: the numbers of errors."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = seccomp.calls()

    def called(name: str, *arguments: int) -> int:
        return ctypes.get_errno() if libc.syscall(calls[name], *arguments) < 0 else 0

    new_user = 0x10000000  # CLONE_NEWUSER
    return {
        "memory": called("shmget", 0x56A7, 4096, 0o1600),
        "semaphores": called("semget", 0x56A7, 1, 0o1600),
        "queue": called("msgget", 0x56A7, 0o1600),
        "namespace": called("clone", new_user | signal.SIGCHLD, 0, 0, 0, 0),
        "unbounded memory": called("memfd_create", 0, 0),
        "signal": called("kill", pid, signal.SIGTERM),
        "signal to all": called("kill", -1, 0),
        "signal to itself": called("kill", os.getpid(), 0),
        "owner of a pipe": called("fcntl", os.pipe()[0], fcntl.F_SETOWN, pid),
    }


def share_memory(size: int, progress: Progress) -> dict[str, Any]:
    with mmap.mmap(-1, size) as found:
        return {"size": len(found)}


def take_memory_together(size: int, progress: Progress) -> dict[str, Any]:
    for _ in range(3):
        if os.fork() == 0:
            kept = b"\1" * size
            time.sleep(60)
            os._exit(len(kept) & 1)
    time.sleep(60)
    return {}


def replace(path: Path, progress: Progress) -> dict[str, Any]:
    fs.write_atomic(path, b"x", mode=0o600)
    shutil.copy2(path, path.with_suffix(".copy"))
    path.chmod(0o755)
    return {}


def variables(progress: Progress) -> dict[str, Any]:
    return dict(os.environ)


def forge(raw: bytes, progress: Progress) -> dict[str, Any]:
    Path(sys.argv[1], "result.json").write_bytes(raw)
    os._exit(0)


@dataclass(frozen=True)
class Answer:
    """As an artifact: it names files."""

    folder: Path
    others: tuple[dict[str, Path], ...] = ()


def name_files(folder: Path, other: Path, progress: Progress) -> Answer:
    return Answer(folder, ({"x": other},))


def link_log(target: Path, progress: Progress) -> dict[str, Any]:
    Path(sys.argv[1], "x.log").symlink_to(target)
    os._exit(255)


def link(target: str, path: Path, progress: Progress) -> dict[str, Any]:
    path.symlink_to(target)
    return {}


def take_memory(how: str, size: int, progress: Progress) -> dict[str, Any]:
    return {"size": len(bytearray(size)) if how == "python" else int(np.ones(size, np.uint8).sum())}


def write(path: Path, size: int, progress: Progress) -> dict[str, Any]:
    path.write_bytes(bytes(size))
    return {}


def hang(progress: Progress) -> dict[str, Any]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def hang_with_child(folder: Path, progress: Progress) -> dict[str, Any]:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=die_with_parent(), stdin=subprocess.DEVNULL
    )
    (folder / "pids").write_text(f"{os.getpid()} {child.pid}", encoding="ascii")
    return hang(progress)


def end(number: int, progress: Progress) -> dict[str, Any]:
    os.write(1, b"last words\n")
    if number > 0:
        ctypes.CDLL(None)._exit(number)  # as a library in C++ does
    os.kill(os.getpid(), -number)
    return {}


def plant_pipe(progress: Progress) -> dict[str, Any]:
    [scratch] = {Path(os.environ["TMPDIR"])}
    (scratch / "other").write_text("x", encoding="ascii")
    (scratch / "progress.jsonl").unlink(missing_ok=True)
    (scratch / "progress.jsonl").symlink_to("/dev/zero")
    return hang(progress)


def leave_child(folder: Path, progress: Progress) -> dict[str, Any]:
    """A child in a session of its own, and one in a group of its own."""
    line = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = [subprocess.Popen(line, start_new_session=True), subprocess.Popen(line, preexec_fn=os.setpgrp)]
    return {"pids": [child.pid for child in children]}


def infer(graph: Path, progress: Progress) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return {"y": session.run(None, {"x": np.ones((1, 4), np.float32)})[0].tolist()}


def open_in_paddle(graph: Path, progress: Progress) -> dict[str, Any]:
    from edgepack.training import environment
    from edgepack.training.models import paddle_graph

    environment.start(progress, training=False)
    x = np.ones((1, 4), np.float32)
    return {"shape": list(paddle_graph.outputs(graph, graph.with_suffix(".pdiparams"), {"x": x})[0].shape)}
