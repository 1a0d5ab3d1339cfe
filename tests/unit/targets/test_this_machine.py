from __future__ import annotations

import platform
from pathlib import Path

import pytest

from edgepack.results import NotRunHere
from edgepack.targets import this_machine
from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.device import info
from edgepack_runtime.errors import EnvironmentUnfitError


@pytest.fixture(autouse=True)
def a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(info, "libc", lambda: ("glibc", "2.27"))


def why(*inputs: str | tuple[str, ...], **options: str) -> str:
    found = this_machine.lacking(*inputs, **options)  # type: ignore[arg-type]
    return found.why if isinstance(found, NotRunHere) else ""


def test_a_bundle_runs_on_its_machines_and_on_an_old_c_library_if_it_carries_one() -> None:
    assert why(("aarch64",), CPU, "bundled") == "it is for Linux aarch64, and this machine is Linux x86_64"
    assert not why(("aarch64", "x86_64"), CPU, "bundled", libc_min="2.36")
    assert why(("x86_64",), CPU, "host", libc_min="2.28") == "it needs glibc 2.28, and this machine has glibc 2.27"
    assert not why(("x86_64",), CPU, "host", libc_min="2.4")  # releases are numbers


def test_musl_runs_only_what_carries_a_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "libc", lambda: ("unknown", ""))
    assert "this machine has unknown" in why(("x86_64",), CPU, "host")
    assert not why(("x86_64",), CPU, "bundled")


def test_a_gpu_is_asked_for_where_one_has_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise EnvironmentUnfitError("NVIDIA's driver is not there")

    monkeypatch.setattr(this_machine.nvidia, "gpu_facts", none)
    assert "NVIDIA's driver is not there" in why(("x86_64",), CUDA, "host")
    monkeypatch.setattr(this_machine.nvidia, "gpu_facts", lambda: None)
    assert not why(("x86_64",), CUDA, "host")
    monkeypatch.setattr(this_machine.jetson, "facts", lambda root: None)
    assert "not a Jetson with JetPack 6" in why(("x86_64",), CUDA, "host", jetpack="6")


def test_a_bundle_starts_with_its_own_interpreter_or_with_a_bare_one_of_this_machine() -> None:
    assert this_machine.start(Path("/b"), "bundled") == ["sh", "/b"]
    assert this_machine.start(Path("/b"), "host") == [this_machine.base_python(), "-I", "-S", "/b"]
