"""Run a command that the kernel kills when it, or a child, connects or asks for a name: seccomp with a BPF filter.

    python no_network.py listen|none COMMAND...

`none` allows no socket of a network; pairs of connected sockets, which reach nobody, are none. `listen` allows what
a server needs: stream sockets, but no connection to anybody. Names are asked for with datagrams or connections.
Neither has sockets of this machine alone (AF_UNIX): to open one is an error, as without a name service daemon, which
the C library asks for the user's home before it reads /etc/passwd.
Sources: seccomp(2), Linux' Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

# Audit architecture, and the numbers of socket and connect.
MACHINES = {"x86_64": (0xC000003E, 41, 42), "aarch64": (0xC00000B7, 198, 203)}
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000  # SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS
_REFUSE = 0x00050000 | errno.EAFNOSUPPORT  # SECCOMP_RET_ERRNO
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_FAMILY, _TYPE = 16, 24  # of the arguments of socket
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def forbid(*, listening: bool) -> None:
    """Install the filter in this process and all that it starts."""
    architecture, socket, connect = MACHINES[platform.machine()]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 1, connect),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 1, 0, socket),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FAMILY),
        (_EQUAL, 0, 1, _AF_UNIX),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _TYPE),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_EQUAL, 0, 1, _SOCK_STREAM if listening else 0xFF),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
    program = _Program(len(code), ctypes.addressof(packed))
    libc = ctypes.CDLL(None, use_errno=True)
    asked = ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))
    for arguments in asked:
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    forbid(listening=sys.argv[1] == "listen")
    os.execvp(sys.argv[2], sys.argv[2:])
