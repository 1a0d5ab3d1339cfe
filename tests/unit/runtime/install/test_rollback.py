"""Rollbacks: only to a previous release that is intact and works."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.installing import Device, MakeBundle, id_of, last_receipt, silent, state_of

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, ExitCode, StageFailedError, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import status
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback


@pytest.fixture(scope="module")
def once_updated(once_installed: Prefix, second: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("updated") / "prefix"
    shutil.copytree(once_installed.root, root, symlinks=True)
    install(second, root, log=silent)
    return root


@pytest.fixture
def updated(once_updated: Path, prefix: Prefix) -> Prefix:
    """`second` serves, and `bundle` is kept."""
    shutil.copytree(once_updated, prefix.root, symlinks=True)
    return prefix


def test_rolling_back_twice_returns_to_the_newer_release(
    updated: Prefix, bundle: Path, second: Path, device: Device
) -> None:
    entry = updated.bin / "sentiment"
    done = device(entry, "rollback")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"rolled back: {id_of(bundle)} is active; {id_of(second)} is kept\n"
    told = json.loads(device(entry, "status", "--json").stdout)
    assert (told["current"], told["previous"], told["notes"]) == (id_of(bundle), id_of(second), [])
    assert (told["ok"], told["sequence"], told["last_change"]["verdict"]) == (True, 1, "rolled back")
    assert f"rollback rolled back ({id_of(bundle)}, " in device(entry, "status").stdout
    assert json.loads(device(entry, "predict", "很好").stdout)["label"] == "差"
    receipt = last_receipt(updated, "rollback")
    assert (receipt["previous"], receipt["serving"]) == (id_of(second), id_of(bundle))
    assert [step["step"] for step in receipt["steps"]] == ["re-hash", "self-test", "switch", "read back"]
    assert state_of(updated).bundle_bytes == bundle.stat().st_size
    forth = device(entry, "rollback", "--json")
    assert json.loads(forth.stdout)["serving"] == id_of(second)
    assert {path.name for path in updated.releases.iterdir()} == {id_of(bundle), id_of(second)}


@pytest.mark.parametrize("by", ["edgert", "a bundle", "its release in another folder"])
def test_only_an_installed_release_rolls_its_own_prefix_back(
    updated: Prefix, bundle: Path, second: Path, tmp_path: Path, device: Device, by: str
) -> None:
    """A folder with the form of an install, such as one on a stick, could name any program."""
    release = tmp_path / "folder" / id_of(second)
    shutil.copytree(updated.releases / id_of(second), release)
    line: dict[str, list[object]] = {
        "edgert": ["-c", "from edgepack_runtime.cli.main import main; raise SystemExit(main())"],
        "a bundle": [second],
        "its release in another folder": ["-I", "-S", release],
    }
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (updated.interpreters / id_of(bundle)).write_text(f"{python}\n")
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    for words, why in (([], "works only for an installed"), (["--prefix", updated.root], "unrecognized arguments")):
        done = device(sys.executable, *line[by], "rollback", *words, env=path)
        assert (done.returncode, why in done.stderr) == (ExitCode.USAGE, True), done.stderr
    assert not (tmp_path / "ran").exists() and updated.current_id() == id_of(second)


def test_rollback_without_a_previous_release_changes_nothing(
    small_bundle: Path, installed: Prefix, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentUnfitError, match="nothing is installed"):
        rollback(tmp_path / "none", None, log=silent)
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        rollback(installed.root, "other", log=silent)
    with pytest.raises(EnvironmentUnfitError, match="no previous release to roll back to") as caught:
        rollback(installed.root, None, log=silent)
    assert caught.value.why == f"{id_of(small_bundle)} is active, and no other was kept"
    receipt = last_receipt(installed, "rollback")
    assert (receipt["verdict"], receipt["exit_code"]) == ("not rolled back", ExitCode.ENVIRONMENT_UNFIT)
    assert "rollback not rolled back (no release, " in status.render(status.status(installed))


def test_rollback_refuses_a_damaged_release(updated: Prefix, bundle: Path, second: Path) -> None:
    file = updated.releases / id_of(bundle) / "model" / "model.onnx"
    file.write_bytes(bytes(999))
    with pytest.raises(BundleInvalidError, match=f"{id_of(bundle)} is damaged; {id_of(second)} stays active") as caught:
        rollback(updated.root, None, log=silent)
    assert "has 999 bytes instead of 1000" in caught.value.why
    found = status.status(updated)
    assert (found["current"], found["previous"], found["notes"]) == (id_of(second), id_of(bundle), [])


@pytest.mark.parametrize("behaviour", ["fail", "fail installed"])
def test_rollback_refuses_a_release_that_fails_its_self_test(
    make_bundle: MakeBundle, second: Path, prefix: Prefix, behaviour: str
) -> None:
    bad = make_bundle(version="1.1.0", selftest="broken device")
    install(bad, prefix.root, log=silent)
    install(second, prefix.root, log=silent)
    (prefix.root / "device.json").write_text(json.dumps(behaviour))
    with pytest.raises(StageFailedError, match="self-test"):
        rollback(prefix.root, None, log=silent)
    found = status.status(prefix)
    assert (found["ok"], found["current"], found["previous"], found["notes"]) == (True, id_of(second), id_of(bad), [])


def test_rollback_replaces_a_missing_interpreter(updated: Prefix, bundle: Path) -> None:
    record = updated.interpreters / id_of(bundle)
    record.write_text("/gone/python3\n")
    receipt = rollback(updated.root, None, log=silent)
    assert [note for note in receipt["notes"] if "is gone (/gone/python3)" in note]
    assert record.read_text().strip() == receipt["interpreter"]


def test_an_interrupted_rollback_is_reported_and_completed(updated: Prefix, bundle: Path, second: Path) -> None:
    state.write_state(updated, dataclasses.replace(state_of(updated), pending=id_of(bundle)))
    note = f"an install of, or a rollback to, {id_of(bundle)} was interrupted; {id_of(second)} stays active"
    assert status.status(updated)["notes"] == [note]
    receipt = rollback(updated.root, None, log=silent)
    assert (receipt["notes"], receipt["serving"]) == ([note], id_of(bundle))
