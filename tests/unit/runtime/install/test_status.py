"""`status` for each state of a prefix."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix, State


@pytest.fixture
def installed(small_bundle: Path, prefix: Prefix, proven: None) -> Prefix:
    install(small_bundle, prefix.root, log=lambda text: None)
    return prefix


def stored(prefix: Prefix, **changes: Any) -> None:
    found = state.read_state(prefix)
    assert found is not None
    state.write_state(prefix, dataclasses.replace(found, **changes))


def test_nothing_installed(tmp_path: Path) -> None:
    found = status.status(Prefix(tmp_path / "none"))
    assert (found["ok"], found["current"], found["notes"]) == (False, None, [])
    assert status.render(found) == f"nothing is installed in {tmp_path}/none"


def test_installed(installed: Prefix) -> None:
    found = status.status(installed)
    assert (found["ok"], found["version"], found["notes"], found["running"]) == (True, "1.2.0", [], False)
    summary = {"verb": "install", "verdict": "installed", "release_id": found["current"], "error": None}
    assert found["last_install"] == found["last_change"] == summary
    assert status.render(found).startswith(f"sentiment {found['current']} serves in {installed.root}\n")


def test_an_install_that_runs(installed: Prefix) -> None:
    with state.lock(installed):
        assert status.status(installed)["notes"] == ["an install or a tuning is running"]


def test_interrupted_before_and_after_the_commit(installed: Prefix) -> None:
    current = installed.current_id()
    stored(installed, pending="2.0.0-0123456789ab")
    found = status.status(installed)
    assert found["ok"]
    assert found["notes"] == [f"an install of 2.0.0-0123456789ab was interrupted; {current} still serves"]
    stored(installed, pending=current, current="1.0.0-0123456789ab")
    found = status.status(installed)
    assert found["ok"]
    assert found["notes"] == [f"an install of {current} was interrupted right after its commit; it serves"]


def test_a_link_changed_by_hand(installed: Prefix) -> None:
    current = installed.current_id()
    installed.current.unlink()
    found = status.status(installed)
    assert (found["ok"], found["current"]) == (False, None)
    assert found["notes"] == [f"an uninstall of {current} was interrupted, or `current` was removed by hand"]


def test_a_damaged_manifest_and_a_lost_state(installed: Prefix) -> None:
    manifest = installed.current / "manifest.json"
    raw = manifest.read_bytes()
    manifest.write_bytes(raw + b" ")
    found = status.status(installed)
    assert not found["ok"]
    assert "manifest.json" in found["notes"][0]
    manifest.write_bytes(raw)
    installed.state_file.unlink()
    found = status.status(installed)
    assert not found["ok"]
    assert "installing again rebuilds it" in found["notes"][0]


def test_the_cause_of_a_failed_install_is_shown(installed: Prefix) -> None:
    bundle = {"release_id": "2.0.0-0123456789ab"}
    receipts.write_receipt(
        installed,
        "install",
        {"verb": "install", "verdict": "not installed", "error": "missed\n  why: slow", "bundle": bundle},
        print,
    )
    text = status.render(status.status(installed))
    assert "install  not installed (2.0.0-0123456789ab)" in text
    assert "why: slow" in text


def test_an_empty_state_is_not_installed(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    state.write_state(prefix, State("sentiment"))
    assert not status.status(prefix)["ok"]
