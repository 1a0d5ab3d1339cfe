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

# Audit architecture, and the numbers of calls. <linux/audit.h>, <asm/unistd.h>
_MACHINES: Final[Mapping[str, tuple[int, Mapping[str, int]]]] = {
    "x86_64": (
        0xC000003E,
        {"socket": 41, "connect": 42, "prlimit64": 302, "io_uring_setup": 425},
    ),
    "aarch64": (
        0xC00000B7,
        {"socket": 198, "connect": 203, "prlimit64": 261, "io_uring_setup": 425},
    ),
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
    return platform.machine() in _MACHINES


def calls() -> Mapping[str, int]:
    """The numbers of calls on this machine."""
    return _MACHINES[platform.machine()][1]


def refuse(number: int) -> Instruction:
    """End with the error `number` of errno."""
    return Instruction(_RETURN, 0, 0, _ERRNO | number)


def only_native() -> list[Instruction]:
    """Refuse calls of another architecture, whose numbers differ."""
    return [
        Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        Instruction(_EQUAL, 1, 0, _MACHINES[platform.machine()][0]),
        refuse(errno.ENOSYS),
        Instruction(_LOAD, 0, 0, _NUMBER),
        Instruction(_AT_LEAST, 0, 1, _X32),
        refuse(errno.ENOSYS),
    ]


def call(number: int, then: Sequence[Instruction]) -> list[Instruction]:
    """Run `then`, which ends the program, for one call; go on behind it for others."""
    return [Instruction(_LOAD, 0, 0, _NUMBER), Instruction(_EQUAL, 0, len(then), number), *then]


def refuse_call(number: int, error: int, *, unless_first_is: int | None = None) -> list[Instruction]:
    """Refuse a call with an error, unless its first argument has a value."""
    if unless_first_is is None:
        return call(number, [refuse(error)])
    return call(number, [argument(0), Instruction(_EQUAL, 0, 1, unless_first_is), ALLOW, refuse(error)])


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
