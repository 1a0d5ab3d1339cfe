"""Jobs for the sandbox, which imports this module in its process."""

from __future__ import annotations

import array
import ctypes
import fcntl
import mmap
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.progress import Progress
from edgepack.sandbox import seccomp
from edgepack.util import process
from edgepack_runtime.install.release_process import die_with_parent
from edgepack_runtime.util import fs

# Calls that nothing in the sandbox needs, by their numbers on x86-64 and on aarch64.
_MISSING = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "memfd_create": (319, 279),
    "splice": (275, 76),
    "vmsplice": (278, 75),
    "sendfile": (40, 71),
    "openat2": (437, 437),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
}


def numbers() -> dict[str, int]:
    which = ["x86_64", "aarch64"].index(platform.machine())
    return {**seccomp.calls(), **{name: pair[which] for name, pair in _MISSING.items()}}


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


def plant(paths: list[Path], progress: Progress) -> dict[str, Any]:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("planted", encoding="ascii")
    return {}


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

    def set_flags(path: Path) -> None:
        with path.open("rb") as stream:
            fcntl.ioctl(stream, 0x40086602, array.array("l", [0x40]))  # FS_IOC_SETFLAGS: not for dump

    def set_flags_by_path(path: Path) -> None:
        require(call(469, -100, os.fsencode(path), struct.pack("=QIIII", 0x80, 0, 0, 0, 0), 24, 0))  # file_setattr

    changes: dict[str, Any] = {
        "mode": lambda path: path.chmod(0),
        "mode of an open file": mode_of_an_open_file,
        "owner": lambda path: os.chown(path, 1, 1),
        "times": lambda path: os.utime(path, (0, 0)),
        "attribute": lambda path: os.setxattr(path, "user.x", b"x"),
        "priority": lambda path: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19),
        "environment": lambda path: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "flags": set_flags,
        "flags by path": set_flags_by_path,
    }
    return {name: tried([path], do)[str(path)] for name, do in changes.items()}


def call(number: int, *arguments: Any) -> int:
    """The number of the error of a system call, 0 if it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.syscall(number, *arguments) < 0 else 0


def require(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


def shorten(paths: list[Path], progress: Progress) -> dict[str, str]:
    """Truncate files, each in another way; the numbers of errors, empty if it works."""
    calls = numbers()
    how = struct.pack("=QQQ", os.O_TRUNC | 3, 0, 0)
    ways: list[Any] = [
        lambda path: os.truncate(path, 0),
        lambda path: os.close(os.open(path, os.O_RDONLY | os.O_TRUNC)),
        lambda path: os.close(os.open(path, 3 | os.O_TRUNC)),
        lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
        lambda path: require(call(calls["open"], os.fsencode(path), os.O_TRUNC, 0)),
        lambda path: require(call(calls["openat2"], -100, os.fsencode(path), how, len(how))),
    ]
    return {path.name: tried([path], way)[str(path)] for path, way in zip(paths, ways, strict=True)}


def use_files(folder: Path, progress: Progress) -> dict[str, Any]:
    """What programs do with their own files."""
    (folder / "a").write_text("long", encoding="ascii")
    (folder / "a").write_text("s", encoding="ascii")
    with (folder / "a").open("r+b") as stream:
        stream.truncate(0)
        stream.write(b"new")
    shutil.copy2(folder / "a", folder / "b")
    return {"b": (folder / "b").read_text(encoding="ascii")}


def end_children(progress: Progress) -> dict[str, Any]:
    """A child that hears no signal but SIGKILL, and would run for minutes."""
    line = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
    with process.ended_with_block(line, stdout=None, stderr=None) as child:
        pass
    return {"code": child.returncode}


def answer_examples(model: Path, examples: Any, timeout_s: float, progress: Progress) -> dict[str, Any]:
    """The answers of a handler, which has a process of its own."""
    from edgepack.export import handler_answers

    [found] = handler_answers.answer([model], examples, None, "answers", progress, timeout_s=timeout_s)
    return {"answers": found.answers}


def take_uncounted_memory(progress: Progress) -> dict[str, int]:
    """Memory that no limit of a process counts: the numbers of errors."""
    calls = numbers()
    grows = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100  # MAP_GROWSDOWN
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    given = libc.mmap(None, 2**31, mmap.PROT_READ | mmap.PROT_WRITE, grows, -1, 0)
    found = {"growing": ctypes.get_errno() if given == ctypes.c_void_p(-1).value else 0}
    pair = (ctypes.c_int * 2)()
    found["sockets"] = call(calls["socketpair"], socket.AF_UNIX, socket.SOCK_STREAM, 0, pair)
    found["secret"] = call(calls["memfd_secret"], 0)
    found["rules"] = call(calls["landlock_create_ruleset"], None, 0, 1)  # asks for the version
    page, ends = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), os.pipe()
    vector = struct.pack("PN", ctypes.addressof(ctypes.c_char.from_buffer(page)), 4096)
    found["spliced"] = call(calls["vmsplice"], ends[1], vector, 1, 0)
    with Path("/proc/self/exe").open("rb") as stream:
        found["spliced from a file"] = call(calls["splice"], stream.fileno(), None, ends[1], None, 4096, 0)
        found["sent from a file"] = call(calls["sendfile"], ends[1], stream.fileno(), None, 4096)
    with Path(os.environ["TMPDIR"], "locked").open("wb") as stream:
        for name, lock in (("lock", fcntl.lockf), ("lock of the file", fcntl.flock)):
            try:
                lock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found[name] = 0
            except OSError as error:
                found[name] = error.errno or 0
    found["watches"] = call({"x86_64": 291, "aarch64": 20}[platform.machine()], 0)  # epoll_create1
    found["hash table of futexes"] = call(calls["prctl"], 78, 1, 2**16, 0, 0)
    opened: list[int] = []
    try:
        while len(opened) < 2000:
            opened += os.pipe()
    except OSError as error:
        found["pipes"] = error.errno or 0
    for descriptor in opened:
        os.close(descriptor)
    return found


def queue_signals(progress: Progress) -> dict[str, int]:
    """How many signals of a kind that queues wait for this process: of more, the kernel keeps only that they came."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    for _ in range(1000):
        os.kill(os.getpid(), signal.SIGRTMIN)
    waited = 0
    while signal.sigtimedwait([signal.SIGRTMIN], 0) is not None:
        waited += 1
    return {"waited": waited}


