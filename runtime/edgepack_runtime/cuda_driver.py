"""What NVIDIA's driver says of the first GPU, asked through its own library: boards such as the Jetson have no tool.

Standard library only. Function names and attribute numbers are those of the CUDA driver API (cuda.h).
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional

from edgepack_runtime.errors import EnvironmentUnfitError

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_MIB = 2**20


class CudaFacts(NamedTuple):
    """The first GPU; `sm` is its compute capability, as "8.7", `driver` the newest CUDA that the driver runs."""

    name: str
    sm: str
    driver: str
    memory_mib: int


def facts(load: Optional[Callable[[str], Any]] = None) -> CudaFacts:
    """Ask the driver. `load` opens its library: by default `ctypes.CDLL`.

    Raises:
        EnvironmentUnfitError: there is no driver, or it finds no GPU.
    """
    try:
        library = (load or ctypes.CDLL)(_LIBRARY)
    except OSError as error:
        raise _none("NVIDIA's driver is not there", str(error)) from error
    _require(library, "cuInit", 0)
    count, device, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    _require(library, "cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise _none("NVIDIA's driver finds no GPU", "it counts none")
    _require(library, "cuDeviceGet", ctypes.byref(device), 0)
    _require(library, "cuDriverGetVersion", ctypes.byref(number))
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    _require(library, "cuDeviceGetName", name, len(name), device)
    _require(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    major, minor = (_attribute(library, which, device) for which in (_MAJOR, _MINOR))
    return CudaFacts(
        name=name.value.decode("utf-8", "replace"),
        sm=f"{major}.{minor}",
        driver=f"{number.value // 1000}.{number.value % 1000 // 10}",
        memory_mib=memory.value // _MIB,
    )


def _attribute(library: Any, which: int, device: Any) -> int:
    value = ctypes.c_int()
    _require(library, "cuDeviceGetAttribute", ctypes.byref(value), which, device)
    return value.value


def _require(library: Any, function: str, *arguments: Any) -> None:
    code = getattr(library, function)(*arguments)
    if code != 0:
        raise _none("NVIDIA's driver does not work", f"{function} returned {code}")


def _none(what: str, why: str) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        what, why=why, fix="install the driver for this GPU (JetPack brings it), or build the bundle for the CPU"
    )
