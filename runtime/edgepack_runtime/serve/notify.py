"""Tells systemd how a service of `Type=notify` is doing: a datagram to the socket it names (standard library only)."""

from __future__ import annotations

import os
import socket
from typing import Mapping

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send `READY=1`, `STOPPING=1` or the like; return whether anybody listens.

    Raises:
        OSError: there is a socket to tell, and it cannot be.
    """
    address = environment.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.sendall(state.encode("ascii"))
    return True
