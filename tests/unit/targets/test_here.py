from __future__ import annotations

import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.results import NotRunHere
from edgepack.targets import local, profiles
from edgepack.targets.local import Interpreter
from edgepack.targets.profiles import Host
from edgepack_runtime.bundle.model_config import CPU, CUDA
from edgepack_runtime.errors import EnvironmentUnfitError

PROFILE = profiles.load_profiles()["ubuntu22.04-x86_64"]
HOST = Host("Linux", "x86_64", "glibc", "CPython", "3.11", "2.36")
FOUND = Interpreter(Path("/usr/bin/python3.10"), "3.10.13")


@pytest.fixture(autouse=True)
def an_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find", lambda python, named: FOUND if python == "3.10" else None)


def test_the_interpreter_is_that_of_the_target() -> None:
    assert local.runner(PROFILE, CPU, libc_min="2.28", host=HOST) == FOUND


@pytest.mark.parametrize(
    ("host", "python", "why"),
    [
        (replace(HOST, machine="aarch64"), "3.10", "this machine is Linux aarch64 glibc"),
        (replace(HOST, libc="unknown"), "3.10", "Linux x86_64 unknown"),
        (replace(HOST, libc_version="2.27"), "3.10", "needs glibc 2.28, and this machine has 2.27"),
        (HOST, "3.9", "no CPython 3.9"),
    ],
)
def test_what_keeps_a_bundle_from_running_here(host: Host, python: str, why: str) -> None:
    found = local.runner(replace(PROFILE, python=python), CPU, libc_min="2.28", host=host)
    assert isinstance(found, NotRunHere)
    assert why in found.why


def test_releases_of_glibc_are_numbers() -> None:
    old = local.runner(PROFILE, CPU, libc_min="2.4", host=replace(HOST, libc_version="2.31"))
    assert old == FOUND


def test_a_gpu_is_asked_for_where_one_has_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise EnvironmentUnfitError("NVIDIA's driver is not there")

    monkeypatch.setattr(local.nvidia, "gpu_facts", none)
    found = local.runner(PROFILE, CUDA, host=HOST)
    assert isinstance(found, NotRunHere)
    assert "NVIDIA's driver is not there" in found.why
    monkeypatch.setattr(local.nvidia, "gpu_facts", lambda: None)
    assert local.runner(PROFILE, CUDA, host=HOST) == FOUND
    monkeypatch.setattr(local.jetson, "facts", lambda root: None)
    board = local.runner(PROFILE, CUDA, jetpack="6", host=HOST)
    assert isinstance(board, NotRunHere)
    assert "not a Jetson with JetPack 6" in board.why


def test_interpreters_are_asked_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(local.VARIABLE, raising=False)
    own = ".".join(platform.python_version_tuple()[:2])
    found = local.find(own)
    assert found is not None
    assert found.python == own
    assert local.find("3.7") is None
    script = tmp_path / "python3.7"
    script.write_text(
        f'#!/bin/sh\necho \'["CPython", "3.7.9", "{platform.machine()}", 64, "", "/opt/python3.7"]\'\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    for wrong in ("nothing", sys.executable):
        monkeypatch.setenv(local.VARIABLE, os.pathsep.join([str(tmp_path / wrong), ""]))
        assert local.find("3.7") == Interpreter(Path("/opt/python3.7"), "3.7.9")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(script.read_text(encoding="utf-8").replace("/opt", "/srv"), encoding="utf-8")
    elsewhere.chmod(0o755)
    monkeypatch.setenv(local.VARIABLE, str(elsewhere))
    assert local.find("3.7") == Interpreter(Path("/srv/python3.7"), "3.7.9")
    assert local.find("3.7", [script]) == Interpreter(Path("/opt/python3.7"), "3.7.9")


@pytest.mark.parametrize(
    "said", ["", "{}", '["PyPy", "3.7.9", "x", 64, "", "/p"]', '["CPython", "3.7.9", "s390x", 64, "", "/p"]', "[1, 2]"]
)
def test_what_is_no_interpreter_of_this_machine_is_passed_over(tmp_path: Path, said: str) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
    script.chmod(0o755)
    assert local.looked_at(script) is None
