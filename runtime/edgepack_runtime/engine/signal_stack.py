"""The stack that handlers of signals run on stays the thread's own while a library is loaded.

OpenVINO's CPU plugin gives the thread that loads it a larger one, so that signals find room for the tiles of AMX. It
frees that with the plugin, and puts back what was there before only if models are closed by the same thread, the last
one first. Otherwise the thread is left with a stack that is gone, and the next signal that Python handles ends the
process: Ctrl-C, or the SIGTERM that stops a server, becomes a segmentation fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Iterator

_DISABLE = 2  # SS_DISABLE: the thread has none


class _Stack(ctypes.Structure):
    """Linux's `stack_t`, of 64-bit machines."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """After the block, signals of this thread are handled on the stack that they were handled on before it.

    Where the kernel finds that one too small for the registers that the library asked for (AMX), the library's stays.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    libc: Any = ctypes.CDLL(None)
    before = _Stack()
    if libc.sigaltstack(None, ctypes.byref(before)) != 0:
        before = _Stack(None, _DISABLE, 0)
    try:
        yield
    finally:
        libc.sigaltstack(ctypes.byref(before), None)
