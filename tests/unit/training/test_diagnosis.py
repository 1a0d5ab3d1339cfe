"""What `edgepack doctor` finds, on machines that are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.training import devices, diagnosis, environment
from edgepack.training.devices import Card, PaddleBuild
from edgepack.training.diagnosis import Report
from edgepack.util import hardware, nvidia
from edgepack.util.hardware import Cores, Machine, Memory
from edgepack.util.nvidia import Gpu, Nvidia

STACK = {"paddlepaddle": "3.3.1", "paddlenlp": "3.0.0b4", "paddleslim": "2.6.0", "paddle2onnx": "2.1.0"}
HERE = Machine("AMD EPYC 7B13", Cores(8, 4, 2.0), Memory(2**34, 2**33, 2**32))
NO_DRIVER = Nvidia(None, None, (), "nvidia-smi cannot be run: it is not installed", "install NVIDIA's driver")
DRIVER = Nvidia("580.159.03", "13.0", (Gpu(0, "NVIDIA H200", "9.0", 143771),))
WITHOUT_CUDA = PaddleBuild("3.3.1", None, None, ())
WITH_CUDA = PaddleBuild("3.3.1", "12.6", "9.5.1", (80, 90), (Card(0, "NVIDIA H200", "9.0", 143771),))
Examine = Callable[..., Report]


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Examine:
    """`examination.examine` on a machine as described; what is left out is in order and has no GPU."""
    monkeypatch.setattr(hardware, "detect", lambda: HERE)
    monkeypatch.setattr(environment, "start", lambda: None)
    monkeypatch.setattr(environment, "has_both_builds", lambda: False)
    monkeypatch.setattr(hardware, "free_bytes", lambda folder: 2**36)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(environment.THREADS_VARIABLE, "2")

    def run(
        build: PaddleBuild = WITHOUT_CUDA, driver: Nvidia = NO_DRIVER, packages: dict[str, str | None] | None = None
    ) -> Report:
        monkeypatch.setattr(devices, "detect", lambda: build)
        monkeypatch.setattr(nvidia, "detect", lambda: driver)
        monkeypatch.setattr(environment, "installed", lambda: {**STACK, **(packages or {})})
        return diagnosis.examine(tmp_path / "work" / ".edgepack")

    return run


def said(report: Report) -> list[tuple[str, str]]:
    assert all(problem.why and problem.fix for problem in report.problems)
    return [(problem.severity, problem.what) for problem in report.problems]


@pytest.mark.parametrize(
    ("machine", "device"),
    [
        ((), "cpu: this Paddle is built without CUDA; "),
        ((WITH_CUDA, DRIVER), "gpu:0: a first computation worked; NVIDIA H200, sm_90, 143771 MiB\n"),
    ],
)
def test_a_machine_without_a_gpu_or_with_one_that_works_has_no_problem(
    examine: Examine, machine: tuple[object, ...], device: str
) -> None:
    report = examine(*machine)
    assert report.can_train
    assert said(report) == []
    assert (report.device or "").startswith(device)


def test_packages_that_are_missing_are_all_named(examine: Examine) -> None:
    report = examine(packages={"paddlenlp": None, "paddle2onnx": None})
    assert not report.can_train
    assert report.paddle is None
    assert report.device is None
    assert said(report) == [("error", "paddlenlp, paddle2onnx are not installed")]


def test_a_stack_that_cannot_be_imported_is_an_error(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise EnvironmentUnfitError("the Paddle stack cannot be imported", why="no astor", fix="run `make install`")

    monkeypatch.setattr(environment, "start", fail)
    report = examine()
    assert not report.can_train
    assert said(report) == [("error", "the Paddle stack cannot be imported")]


def test_two_builds_of_paddle_are_a_warning(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_both_builds", lambda: True)
    report = examine()
    assert report.can_train
    assert said(report) == [("warning", "paddlepaddle and paddlepaddle-gpu are both installed")]


@pytest.mark.parametrize(
    ("build", "driver", "what", "why"),
    [
        (WITHOUT_CUDA, DRIVER, "no GPU can be used", "but this machine has NVIDIA H200"),
        (replace(WITH_CUDA, cards=()), NO_DRIVER, "no GPU can be used", "nvidia-smi cannot be run"),
        (
            replace(WITH_CUDA, cards=(*WITH_CUDA.cards, Card(1, "GT 1030", "6.1", 2048, "wrong sum"))),
            DRIVER,
            "gpu:1 (GT 1030) cannot be used",
            "no kernels for GT 1030, sm_61",
        ),
        (WITH_CUDA, replace(DRIVER, why="a GPU no longer answers", fix="reboot"), "reports a fault", "no longer"),
    ],
)
def test_gpus_that_cannot_be_used_are_warnings(
    examine: Examine, build: PaddleBuild, driver: Nvidia, what: str, why: str
) -> None:
    report = examine(build, driver)
    assert report.can_train
    (problem,) = report.problems
    assert problem.severity == "warning"
    assert what in problem.what
    assert why in problem.why


@pytest.mark.parametrize(("text", "words"), [("8", "8 threads, but 2 threads"), ("all", "1 thread, but 2 threads")])
def test_threads_that_are_not_the_cores_are_a_warning(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv(environment.THREADS_VARIABLE, text)
    (problem,) = examine().problems
    assert problem.what == f"OMP_NUM_THREADS is set to {text!r}"
    assert words in problem.why


def test_too_little_disk_is_a_warning(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "free_bytes", lambda folder: 2**30)
    (problem,) = examine().problems
    assert (problem.severity, "1024.0 MiB are free" in problem.what) == ("warning", True)


def test_a_place_that_cannot_be_written_is_an_error(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    report = examine()
    assert not report.can_train
    assert "--workspace" in report.problems[0].fix


def test_settings_are_those_of_before_paddle_set_them(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.THREADS_VARIABLE)
    monkeypatch.setattr(environment, "start", lambda: monkeypatch.setenv(environment.THREADS_VARIABLE, "2"))
    (threads,) = [setting for setting in examine().settings if setting.name == environment.THREADS_VARIABLE]
    assert not threads.given


def test_the_document_is_plain_json(examine: Examine) -> None:
    found = json.loads(json.dumps(examine(WITH_CUDA, DRIVER).document(), allow_nan=False))
    assert (found["can_train"], found["packages"], found["problems"]) == (True, STACK, [])
    assert found["paddle"]["cards"][0]["memory_mib"] == 143771
    assert found["driver"]["gpus"][0]["sm"] == "9.0"
    assert found["machine"]["cores"] == {"machine": 8, "allowed": 4, "quota": 2.0}
    assert found["machine"]["threads"] == 2
    assert {setting["name"] for setting in found["settings"]} >= {"OMP_NUM_THREADS"}