def control(path: Path, commands: dict[str, tuple[int, int]], progress: Progress) -> dict[str, int]:
    """The errors of commands of fcntl with an argument each, on a file that may be read."""
    found = {}
    with path.open("rb") as stream:
        for name, (command, argument) in commands.items():
            try:
                fcntl.fcntl(stream, command, argument)
                found[name] = 0
            except OSError as error:
                found[name] = error.errno or 0
    return found


def open_to_read(paths: list[str], progress: Progress) -> dict[str, str]:
    return tried([Path(path) for path in paths], lambda path: os.close(os.open(path, os.O_RDONLY | os.O_NOCTTY)))


def call_what_is_not_listed(progress: Progress) -> dict[str, int]:
    """The errors of all calls that the sandbox's list does not have; without arguments, they would do little."""
    listed = set(seccomp.calls().values()) | {335, 336}  # uretprobe and uprobe, which no filter sees
    return {str(number): call(number, *[0] * 6) for number in range(1024) if number not in listed}


def rename_and_take_memory_together(name: bytes, size: int, progress: Progress) -> dict[str, Any]:
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME; children inherit it
    return take_memory_together(size, progress)


def flood(line: bytes, progress: Progress) -> dict[str, Any]:
    """Write progress, as fast as can be, beside processes that take memory."""
    if os.fork() == 0:
        with Path(sys.argv[1], "progress.jsonl").open("ab", buffering=0) as stream:
            while True:
                stream.write(line * 4000)
    return take_memory_together(120 * 2**20, progress)


def leave_files(folder: Path, number: int, size: int, progress: Progress) -> dict[str, Any]:
    for index in range(number):
        with (folder / f"{index}").open("wb") as stream:
            stream.truncate(size)
    return {}


def leave_logs(number: int, progress: Progress) -> dict[str, Any]:
    for index in range(number):
        Path(sys.argv[1], f"{index}.log").write_bytes(b"x" * 2**16)
    os.write(1, b"last words\n")
    os._exit(255)


def meet_others(pid: int, progress: Progress) -> dict[str, Any]:
    """Memory and queues that all programs of a user share, namespaces, and a signal: the numbers of errors."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = numbers()

    def called(name: str, *arguments: int) -> int:
        return ctypes.get_errno() if libc.syscall(calls[name], *arguments) < 0 else 0

    new_user, of_the_build = 0x10000000, 0x8000  # CLONE_NEWUSER, CLONE_PARENT
    return {
        "memory": called("shmget", 0x56A7, 4096, 0o1600),
        "semaphores": called("semget", 0x56A7, 1, 0o1600),
        "queue": called("msgget", 0x56A7, 0o1600),
        "namespace": called("clone", new_user | signal.SIGCHLD, 0, 0, 0, 0),
        "child of the build": called("clone", of_the_build | signal.SIGCHLD, 0, 0, 0, 0),
        "unbounded memory": called("memfd_create", 0, 0),
        "signal": called("kill", pid, signal.SIGTERM),
        "signal to all": called("kill", -1, 0),
        "signal to itself": called("kill", os.getpid(), 0),
        "owner of a pipe": called("fcntl", os.pipe()[0], fcntl.F_SETOWN, pid),
    }


def share_memory(size: int, progress: Progress) -> dict[str, Any]:
    with mmap.mmap(-1, size) as found:
        return {"size": len(found)}


def end_first_threads_and_take_memory_together(size: int, progress: Progress) -> dict[str, Any]:
    """Processes of which /proc says that they have ended: a thread of each lives on."""

    def hold() -> None:
        time.sleep(0.3)
        kept = b"\1" * size
        time.sleep(60)
        os._exit(len(kept) & 1)

    for _ in range(3):
        if os.fork() == 0:
            threading.Thread(target=hold).start()
            call({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit: of this thread alone
    time.sleep(60)
    return {}


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


def nest_folders(levels: int, progress: Progress) -> dict[str, Any]:
    os.chdir(os.environ["TMPDIR"])
    for _ in range(levels):
        Path("d").mkdir()
        os.chdir("d")
    return {}


def nest_folders_in(folder: Path, levels: int, progress: Progress) -> dict[str, Any]:
    """Folders in each other, beside files with names that a removal could want."""
    for number in range(2000):
        (folder / f".{os.getppid()}-{number}").touch()
    os.chdir(folder)
    for _ in range(levels):
        Path("d").mkdir()
        os.chdir("d")
    return {}


def start_threads(number: int, progress: Progress) -> dict[str, Any]:
    for _ in range(number):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)
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
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
    (folder / "pids").write_text(f"{os.getpid()} {child.pid} {other.pid}", encoding="ascii")
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
