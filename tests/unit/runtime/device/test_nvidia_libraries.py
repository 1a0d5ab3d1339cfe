"""Versions of NVIDIA's libraries, as each generation of them tells its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgepack_runtime.device import nvidia


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
def test_cudnn(number: int, version: str) -> None:
    assert nvidia.cudnn_version(loads(Library("cudnnGetVersion", number), "libcudnn.so.8")) == version


@pytest.mark.parametrize(("number", "version"), [(12060, "12.6"), (11040, "11.4"), (13000, "13.0")])
def test_cuda(number: int, version: str) -> None:
    library = Library("cudaRuntimeGetVersion", number, code=0)
    assert nvidia.cuda_runtime_version(loads(library, "libcudart.so.1")) == version
    failing = Library("cudaRuntimeGetVersion", number, code=35)
    assert nvidia.cuda_runtime_version(loads(failing, "libcudart.so.1")) is None


def test_what_is_not_there() -> None:
    load = loads(None, "")
    assert nvidia.cudnn_version(load) is None
    assert nvidia.cuda_runtime_version(load) is None
