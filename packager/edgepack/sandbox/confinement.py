"""What Linux lets a process give up without privileges: memory, files, network. There is no way back.

Landlock (Linux 5.13) restricts the files of a process and of all that it starts; see `man 7 landlock`. A filter of
system calls (seccomp) allows what Python, its libraries and the programs of a shell need, without sockets, other
processes, and changes of a file's owner, mode, times or flags; and without signals and the truncation of files where
Landlock has an older version.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import stat
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import edgepack
import edgepack_runtime
from edgepack.sandbox import seccomp
from edgepack.util import hardware
from edgepack_runtime.device import memory

SILENCE_S: Final = 600.0  # the largest graphs convert within a minute or two
_MEMORY_SHARE: Final = 0.8  # of what is available: the build and other programs need some
_LEAST_MEMORY_BYTES: Final = 2 * 2**30  # Paddle alone has 0.3 GB
_DISK_SHARE: Final = 0.5  # of what is free
_MOST_OPEN_FILES: Final = 256  # what libraries open is some tens; buffers of the kernel belong to no process's memory
_MOST_SIGNALS: Final = 64  # that wait: the kernel's memory, and one limit for all programs of a user

NOT_CONFINED: Final = (
    "warning: this kernel has no Landlock (Linux 5.13) or no seccomp: the model runs with limits of memory and time, "
    "but nothing keeps it from files or the network"
)
# <linux/landlock.h>; the numbers of the system calls are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_SYM = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 12
_MAKE_SPECIAL = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11  # devices, sockets and pipes: allowed nowhere
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE  # rights that a file may have; the others are a folder's
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM
_TCP: Final = 1 << 0 | 1 << 1  # bind and connect, since version 4
_SCOPES: Final = 1 << 0 | 1 << 1  # abstract sockets and signals stay inside
_TRUNCATE_SINCE: Final = 3
_SCOPES_SINCE: Final = 6
# Flags of clone, <linux/sched.h>, each a bit. CLONE_NEW*: whoever makes a namespace has capabilities in it.
# CLONE_PARENT: the child would be the build's, which does not wait for it.
_NO_CLONE: Final = tuple(
    (bit, bit) for bit in (0x8000, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
)
# MAP_SHARED | MAP_ANONYMOUS and MAP_GROWSDOWN, <asm-generic/mman-common.h>: RLIMIT_DATA does not count such memory.
_NOT_COUNTED: Final = ((0x21, 0x21), (0x100, 0x100))
# O_TRUNC with an access mode that lacks the right to write, 0 or 3 (O_ACCMODE), <asm-generic/fcntl.h>. Landlock checks
# the access mode alone before version 3; the kernel truncates as well.
_TRUNCATES: Final = ((0x203, 0x200), (0x203, 0x203))
# Commands of ioctl that ask for facts about a stream, or say how its descriptor behaves: TCGETS, TCGETS2, TIOCGPGRP,
# TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Others change flags of files that may only be read, or choose who
# gets a signal.
_HARMLESS_IOCTL: Final = (0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL and F_DUPFD_CLOEXEC of fcntl. Others take the kernel's memory (locks),
# keep other programs from a file (leases), or choose who gets a signal. <asm-generic/fcntl.h>
_HARMLESS_FCNTL: Final = (0, 1, 2, 3, 4, 1030)
# PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_CAPBSET_READ, PR_SET_NO_NEW_PRIVS,
# PR_GET_NO_NEW_PRIVS, PR_SVE_GET_VL of prctl. Others take the kernel's memory. <linux/prctl.h>
_HARMLESS_PRCTL: Final = (1, 3, 15, 16, 23, 38, 39, 51)
_PR_SET_NO_NEW_PRIVS: Final = 38  # <linux/prctl.h>
_CAPABILITIES_VERSION: Final = 0x20080522  # <linux/capability.h>
_KEPT_CAPABILITIES: Final = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and _READ_SEARCH: root builds in folders of users
_DEVICES: Final = tuple(map(Path, ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")))
# Libraries, and facts about the machine that libraries read. No home, nothing secret.
_SYSTEM: Final = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/proc", "/sys"),
    *map(str, _DEVICES),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)


@dataclass(frozen=True)
class SandboxLimits:
    """What a process may use.

    Attributes:
        memory_bytes: private memory of each process; None: any.
        file_bytes: size of each file that is written.
        silence_s: seconds without progress.
    """

    memory_bytes: int | None
    file_bytes: int
    silence_s: float = SILENCE_S

    @classmethod
    def here(cls, folder: Path) -> SandboxLimits:
        """The limits for this machine now, and the disk of `folder`."""
        usable = memory.usable_bytes()
        most = None if usable is None else max(_LEAST_MEMORY_BYTES, int(_MEMORY_SHARE * usable))
        return cls(most, int(_DISK_SHARE * hardware.free_bytes(folder)))


def confine(limits: SandboxLimits, writes: Path, reads: Sequence[Path] | None) -> bool:
    """Restrict this process, and all that it will start.

    Args:
        writes: the folder that it may write, and read.
        reads: what it may read besides Python, its packages and the system's libraries; None: everything but devices.

    Returns:
        Whether it is kept from other files and the network; without Landlock or seccomp only the limits hold.

    Raises:
        OSError: the kernel refused.
    """
    if limits.memory_bytes is not None:
        # Of private memory: files that are mapped, and address space that is only reserved, do not count.
        _lower(resource.RLIMIT_DATA, limits.memory_bytes)
    with contextlib.suppress(OSError):  # where memory ends all the same, this process ends first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _MOST_OPEN_FILES)
    _lower(resource.RLIMIT_SIGPENDING, _MOST_SIGNALS)
    _drop_capabilities()
    version = _landlock_version()
    _restrict_files(version, writes, _all_but_devices() if reads is None else [*_python(), *map(Path, _SYSTEM), *reads])
    return _restrict_calls(version) and version > 0


def _restrict_calls(version: int) -> bool:
    """Allow the calls of a list, some with some arguments only; others are missing. Return whether the kernel can.

    A list of what is refused would miss the calls of the next kernel: among them were memory that no limit counts,
    ways to other processes, and io_uring, which opens sockets.
    """
    if not seccomp.is_known():
        return False
    calls = seccomp.calls()
    ignored = {**seccomp.calls("Owners, modes, times and attributes of files"), **seccomp.calls("Place of a process")}
    program = [  # of what names a call, the first decides
        *seccomp.only_native(),
        # They succeed and do nothing: whatever copies a file sets its mode, and the caller sets those of the results;
        # what starts a session of its own is ended with the others.
        *(line for number in ignored.values() for line in seccomp.refuse_call(number, 0)),
        # What is sent into a pair of sockets is counted nowhere.
        *(line for number in seccomp.calls("Network").values() for line in seccomp.refuse_call(number, errno.EACCES)),
        # prlimit64 of another process; 0 is the own one.
        *seccomp.refuse_call(calls["prlimit64"], errno.EPERM, unless=[0]),
        *seccomp.refuse_call(calls["ioctl"], errno.ENOTTY, unless=_HARMLESS_IOCTL, of_argument=1),
        *seccomp.refuse_flags(calls["clone"], errno.EPERM, 0, _NO_CLONE),
        *seccomp.refuse_flags(calls["mmap"], errno.ENOMEM, 3, _NOT_COUNTED),
        *seccomp.refuse_call(calls["fcntl"], errno.EPERM, unless=_HARMLESS_FCNTL, of_argument=1),
        *seccomp.refuse_call(calls["prctl"], errno.EINVAL, unless=_HARMLESS_PRCTL),
        *(_no_truncation(calls) if version < _TRUNCATE_SINCE else ()),
        *(_own_signals(calls) if version < _SCOPES_SINCE else ()),
        *(line for number in calls.values() for line in seccomp.call(number, [seccomp.ALLOW])),
        seccomp.refuse(errno.ENOSYS),
    ]
    try:
        seccomp.load(program)
    except OSError:
        return False
    return True


def _no_truncation(calls: Mapping[str, int]) -> Iterable[seccomp.Instruction]:
    """Landlock before version 3: truncate only by a descriptor that may write."""
    yield from seccomp.refuse_call(calls["truncate"], errno.EACCES)
    for name, index in (("open", 1), ("openat", 2)):
        if name in calls:
            yield from seccomp.refuse_flags(calls[name], errno.EACCES, index, _TRUNCATES)


def _own_signals(calls: Mapping[str, int]) -> Iterable[seccomp.Instruction]:
    """Landlock without scopes: a process signals itself and its group alone, not what it starts, either."""
    for name in ("kill", "tkill", "tgkill"):
        yield from seccomp.refuse_call(calls[name], errno.EPERM, unless=[0, os.getpid()])


def _drop_capabilities() -> None:
    """Give up what root may do. With CAP_PERFMON, say, it reads the environment of every process."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    data = ctypes.create_string_buffer(24)  # effective, permitted, inheritable: for the first 32, and for the others
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capabilities cannot be read")
    kept = struct.unpack("=6I", data.raw)[1] & _KEPT_CAPABILITIES
    if libc.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")


