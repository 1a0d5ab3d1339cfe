"""Facts of the first NVIDIA GPU and of NVIDIA's libraries, through the CUDA driver API (cuda.h).

Boards such as the Jetson have no command-line tool for these facts.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, NamedTuple, Optional, Sequence

from edgepack_runtime.errors import EnvironmentUnfitError

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_MIB = 2**20


class CudaFacts(NamedTuple):
    """The first GPU. `sm` is its compute capability ("8.7"), `driver` the newest CUDA version of the driver."""

    name: str
    sm: str
    driver: str
    memory_mib: int


def gpu_facts(load: Optional[Callable[[str], Any]] = None) -> CudaFacts:
    """Facts from the driver. `load` opens its library; the default is `ctypes.CDLL`.

    Raises:
        EnvironmentUnfitError: there is no driver, or no GPU.
    """
    try:
        library = (load or ctypes.CDLL)(_LIBRARY)
    except OSError as error:
        raise _unfit("NVIDIA's driver is missing", str(error)) from error
    _require(library, "cuInit", 0)
    count, device, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    _require(library, "cuDeviceGetCount", ctypes.byref(count))
    if count.value == 0:
        raise _unfit("NVIDIA's driver finds no GPU", "cuDeviceGetCount returned none")
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
        raise _unfit("NVIDIA's driver does not work", f"{function} returned {code}")


def _unfit(what: str, why: str) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        what, why=why, fix="install the driver for this GPU (JetPack brings it), or build the bundle for the CPU"
    )


_RUNTIME = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")
_CUDNN = ("libcudnn.so.9", "libcudnn.so.8")


def cuda_runtime_version(load: Optional[Callable[[str], Any]] = None) -> Optional[str]:
    """Version of CUDA's runtime library, such as "12.6", or None. `load` opens a library as `ctypes.CDLL` does."""
    library = _first(_RUNTIME, load)
    if library is None:
        return None
    number = ctypes.c_int()
    if library.cudaRuntimeGetVersion(ctypes.byref(number)) != 0:
        return None
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def cudnn_version(load: Optional[Callable[[str], Any]] = None) -> Optional[str]:
    """Version of cuDNN, such as "9.3.0", or None. `load` as for `cuda_runtime_version`."""
    library = _first(_CUDNN, load)
    if library is None:
        return None
    number = int(library.cudnnGetVersion())
    # 9.3.0 is 90300; 8.6.0 was 8600.
    if number >= 90_000:
        return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _first(names: Sequence[str], load: Optional[Callable[[str], Any]]) -> Any:
    """The first library that can be loaded."""
    load = load or ctypes.CDLL
    for name in names:
        try:
            return load(name)
        except OSError:
            continue
    return None
