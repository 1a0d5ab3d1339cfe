"""`edgepack doctor`: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.golden import assert_golden

from edgepack import cli
from edgepack.recipe import hub
from edgepack.training import diagnosis
from edgepack.training.devices import Card, PaddleBuild
from edgepack.training.diagnosis import Problem, Report
from edgepack.training.environment import Setting
from edgepack.util.hardware import Cores, Machine, Memory
from edgepack.util.nvidia import Gpu, Nvidia
from edgepack_runtime.errors import ExitCode

GOLDEN = Path(__file__).parents[1] / "golden" / "doctor.txt"
STACK = {"paddlepaddle": "3.3.1", "paddlenlp": "3.0.0b4", "paddleslim": "2.6.0", "paddle2onnx": "2.1.0"}
DOUBTS = (
    Problem("warning", "gpu:1 (GT 1030) cannot be used", "this Paddle has no kernels for it", "install another"),
    Problem("error", "the workspace cannot be written", "this user may not", "choose another with --workspace"),
)
MADE = Report(
    packages=STACK,
    paddle=PaddleBuild(
        "3.3.1",
        "12.6",
        "9.5.1",
        (80, 90),
        (Card(0, "NVIDIA H200", "9.0", 143771), Card(1, "GT 1030", "6.1", 2048, "no kernel\x1b[2J")),
    ),
    driver=Nvidia(
        "580.159.03", "13.0", (Gpu(0, "NVIDIA H200", "9.0", 143771), Gpu(2, "A100", None, None, ("1g.5gb",)))
    ),
    machine=Machine("AMD EPYC 7B13", Cores(8, 4, 2.0), Memory(2**34, 2**33, 2**32)),
    settings=(
        Setting("OMP_NUM_THREADS", "2", "Paddle uses one thread unless it is told", given=False),
        Setting("MKL_DEBUG_CPU_TYPE", "5", "on AMD it is faster", given=True),
    ),
    workspace=Path(".edgepack"),
    free_bytes=2**36,
    models_folder=Path("/home/me/.paddlenlp/models"),
    models=(hub.model("ernie-3.0-tiny-nano-v2-zh"), hub.model("somebody/ernie")),
    device="gpu:0: a first computation worked; NVIDIA H200\ndriver and so on",
    problems=(),
)
MISSING = Report(
    packages={**STACK, "paddlenlp": None},
    paddle=None,
    driver=Nvidia(None, None, (), "nvidia-smi cannot be run: it is not installed", "install it"),
    machine=Machine("unknown", Cores(1, 1, None), Memory(None, None, None)),
    settings=MADE.settings[:1],
    workspace=Path("/tmp/w"),
    free_bytes=0,
    models_folder=Path("/tmp/models"),
    models=(),
    device=None,
    problems=DOUBTS,
)


def doctor(monkeypatch: pytest.MonkeyPatch, report: Report, *arguments: str) -> Result:
    monkeypatch.setattr(diagnosis, "examine", lambda workspace: report)
    return CliRunner().invoke(cli.main, ["doctor", *arguments])


def test_the_report_is_the_golden_file(monkeypatch: pytest.MonkeyPatch) -> None:
    found = "".join(f"== {result.exit_code}\n{result.stdout}" for result in (
        doctor(monkeypatch, MADE), doctor(monkeypatch, MISSING)
    ))  # fmt: skip
    assert_golden(found, GOLDEN)


def test_a_machine_that_cannot_train_is_exit_4(monkeypatch: pytest.MonkeyPatch) -> None:
    result = doctor(monkeypatch, MISSING)
    assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
    assert result.stderr == (
        "error: training cannot run on this machine\n"
        "  why: the workspace cannot be written (this user may not)\n"
        "  fix: choose another with --workspace\n"
    )


def test_stdout_is_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for report, code in ((MADE, 0), (MISSING, ExitCode.ENVIRONMENT_UNFIT)):
        result = doctor(monkeypatch, report, "--json")
        assert result.exit_code == code
        assert json.loads(result.stdout) == json.loads(json.dumps(report.document()))


def test_the_workspace_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def examine(workspace: Path) -> Report:
        asked.append(workspace)
        return MADE

    monkeypatch.setattr(diagnosis, "examine", examine)
    CliRunner().invoke(cli.main, ["doctor", "--workspace", "there"])
    assert asked == [Path("there")]
