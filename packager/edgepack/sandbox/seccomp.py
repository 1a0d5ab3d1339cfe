"""Filters of system calls for this process and all that it starts: seccomp with a program of BPF.

Sources: seccomp(2), Linux' Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06  # BPF_LD | BPF_W | BPF_ABS and others
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # SECCOMP_RET_ALLOW, _ERRNO, _KILL_PROCESS
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; low words of 8 bytes an argument
_X32: Final = 0x40000000  # bit of the numbers of x86-64's other calling convention
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2

# What Python, its libraries and the programs of a shell call: the name, its number on x86-64, and on aarch64 if it is
# there. A call that is newer than this table is missing in it, as on an older kernel. <asm/unistd.h>
_TABLE: Final = """
Files
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, lseek 8 62, close 3 57, close_range 436 436, open 2, openat 257 56, creat 85,
stat 4, fstat 5 80, lstat 6, newfstatat 262 79, statx 332 291, access 21, faccessat 269 48, faccessat2 439 439,
readlink 89, readlinkat 267 78, getdents 78, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50,
rename 82, renameat 264 38, renameat2 316 276, mkdir 83, mkdirat 258 34, rmdir 84, unlink 87, unlinkat 263 35,
link 86, linkat 265 37, symlink 88, symlinkat 266 36, truncate 76 45, ftruncate 77 46, fallocate 285 47,
fsync 74 82, fdatasync 75 83, fadvise64 221 223, copy_file_range 326 285, statfs 137 43, fstatfs 138 44,
getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12, flistxattr 196 13,
umask 95 166, fcntl 72 25, ioctl 16 29, dup 32 23, dup2 33, dup3 292 24, pipe 22, pipe2 293 59,
poll 7, ppoll 271 73, select 23, pselect6 270 72, eventfd 284, eventfd2 290 19

Memory
mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, msync 26 227, brk 12 214,
membarrier 324 283

Processes and threads
execve 59 221, execveat 322 281, fork 57, vfork 58, clone 56 220, exit 60 93, exit_group 231 94, wait4 61 260,
waitid 247 95, futex 202 98, set_robust_list 273 99, get_robust_list 274 100, set_tid_address 218 96, rseq 334 293,
arch_prctl 158, prctl 157 167, getpid 39 172, getppid 110 173, gettid 186 178, getpgrp 111, getpgid 121 155,
getsid 124 156, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getgroups 115 158,
getresuid 118 148, getresgid 120 150, capget 125 90, getpriority 140 141, sched_yield 24 124,
sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, getrlimit 97 163, setrlimit 160 164, prlimit64 302 261, getrusage 98 165,
times 100 153, sysinfo 99 179, uname 63 160, getcpu 309 168, getrandom 318 278

Time and signals
nanosleep 35 101, clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
time 201, alarm 37, getitimer 36 102, setitimer 38 103, kill 62 129, tkill 200 130, tgkill 234 131, pause 34,
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigsuspend 130 133, rt_sigpending 127 136,
rt_sigtimedwait 128 137, sigaltstack 131 132, restart_syscall 219 128

Owners, modes, times and attributes of files
chmod 90, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92, fchown 93 55, lchown 94, fchownat 260 54,
utime 132, utimes 235, futimesat 261, utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7,
setxattrat 463 463, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, removexattrat 466 466

Place of a process
setsid 112 157, setpgid 109 154, sched_setaffinity 203 122, setpriority 141 140

Network
socket 41 198, socketpair 53 199, connect 42 203
"""
# Audit architecture of each machine. <linux/audit.h>
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class Instruction(NamedTuple):
    """One instruction: operation, jumps if true and if false, operand."""

    code: int
    if_true: int
    if_false: int
    operand: int


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


ALLOW: Final = Instruction(_RETURN, 0, 0, _ALLOW)
KILL: Final = Instruction(_RETURN, 0, 0, _KILL)


def is_known() -> bool:
    """Whether the calls of this machine are known."""
    return platform.machine() in _ARCHITECTURES


def calls(section: str | None = None) -> Mapping[str, int]:
    """The calls of a section of the table, or all, with their numbers on this machine."""
    column = 1 + [*_ARCHITECTURES].index(platform.machine())
    sections = dict(part.split("\n", 1) for part in _TABLE.strip().split("\n\n"))
    chosen = [sections[section]] if section else sections.values()
    entries = (entry.split() for text in chosen for entry in text.split(","))
    return {entry[0]: int(entry[column]) for entry in entries if len(entry) > column}


def refuse(number: int) -> Instruction:
    """End with the error `number` of errno; with 0, do nothing and report success."""
    return Instruction(_RETURN, 0, 0, _ERRNO | number)


def only_native() -> list[Instruction]:
    """Refuse calls of another architecture, whose numbers differ."""
    return [
        Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        Instruction(_EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]),
        refuse(errno.ENOSYS),
        Instruction(_LOAD, 0, 0, _NUMBER),
        Instruction(_AT_LEAST, 0, 1, _X32),
        refuse(errno.ENOSYS),
    ]


def call(number: int, then: Sequence[Instruction]) -> list[Instruction]:
    """Run `then`, which ends the program, for one call; go on behind it for others."""
    return [Instruction(_LOAD, 0, 0, _NUMBER), Instruction(_EQUAL, 0, len(then), number), *then]


def refuse_call(number: int, error: int, *, unless: Sequence[int] = (), of_argument: int = 0) -> list[Instruction]:
    """Refuse a call with an error, unless an argument, the first by default, has one of some values."""
    allowed = [line for value in unless for line in if_equal(value, ALLOW)]
    return call(number, [*([argument(of_argument)] if allowed else []), *allowed, refuse(error)])


def refuse_flags(number: int, error: int, index: int, flags: Sequence[tuple[int, int]]) -> list[Instruction]:
    """Refuse a call whose argument has, for one of the pairs of mask and value, this value in the bits of the mask."""
    lines = [[argument(index), masked(mask), *if_equal(value, refuse(error))] for mask, value in flags]
    return call(number, [*(line for some in lines for line in some), ALLOW])


def argument(index: int) -> Instruction:
    """Load the low word of an argument."""
    return Instruction(_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def masked(mask: int) -> Instruction:
    """Keep some bits of what was loaded."""
    return Instruction(_AND, 0, 0, mask)


def if_equal(value: int, then: Instruction) -> list[Instruction]:
    """Run `then`, which ends the program, if what was loaded is `value`."""
    return [Instruction(_EQUAL, 0, 1, value), then]


def load(program: Sequence[Instruction]) -> None:
    """Install a filter. There is no way back.

    Raises:
        OSError: the kernel refused.
    """
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    filled = _Program(len(program), ctypes.addressof(packed))
    libc = ctypes.CDLL(None, use_errno=True)
    asked = ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled), 0, 0))
    for arguments in asked:
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
