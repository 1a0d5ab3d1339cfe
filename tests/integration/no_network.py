"""Run a command that the kernel kills when it, or a child, connects or asks for a name: seccomp with a BPF filter.

    python no_network.py listen|none COMMAND...

`none` allows no socket of a network; pairs of connected sockets, which reach nobody, are none. `listen` allows what
a server needs: stream sockets, but no connection to anybody. Names are asked for with datagrams or connections.
Neither has sockets of this machine alone (AF_UNIX): to open one is an error, as without a name service daemon, which
the C library asks for the user's home before it reads /etc/passwd."""

from __future__ import annotations

import errno
import os
import sys

from edgepack.sandbox import seccomp

_FAMILY, _TYPE = 0, 1  # arguments of socket
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF


def forbid(*, listening: bool) -> None:
    """Install the filter in this process and all that it starts."""
    calls = seccomp.calls()
    allowed = [seccomp.argument(_TYPE), seccomp.masked(_SOCK_TYPE_MASK), *seccomp.if_equal(_SOCK_STREAM, seccomp.ALLOW)]
    socket = [
        seccomp.argument(_FAMILY),
        *seccomp.if_equal(_AF_UNIX, seccomp.refuse(errno.EAFNOSUPPORT)),
        *(allowed if listening else []),
        seccomp.KILL,
    ]
    seccomp.load([
        *seccomp.only_native(),
        *seccomp.call(calls["connect"], [seccomp.KILL]),
        *seccomp.call(calls["socket"], socket),
        seccomp.ALLOW,
    ])  # fmt: skip


if __name__ == "__main__":
    forbid(listening=sys.argv[1] == "listen")
    os.execvp(sys.argv[2], sys.argv[2:])
