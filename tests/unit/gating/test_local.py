"""What the answer of a bundle's own gate means."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.interpreters import other_machine
from tests.unit.far import far_bundle
from tests.unit.runtime.conftest import target_facts

from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.gating import local as gate
from edgepack.gating.local import VerbOutput
from edgepack_runtime.errors import RolledBackError, to_json


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (UsageError("no rows", why="they stay at home", fix="--rows FILE"), UsageError),
        (EnvironmentUnfitError("no memory"), EnvironmentUnfitError),
        (BundleInvalidError("model.onnx is damaged"), BundleInvalidError),
        (StageFailedError("the model could not be run"), StageFailedError),
        (RolledBackError("not of a gate"), StageFailedError),
    ],
)
def test_an_error_that_the_gate_reported_is_raised_as_it_was(sent: EdgepackError, kind: type[EdgepackError]) -> None:
    answer = VerbOutput(int(sent.exit_code), json.dumps({"error": to_json(sent)}), "progress\nerror: other words")
    with pytest.raises(EdgepackError) as caught:
        gate.judged("x.edgepack", answer)
    assert type(caught.value) is kind
    assert (caught.value.what, caught.value.why) == (f"gate: x.edgepack: {sent.what}", sent.why)
    assert caught.value.fix == sent.fix


@pytest.mark.parametrize(("code", "kind"), [(4, EnvironmentUnfitError), (1, StageFailedError), (-9, StageFailedError)])
def test_a_gate_that_reported_nothing_is_explained_by_its_last_lines(code: int, kind: type[EdgepackError]) -> None:
    with pytest.raises(kind, match=f"ended with exit code {code} before a verdict") as caught:
        gate.judged("x.edgepack", VerbOutput(code, "", "Traceback\nMemoryError"))
    assert caught.value.why == "Traceback\nMemoryError"


@pytest.mark.parametrize("own", [False, True])
def test_a_bundle_of_others_is_gated_by_edgert_which_checks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    def started(command: list[Any], log: Any, **_: Any) -> VerbOutput:
        assert (command[:5] == [sys.executable, "-I", "-m", "edgepack_runtime", "gate"]) is not own
        return VerbOutput(1, "", "")

    monkeypatch.setattr(gate, "run_verb", started)
    with pytest.raises(StageFailedError, match=r"x\.edgepack"):
        gate.gate_file(far_bundle(tmp_path / "x.edgepack"), print, own=own)


def test_a_bundle_for_another_machine_is_not_started(tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", target=target_facts(profile="line", machines=(other_machine(),)))
    with pytest.raises(TargetUnreachableError, match=r"x\.edgepack cannot be gated on this machine") as caught:
        gate.gate_file(bundle, print)
    assert f"it is for Linux {other_machine()}" in caught.value.why
    assert caught.value.fix == "on a device of target line: sh x.edgepack gate"


def test_a_verb_that_hears_no_signal_ends_with_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph in a loop keeps Python from its signals."""
    monkeypatch.setattr(gate, "_END_SECONDS", 0.1)
    deaf = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print(1, file=sys.stderr); time.sleep(600)"

    def cancelled(line: str) -> None:
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        gate.run_verb([sys.executable, "-c", deaf], cancelled)
