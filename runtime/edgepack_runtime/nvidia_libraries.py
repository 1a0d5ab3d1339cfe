"""Which of NVIDIA's libraries this system has, asked of the libraries themselves (standard library only).

Names and version functions are those of their headers (cuda_runtime_api.h, cudnn_version.h).
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

_RUNTIME = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
_CUDNN = ("libcudnn.so.9", "libcudnn.so.8")


def cuda_runtime_version(load: Optional[Callable[[str], Any]] = None) -> Optional[str]:
    """Of CUDA's runtime library, as "12.6"; None where there is none. `load` opens a library, as `ctypes.CDLL` does."""
    library = _first(_RUNTIME, load)
    if library is None:
        return None
    import ctypes

    number = ctypes.c_int()
    if library.cudaRuntimeGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def cudnn_version(load: Optional[Callable[[str], Any]] = None) -> Optional[str]:
    """As "9.3.0"; None where there is none. `load` as for `cuda_runtime_version`."""
    library = _first(_CUDNN, load)
    if library is None:
        return None
    number = int(library.cudnnGetVersion())
    # 9.3.0 is 90300 since cuDNN 9, and 8.6.0 was 8600.
    if number >= 90_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _first(names: Sequence[str], load: Optional[Callable[[str], Any]]) -> Any:
    """The first library that can be loaded."""
    if load is None:
        try:
            import ctypes
        except ImportError:  # a minimal Python
            return None
        load = ctypes.CDLL
    for name in names:
        try:
            return load(name)
        except OSError:
            continue  # not that one
    return None
