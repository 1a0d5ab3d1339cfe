"""`edgepack build`: what it tells where what it made cannot be put anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result
from tests.unit.conftest import having

from edgepack.artifacts import ExamplesArtifact
from edgepack.build import dist_folder, runner
from edgepack.cli import main
from edgepack.commands import build as build_command
from edgepack.commands import options
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.recipe.loader import load_recipe
from edgepack.report import mlflow_run


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> NoReturn:
        raise StageFailedError("dist cannot be written", why="No space left on device")

    monkeypatch.setattr(dist_folder, "write", full)


def build(
    built: Any, verdict: str, code: int, monkeypatch: pytest.MonkeyPatch, *arguments: str, policy: str = "refuse"
) -> Result:
    """Run the command, with a pipeline that ends with `built`, and `verdict` for its one target."""
    (item,) = built.target_results
    receipt = {**item.gate.receipt, "verdict": verdict, "inconclusive": policy}
    gate = replace(item.gate, verdict=verdict, exit_code=code, receipt=receipt)
    done = replace(built, target_results=(replace(item, gate=gate),))
    monkeypatch.setattr(options, "load", lambda *given: (built.recipe, None))
    monkeypatch.setattr(runner, "build", lambda *given: done)
    return CliRunner().invoke(main, ["build", "r.yaml", *arguments])


@pytest.mark.parametrize(("verdict", "code"), [("pass", 5), ("fail", 6), ("inconclusive", 7)])
def test_a_full_disk_hides_no_verdict(
    built: Any, full_disk: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    done = build(built, verdict, 0 if verdict == "pass" else code, monkeypatch)
    assert done.exit_code == code, done.output
    told, error = f": {verdict.upper()}\n", "error: dist cannot be written\n  why: No space left on device\n"
    assert done.output.index(told) < done.output.index(error)
    assert ("error: gate " in done.stderr) is (verdict != "pass")
    assert "install it" not in done.stdout
    in_json = build(built, verdict, 0 if verdict == "pass" else code, monkeypatch, "--json")
    assert in_json.exit_code == code
    assert json.loads(in_json.stdout)["targets"][0]["verdict"] == verdict


def test_doubt_is_delivered_and_named_at_the_end(built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = built.target_results
    monkeypatch.setattr(dist_folder, "write", lambda *given: [tmp_path / item.bundle.file_name])
    monkeypatch.chdir(tmp_path)
    done = build(built, "inconclusive", 7, monkeypatch, policy="deliver")
    assert done.exit_code == 0, done.output
    assert "INCONCLUSIVE for local; delivered" in done.stdout and "install it" in done.stdout


def test_after_ctrl_c_the_same_command_goes_on(built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "load", lambda *given: (built.recipe, None))
    monkeypatch.setattr(runner, "build", interrupted)
    done = CliRunner().invoke(main, ["build", "r.yaml"])
    assert done.exit_code == 130
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    assert said == [
        "finished stages are kept in .edgepack: the same command continues, a training from its last checkpoint, which "
        "is written once a minute",
        "interrupted",
    ]


class Lost:
    """A tracking server that is there before the build, and not after it."""

    def __init__(self, uri: str, name: str) -> None:
        pass

    def log(self, *given: object) -> NoReturn:
        raise EnvironmentUnfitError("the server cannot be used")


@pytest.mark.parametrize(("verdict", "code"), [("pass", 4), ("fail", 6), ("inconclusive", 7)])
def test_a_tracking_server_that_is_lost_hides_neither_bundles_nor_verdict(
    built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    monkeypatch.setattr(mlflow_run, "MlflowExperiment", Lost)
    (item,) = built.target_results
    monkeypatch.setattr(dist_folder, "write", lambda *given: [tmp_path / item.bundle.file_name])
    monkeypatch.chdir(tmp_path)
    done = build(built, verdict, 0 if verdict == "pass" else code, monkeypatch, "--mlflow", "http://host")
    assert done.exit_code == code, done.output
    assert ("install it" in done.output) is (verdict == "pass")
    assert ("error: gate " in done.stderr) is (verdict != "pass")
    assert done.stderr.count("error: the server cannot be used") == 1
    if verdict == "pass":
        assert done.output.index("install it") < done.output.index("error: the server")


def test_a_part_of_a_build_is_not_logged() -> None:
    done = CliRunner().invoke(main, ["build", "r.yaml", "--until", "export", "--mlflow", "http://host"])
    assert done.exit_code == 2 and "use it without --until" in done.stderr


def test_a_server_that_does_not_answer_is_found_before_the_build(
    built: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(options, "load", lambda *given: (built.recipe, None))
    monkeypatch.setattr(runner, "build", lambda *given: pytest.fail("it was built"))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["build", "r.yaml", "--mlflow", "http://user:secret@127.0.0.1:9"])
    assert done.exit_code == 4 and "error: --mlflow: http://127.0.0.1:9 cannot be used\n  why: " in done.stderr
    assert "secret" not in done.output


@pytest.mark.parametrize(("item", "shown"), [("text", '"你好"'), ("json", "'JSON'"), ("file", "FILE-TO-ANSWER")])
def test_a_model_with_a_handler_shows_how_to_give_it_an_item(built: Any, tmp_path: Path, item: str, shown: str) -> None:
    (result,) = built.target_results
    bundle = tmp_path / result.bundle.file_name
    given = having(built, data=None, examples=ExamplesArtifact(tmp_path, item, 1))
    assert build_command._next_steps(given, [bundle])[-1].endswith(f" predict {shown}")
    assert "ITEM" not in build_command._next_steps(built, [bundle])[-1]


def test_a_build_without_a_limit_on_latency_ends_with_one_that_a_recipe_takes(built: Any, tmp_path: Path) -> None:
    (item,) = built.target_results
    bundle = tmp_path / item.bundle.file_name
    assert not [line for line in build_command._next_steps(built, [bundle]) if "latency" in line]
    gates = built.recipe.gates.model_copy(update={"latency": None})
    free = replace(built, recipe=built.recipe.model_copy(update={"gates": gates}))
    about, snippet = (line for line in build_command._next_steps(free, [bundle]) if "latency" in line)
    assert snippet == "  latency: {p50_ms: 2.5, p95_ms: 4.1}"  # measured: 1.248 and 2.02
    setting = about.partition("--set '")[2].partition("'")[0]
    (tmp_path / "r.yaml").write_text(
        "edgepack: 1\nname: a\nversion: 1.0.0\ndata: {train: builtin:reviews-zh}\n"
        "student: {model: ernie-3.0-tiny-nano-v2-zh}\ntargets: [local]\n"
    )
    assert load_recipe(tmp_path / "r.yaml", {"local"}).gates.latency is None
    limit = load_recipe(tmp_path / "r.yaml", {"local"}, (setting,)).gates.latency
    assert limit is not None and (limit.p50_ms, limit.p95_ms) == (2.5, 4.1)
    slow = replace(item.gate, receipt={**item.gate.receipt, "latency": {"p50_ms": 6.2, "p95_ms": 50.1, "threads": 1}})
    two = replace(free, target_results=(item, replace(item, gate=slow)))
    assert "  latency: {p50_ms: 13, p95_ms: 110}" in build_command._next_steps(two, [bundle])
    few = replace(item.gate, receipt={**item.gate.receipt, "latency": {"p50_ms": 6.2, "p95_ms": None, "threads": 1}})
    only = replace(free, target_results=(replace(item, gate=few),))
    assert "  latency: {p50_ms: 13}" in build_command._next_steps(only, [bundle])
