"""Rollbacks: only to a previous release that is intact and works."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest
from installing import Device, MakeBundle, id_of, silent

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, ExitCode, StageFailedError, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback


@pytest.fixture
def updated(bundle: Path, second: Path, tmp_path: Path) -> Prefix:
    """`second` serves, and `bundle` is kept."""
    prefix = Prefix(tmp_path / "prefix")
    for item in (bundle, second):
        install(item, prefix.root, log=silent)
    return prefix


def last(prefix: Prefix) -> dict[str, object]:
    receipt = receipts.last_receipt(prefix, "rollback")
    assert receipt is not None
    return receipt


def test_rolling_back_twice_returns_to_the_newer_release(
    updated: Prefix, bundle: Path, second: Path, device: Device
) -> None:
    entry = updated.bin / "sentiment"
    done = device(entry, "rollback")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"rolled back: {id_of(bundle)} serves; {id_of(second)} is kept\n"
    told = json.loads(device(entry, "status", "--json").stdout)
    assert (told["current"], told["previous"], told["notes"]) == (id_of(bundle), id_of(second), [])
    assert (told["ok"], told["sequence"], told["last_change"]["verdict"]) == (True, 1, "rolled back")
    assert f"rollback rolled back ({id_of(bundle)})" in device(entry, "status").stdout
    assert json.loads(device(entry, "predict", "很好").stdout)["label"] == "差"
    receipt = last(updated)
    assert (receipt["previous"], receipt["serving"]) == (id_of(second), id_of(bundle))
    steps = receipt["steps"]
    assert isinstance(steps, list)
    assert [step["step"] for step in steps] == ["re-hash", "self-test", "switch", "read back"]
    forth = device(entry, "rollback", "--json")
    assert json.loads(forth.stdout)["serving"] == id_of(second)
    assert {path.name for path in updated.releases.iterdir()} == {id_of(bundle), id_of(second)}


def test_the_size_of_the_bundle_comes_back_with_the_release(updated: Prefix, bundle: Path) -> None:
    rollback(updated.root, None, log=silent)
    found = state.read_state(updated)
    assert found is not None
    assert found.bundle_bytes == bundle.stat().st_size


def test_from_a_bundle_and_from_edgert(updated: Prefix, second: Path, bundle: Path, device: Device) -> None:
    done = device(sys.executable, second, "rollback", "--prefix", updated.root)
    assert done.returncode == 0, done.stderr
    assert updated.current_id() == id_of(bundle)


def test_without_a_previous_release_nothing_changes(bundle: Path, tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "prefix")
    with pytest.raises(EnvironmentUnfitError, match="nothing is installed"):
        rollback(prefix.root, None, log=silent)
    install(bundle, prefix.root, log=silent)
    with pytest.raises(EnvironmentUnfitError) as caught:
        rollback(prefix.root, None, log=silent)
    assert str(caught.value) == (
        "there is no previous release to roll back to\n"
        f"  why: {id_of(bundle)} serves, and no other was kept\n"
        "  fix: install the bundle you want: an install keeps the release that it replaces"
    )
    assert (last(prefix)["verdict"], last(prefix)["exit_code"]) == ("not rolled back", ExitCode.ENVIRONMENT_UNFIT)
    assert "rollback not rolled back (no release)" in status.render(status.status(prefix))


def test_a_foreign_folder_is_refused(updated: Prefix, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        rollback(updated.root, "other", log=silent)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").touch()
    with pytest.raises(UsageError, match="holds no install"):
        rollback(tmp_path / "theirs", None, log=silent)


def test_a_damaged_release_is_not_switched_to(updated: Prefix, bundle: Path, second: Path) -> None:
    file = updated.releases / id_of(bundle) / "model" / "model.onnx"
    file.write_bytes(bytes(999))
    with pytest.raises(BundleInvalidError, match=f"{id_of(bundle)} is damaged; {id_of(second)} still serves") as caught:
        rollback(updated.root, None, log=silent)
    assert "has 999 bytes instead of 1000" in caught.value.why
    found = status.status(updated)
    assert (found["current"], found["previous"], found["notes"]) == (id_of(second), id_of(bundle), [])


@pytest.mark.parametrize(("behaviour", "undone"), [("fail", False), ("fail installed", True)])
def test_a_release_that_fails_its_self_test_does_not_serve(
    make_bundle: MakeBundle, second: Path, tmp_path: Path, behaviour: str, undone: bool
) -> None:
    prefix = Prefix(tmp_path / "prefix")
    bad = make_bundle(version="1.1.0", selftest="broken device")
    install(bad, prefix.root, log=silent)
    install(second, prefix.root, log=silent)
    (prefix.root / "device.json").write_text(json.dumps(behaviour))
    with pytest.raises(StageFailedError, match="self-test"):
        rollback(prefix.root, None, log=silent)
    found = status.status(prefix)
    assert (found["ok"], found["current"], found["previous"]) == (True, id_of(second), id_of(bad))
    assert found["notes"] == []


def test_a_missing_interpreter_is_replaced(updated: Prefix, bundle: Path) -> None:
    record = updated.interpreters / id_of(bundle)
    record.write_text("/gone/python3\n")
    receipt = rollback(updated.root, None, log=silent)
    assert [note for note in receipt["notes"] if "is gone (/gone/python3)" in note]
    assert record.read_text().strip() == receipt["interpreter"]


def test_an_interrupted_rollback_is_reported_and_completed(updated: Prefix, bundle: Path, second: Path) -> None:
    before = state.read_state(updated)
    assert before is not None
    state.write_state(updated, dataclasses.replace(before, pending=id_of(bundle)))
    note = f"an install of, or a rollback to, {id_of(bundle)} was interrupted; {id_of(second)} still serves"
    assert status.status(updated)["notes"] == [note]
    receipt = rollback(updated.root, None, log=silent)
    assert (receipt["notes"], receipt["serving"]) == ([note], id_of(bundle))
