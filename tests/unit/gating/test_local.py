"""What the answer of a bundle's own gate means."""

from __future__ import annotations

import json

import pytest

from edgepack.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, StageFailedError, UsageError
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
