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

# Calls whose effect no rule of Landlock covers: owners, modes, times and attributes of files.
ABOUT_FILES: Final = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
# Calls by which a process leaves its group: all of a group can be ended.
ABOUT_GROUPS: Final = ("setsid", "setpgid")
# Calls about other processes, about keys, and into parts of the kernel that no library of ours needs. What is spliced
# into a pipe stays in memory that is nobody's: one page of a huge page keeps all of it.
PRIVILEGED: Final = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "setpriority", "ioprio_set"),
    *("sched_setparam", "sched_setscheduler", "sched_setattr", "add_key", "request_key", "keyctl"),
    *("unshare", "setns", "bpf", "perf_event_open", "userfaultfd"),
    *("open_by_handle_at", "file_setattr", "splice", "tee", "vmsplice"),
)
# System V's and POSIX' communication: memory and queues of all programs of the user, which outlive a process.
ABOUT_IPC: Final = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink"),
)
# Calls that a kernel may lack, so that libraries do without: memory that no limit counts (rules of Landlock are such,
# too), and flags that lie in memory, where a filter cannot read them.
OPTIONAL: Final = ("clone3", "memfd_create", "landlock_create_ruleset", "memfd_secret")
# Calls with a process or thread as first argument that signal it.
SIGNALS: Final = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
# Audit architecture of each machine, and the numbers that calls have there. <linux/audit.h>, <asm/unistd.h>
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS: Final[Mapping[str, tuple[int, int | None]]] = {
    "open": (2, None),
    "mmap": (9, 222),
    "ioctl": (16, 29),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "socket": (41, 198),
    "connect": (42, 203),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "kill": (62, 129),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "fcntl": (72, 25),
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "ptrace": (101, 117),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "rt_sigqueueinfo": (129, 138),
    "utime": (132, None),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "tkill": (200, 130),
    "semtimedop": (220, 192),
    "tgkill": (234, 131),
    "utimes": (235, None),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "openat": (257, 56),
    "fchownat": (260, 54),
    "futimesat": (261, None),
    "fchmodat": (268, 53),
    "unshare": (272, 97),
    "splice": (275, 76),
    "tee": (276, 77),
    "vmsplice": (278, 75),
    "utimensat": (280, 88),
    "rt_tgsigqueueinfo": (297, 240),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "sched_setattr": (314, 274),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "pidfd_getfd": (438, 438),
    "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447),
    "fchmodat2": (452, 452),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}


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


def calls() -> Mapping[str, int]:
    """The numbers of calls on this machine."""
    which = [*_ARCHITECTURES].index(platform.machine())
    return {name: number for name, numbers in _NUMBERS.items() if (number := numbers[which]) is not None}


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
