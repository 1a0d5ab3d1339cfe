"""Stops a program, and all processes it starts, right before each system call that changes a folder (Linux, x86-64).

The calls are real ones: a seccomp filter picks out those that write, create, rename, remove, or make durable, and
ptrace stops the process before the kernel carries them out. There it can be killed with all its processes (SIGKILL),
or be told that the call failed. Calls on anything outside the folder (pipes, terminals, other files) are let through
uncounted: what lies on the disk is the same before and after them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Number on x86-64, and what the arguments are: f a descriptor, p a path, d a folder's descriptor and a path, . others.
_CALLS: Final = {
    "write": (1, "f.."),
    "pwrite64": (18, "f..."),
    "writev": (20, "f.."),
    "sendfile": (40, "f..."),
    "copy_file_range": (326, "..f..."),
    "fsync": (74, "f"),
    "fdatasync": (75, "f"),
    "truncate": (76, "p."),
    "ftruncate": (77, "f."),
    "fallocate": (285, "f..."),
    "open": (2, "p.."),
    "openat": (257, "d.."),
    "mkdir": (83, "p."),
    "mkdirat": (258, "d."),
    "rmdir": (84, "p"),
    "unlink": (87, "p"),
    "unlinkat": (263, "d."),
    "rename": (82, "pp"),
    "renameat": (264, "dd"),
    "renameat2": (316, "dd."),
    "link": (86, "pp"),
    "linkat": (265, "dd."),
    "symlink": (88, ".p"),
    "symlinkat": (266, ".d"),
    "chmod": (90, "p."),
    "fchmod": (91, "f."),
    "fchmodat": (268, "d.."),
    "fchmodat2": (452, "d..."),
    "chown": (92, "p.."),
    "fchown": (93, "f.."),
    "fchownat": (260, "d..."),
    "utimensat": (280, "d..."),
}
_NAMES: Final = {number: name for name, (number, _) in _CALLS.items()}
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC  # an `open` with none of these changes nothing
_TRACEME, _CONT, _GETREGS, _SETREGS, _SETOPTIONS = 0, 7, 12, 13, 0x4200
_OPTIONS: Final = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 20  # fork, vfork, clone, exec, seccomp; EXITKILL
_EVENT_SECCOMP: Final = 7
_WALL: Final = 0x40000000
_AT_FDCWD: Final = -100
_RAX, _ORIG_RAX = 10, 15
_ARGUMENTS: Final = (14, 13, 12, 7, 9, 8)  # rdi rsi rdx r10 r8 r9 in user_regs_struct
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER = 22, 38, 2
_RET_TRACE, _RET_ALLOW, _ARCH = 0x7FF00000, 0x7FFF0000, 0xC000003E
KILLED: Final = -signal.SIGKILL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True)
class Call:
    """A system call that is about to be made: its name, arguments, and the paths that it is about, absolute."""

    pid: int
    name: str
    arguments: tuple[int, ...]
    paths: tuple[str, ...]

    def memory(self, address: int, count: int) -> bytes:
        """Bytes of the process that makes the call."""
        return _memory(self.pid, address, count)

    def position(self) -> int:
        """Where in the file its first argument, a descriptor, stands."""
        info = Path(f"/proc/{self.pid}/fdinfo/{self.arguments[0]}").read_text()
        return int(info.split("pos:")[1].split()[0])

    def text(self, index: int) -> str:
        """The argument `index` as a string."""
        return _string(self.pid, self.arguments[index])


class Kill:
    """What to do at a call: kill every process."""


@dataclass(frozen=True)
class Fail:
    """What to do at a call: let it fail with `errno`."""

    errno: int


Decide = Callable[[Call], "Kill | Fail | None"]


def unavailable() -> str | None:
    """Why programs cannot be stopped here; None where they can."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return "system calls are told apart on Linux on x86-64 only"
    seen: list[Call] = []
    with contextlib.suppress(OSError):
        run(lambda: _touch_nothing(), Path("/dev"), seen.append)
        if seen:
            return None
    return "this system does not allow processes to be traced"


def _touch_nothing() -> int:
    os.close(os.open("/dev/null", os.O_WRONLY))
    return 0


def run(program: Callable[[], int], root: Path, decide: Decide) -> int:
    """Run `program` in a child and ask `decide` at each call that changes something below `root`.

    Returns:
        what `program` returned (1 after an exception, which is printed), or minus the signal that ended it.

    Raises:
        OSError: processes cannot be traced here.
    """
    child = os.fork()
    if child == 0:
        _be_traced(program)
    _, status = os.waitpid(child, _WALL)
    if not os.WIFSTOPPED(status):
        raise OSError(errno.EPERM, "processes cannot be traced here")
    _ptrace(_SETOPTIONS, child, 0, _OPTIONS)
    _ptrace(_CONT, child, 0, 0)
    return _follow(child, str(root), decide)


