"""Facts of the GPU and of NVIDIA's libraries, from fake libraries with the same functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgepack_runtime.device import nvidia
from edgepack_runtime.errors import EnvironmentUnfitError

ATTRIBUTES = {75: 8, 76: 7}


class Driver:
    """`libcuda.so.1` on a board with one GPU, or with what `changes` say."""

    def __init__(self, gpus: int = 1, fails: str = "") -> None:
        self.gpus, self.fails = gpus, fails

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name == self.fails:
                return 999
            getattr(self, f"_{name}")(*arguments)
            return 0

        return call

    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = self.gpus

    def _cuDeviceGet(self, device: Any, number: int) -> None:
        device._obj.value = 40 + number

    def _cuDriverGetVersion(self, version: Any) -> None:
        version._obj.value = 12060

    def _cuDeviceGetName(self, name: Any, size: int, device: Any) -> None:
        assert (size, device.value) == (256, 40)
        name.value = b"Orin"

    def _cuDeviceTotalMem_v2(self, memory: Any, device: Any) -> None:
        memory._obj.value = 7 * 2**30

    def _cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> None:
        value._obj.value = ATTRIBUTES[which]


def test_a_gpu_is_described() -> None:
    asked: list[str] = []

    def load(name: str) -> Driver:
        asked.append(name)
        return Driver()

    assert nvidia.gpu_facts(load) == ("Orin", "8.7", "12.6", 7168)
    assert asked == ["libcuda.so.1"]


def test_no_driver_and_no_gpu_are_errors() -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(EnvironmentUnfitError, match="driver is missing") as caught:
        nvidia.gpu_facts(missing)
    assert "libcuda.so.1" in caught.value.why
    with pytest.raises(EnvironmentUnfitError, match="finds no GPU"):
        nvidia.gpu_facts(lambda name: Driver(gpus=0))


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount", "cuDeviceGetAttribute"])
def test_a_call_that_fails_is_named(function: str) -> None:
    with pytest.raises(EnvironmentUnfitError) as caught:
        nvidia.gpu_facts(lambda name: Driver(fails=function))
    assert f"{function} returned 999" in caught.value.why


class Library:
    """A library with one function of that name; it returns `number`, or stores it and returns `code`."""

    def __init__(self, function: str, number: int, code: int | None = None) -> None:
        def call(*arguments: Any) -> int:
            if code is None:
                return number
            arguments[0]._obj.value = number
            return code

        setattr(self, function, call)


def loads(library: Library | None, only: str) -> Callable[[str], Any]:
    def load(name: str) -> Any:
        if library is None or not name.startswith(only):
            raise OSError(f"{name}: cannot open shared object file")
        return library

    return load


@pytest.mark.parametrize(("number", "version"), [(90300, "9.3.0"), (91002, "9.10.2"), (8600, "8.6.0")])
def test_cudnn_has_a_version_or_is_missing(number: int, version: str) -> None:
    assert nvidia.cudnn_version(loads(Library("cudnnGetVersion", number), "libcudnn.so.8")) == version
    assert nvidia.cudnn_version(loads(None, "")) is None


@pytest.mark.parametrize(("number", "version"), [(12060, "12.6"), (11040, "11.4"), (13000, "13.0")])
def test_cuda_has_a_version_or_is_missing(number: int, version: str) -> None:
    library = Library("cudaRuntimeGetVersion", number, code=0)
    assert nvidia.cuda_runtime_version(loads(library, "libcudart.so.1")) == version
    failing = Library("cudaRuntimeGetVersion", number, code=35)
    assert nvidia.cuda_runtime_version(loads(failing, "libcudart.so.1")) is None
    assert nvidia.cuda_runtime_version(loads(None, "")) is None