def _lower(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _python() -> Iterable[Path]:
    """Where Python and its packages lie, and libraries that a variable names."""
    yield from map(Path, (sys.prefix, sys.base_prefix, *sys.path))
    yield from (Path(folder) for package in (edgepack, edgepack_runtime) for folder in package.__path__)
    yield from map(Path, filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))


def _all_but_devices() -> Iterable[Path]:
    """Nearly everything: whoever may read a terminal gets what the user types there."""
    yield from (entry for entry in Path("/").iterdir() if not Path("/dev").is_relative_to(entry.resolve()))
    yield from (*_DEVICES, Path("/dev/shm"))


def _landlock_version() -> int:
    """0 if the kernel has no Landlock."""
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def _restrict_files(version: int, writes: Path, reads: Iterable[Path]) -> None:
    if version < 1:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    write = _WRITE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    handled = (_READ | write | _MAKE_SPECIAL, _TCP if version >= 4 else 0, _SCOPES if version >= _SCOPES_SINCE else 0)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= 4 else 8  # an older kernel knows a shorter structure
    ruleset = _called(libc, _CREATE_RULESET, struct.pack("QQQ", *handled), size, 0)
    try:
        for path, rights in [(writes, _READ | write), (Path("/dev/null"), _READ | _WRITE_FILE)]:
            _allow(libc, ruleset, path, rights)
        for path in reads:
            _allow(libc, ruleset, path, _READ)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
        _called(libc, _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not there, or not for this user: nothing to allow
        return
    try:
        rights &= -1 if stat.S_ISDIR(os.fstat(descriptor).st_mode) else _OF_FILES
        if rights:
            _called(libc, _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _called(libc: ctypes.CDLL, number: int, *arguments: int | bytes) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