def _follow(child: int, root: str, decide: Decide) -> int:
    alive, ended = {child}, 0
    while alive:
        try:
            pid, status = os.waitpid(-1, _WALL)
        except ChildProcessError:
            break
        if not os.WIFSTOPPED(status):
            alive.discard(pid)
            if pid == child:
                ended = os.waitstatus_to_exitcode(status)
            continue
        hand_on = 0 if pid in alive else signal.SIGSTOP  # what a new process is stopped with is not for it
        alive.add(pid)
        got, event = os.WSTOPSIG(status), status >> 16
        if event == _EVENT_SECCOMP:
            action = _ask(pid, root, decide)
            if isinstance(action, Kill):
                for one in alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)
                continue
        got = 0 if event or got == hand_on else got
        with contextlib.suppress(ProcessLookupError):  # killed by somebody else meanwhile
            _ptrace(_CONT, pid, 0, got)
    return ended


def _ask(pid: int, root: str, decide: Decide) -> Kill | Fail | None:
    registers = (ctypes.c_ulonglong * 27)()
    try:
        _ptrace(_GETREGS, pid, 0, ctypes.addressof(registers))
        call = _call(pid, registers)
    except (ProcessLookupError, FileNotFoundError):
        return None  # killed by somebody else meanwhile
    inside = [path for path in call.paths if path == root or path.startswith(root + "/")]
    action = decide(call) if inside else None
    if isinstance(action, Fail):
        registers[_ORIG_RAX] = 2**64 - 1  # no call at all, and this result
        registers[_RAX] = 2**64 - action.errno
        _ptrace(_SETREGS, pid, 0, ctypes.addressof(registers))
    return action


def _call(pid: int, registers: Any) -> Call:
    name = _NAMES[registers[_ORIG_RAX]]
    arguments = tuple(registers[index] for index in _ARGUMENTS)
    paths: list[str] = []
    position = 0
    for kind in _CALLS[name][1]:
        if kind == "f":
            paths.append(str(Path(f"/proc/{pid}/fd/{arguments[position]}").readlink()))
        elif kind == "p":
            paths.append(_path(pid, _AT_FDCWD, arguments[position]))
        elif kind == "d":
            paths.append(_path(pid, ctypes.c_int(arguments[position] & 0xFFFFFFFF).value, arguments[position + 1]))
            position += 1
        position += 1
    return Call(pid, name, arguments, tuple(paths))


def _path(pid: int, folder: int, address: int) -> str:
    text = _string(pid, address)
    base = Path(f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}").readlink()
    return os.path.normpath(os.path.join(base, text))  # noqa: PTH118 - Path would lose a trailing part that is empty


def _string(pid: int, address: int) -> str:
    found = b""
    while b"\0" not in found:
        page = 4096 - (address + len(found)) % 4096  # never beyond the end of what is mapped
        found += _memory(pid, address + len(found), page)
    return os.fsdecode(found.split(b"\0", 1)[0])


def _memory(pid: int, address: int, count: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - no buffering: addresses are not offsets
        memory.seek(address)
        return memory.read(count) if count else b""


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _be_traced(program: Callable[[], int]) -> None:
    """What the child does: wait for its tracer, put the filter on, run. Never returns."""
    code = 1
    try:
        _ptrace(_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        _filter()
        code = program()
    except BaseException:  # noqa: BLE001 - the child must never go on with its parent's program
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _filter() -> None:
    """Have the kernel stop this process, and all that it starts, at the calls of `_CALLS`."""
    program = _filter_program()
    raw = ctypes.create_string_buffer(b"".join(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    wanted = Program(len(program), ctypes.addressof(raw))
    refused = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if refused or _libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(wanted), 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter can be put on")


def _filter_program() -> list[bytes]:
    """Classic BPF over struct seccomp_data: number at 0, architecture at 4, arguments of 8 bytes from 16."""

    def code(operation: int, value: int, true: int = 0, false: int = 0) -> bytes:
        return struct.pack("HBBI", operation, true, false, value)

    load, equal, any_bit, end = 0x20, 0x15, 0x45, 0x06
    program = [code(load, 4), code(equal, _ARCH, 1, 0), code(end, _RET_ALLOW), code(load, 0)]
    for name, (number, _) in _CALLS.items():
        if name in ("open", "openat"):
            flags = 16 + 8 * (1 if name == "open" else 2)
            program += [code(equal, number, 0, 4), code(load, flags), code(any_bit, _WRITES, 0, 1)]
            program += [code(end, _RET_TRACE), code(end, _RET_ALLOW)]
        else:
            program += [code(equal, number, 0, 1), code(end, _RET_TRACE)]
    return [*program, code(end, _RET_ALLOW)]
