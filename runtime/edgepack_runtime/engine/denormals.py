"""Numbers below 1.2e-38 count as zero while a model runs, on x86-64.

Softmax makes them: where scores of a head lie far apart, weights of 1e-40 come out beside those near 1. x86 CPUs leave
arithmetic with such denormal numbers to microcode, a hundred cycles and more each, so that a few in a hundred weights
take a fifth of a whole run and more. As zeros they cost nothing, and no answer changes by what they add to it. Arm CPUs
have no such cost.

The mode belongs to a thread: it is set for as long as a model runs, and a program that calls one keeps its own.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Any, Optional

# Bits of the register MXCSR (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.2.3).
_RESULTS = 1 << 15  # flush to zero
_OPERANDS = 1 << 6  # denormals are zeros


class _Environment(ctypes.Structure):
    """glibc's `fenv_t` on x86-64."""

    _fields_ = (("x87", ctypes.c_uint32 * 7), ("mxcsr", ctypes.c_uint32))


class DenormalsAsZero:
    """A context of the calling thread; what it had before comes back at the end. May be entered again and again.

    Elsewhere than on Linux on x86-64 it does nothing.
    """

    def __init__(self) -> None:
        self._before: Optional[_Environment] = None

    def __enter__(self) -> None:
        libm = _libm()
        if libm is None:
            return
        self._before, within = _Environment(), _Environment()
        libm.fegetenv(ctypes.byref(self._before))
        ctypes.memmove(ctypes.byref(within), ctypes.byref(self._before), ctypes.sizeof(within))
        within.mxcsr |= _RESULTS | _OPERANDS
        libm.fesetenv(ctypes.byref(within))

    def __exit__(self, *raised: object) -> None:
        if self._before is not None:
            _libm().fesetenv(ctypes.byref(self._before))


@functools.lru_cache(maxsize=1)
def _libm() -> Any:
    """The C math library, or None on other systems."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return None
    return ctypes.PyDLL("libm.so.6")  # not CDLL: two calls of a microsecond are not worth letting go of the GIL
