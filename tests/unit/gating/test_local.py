"""What the answer of a bundle's own gate means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.interpreters import other_machine
from tests.unit.far import far_bundle
from tests.unit.runtime.conftest import target_facts
from tests.unit.runtime.ssh_keys import make_key

from edgepack.bundle import signing
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
from edgepack_runtime.install import trust


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


@pytest.mark.parametrize("name", ["trusted_signers", "revoked_keys"])
def test_the_keys_of_this_machine_hold_for_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    key = make_key(tmp_path, "key")
    monkeypatch.setattr(trust, "MACHINE_FOLDER", tmp_path)
    monkeypatch.setattr(gate, "run_verb", lambda *arguments: pytest.fail("it was run"))
    public = key.with_suffix(".pub").read_text()
    (tmp_path / name).write_text(f"release {public}" if name == "trusted_signers" else public)
    bundle = far_bundle(tmp_path / "x.edgepack")
    if name == "revoked_keys":
        signing.sign(bundle, key, bundle)
    with pytest.raises(BundleInvalidError, match=r"x\.edgepack"):
        gate.gate_copy(bundle, print)


def test_what_is_gated_is_a_private_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(file: Path, *arguments: object) -> VerbOutput:
        copies.append(file)
        assert file.read_bytes() == bundle.read_bytes() and file.parent.stat().st_mode & 0o77 == 0
        return VerbOutput(1, "", "")

    copies: list[Path] = []
    monkeypatch.setattr(gate, "run_verb", started)
    bundle = far_bundle(tmp_path / "x.edgepack")
    with pytest.raises(StageFailedError, match=r"x\.edgepack"):
        gate.gate_copy(bundle, print)
    assert copies[0].name == bundle.name and copies[0] != bundle and not copies[0].exists()


def test_a_bundle_for_another_machine_is_not_started(tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", target=target_facts(profile="line", machines=(other_machine(),)))
    with pytest.raises(TargetUnreachableError, match=r"x\.edgepack cannot be gated on this machine") as caught:
        gate.gate_file(bundle, print)
    assert f"it is for Linux {other_machine()}" in caught.value.why
    assert caught.value.fix == "on a device of target line: sh x.edgepack gate"
