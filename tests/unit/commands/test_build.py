"""`edgepack build`: what it tells where what it made cannot be put anywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from edgepack.cli import main
from edgepack.commands import options
from edgepack.errors import StageFailedError
from edgepack.pipeline import delivery, runner


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> NoReturn:
        raise StageFailedError("dist cannot be written", why="No space left on device")

    monkeypatch.setattr(delivery, "deliver", full)


def build(built: Any, verdict: str, code: int, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Run the command, with a pipeline that ends with `built`, and `verdict` for its one target."""
    (item,) = built.deliveries
    receipt = {**item.gate.receipt, "verdict": verdict}
    gate = replace(item.gate, verdict=verdict, exit_code=code, receipt=receipt)
    done = replace(built, deliveries=(replace(item, gate=gate),))
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
