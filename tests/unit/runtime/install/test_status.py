"""`status` for each state of a prefix."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import state_of

from edgepack_runtime.cli import release_commands
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status
from edgepack_runtime.install.prefix import Prefix, State


def change(prefix: Prefix, **changes: Any) -> None:
    state.write_state(prefix, dataclasses.replace(state_of(prefix), **changes))


def test_status_where_nothing_is_installed(tmp_path: Path) -> None:
    found = status.status(Prefix(tmp_path / "none"))
    assert (found["ok"], found["current"], found["notes"]) == (False, None, [])
    assert status.render(found) == f"nothing is installed in {tmp_path}/none"
    state.write_state(Prefix(tmp_path), State("sentiment"))
    assert not status.status(Prefix(tmp_path))["ok"]


def test_status_names_the_servers_and_their_release(installed: Prefix) -> None:
    program = installed.releases / "1.0.0-old" / "__main__.py"
    program.parent.mkdir()
    program.write_text("import time; print(flush=True); time.sleep(600)")
    with subprocess.Popen([sys.executable, program, "serve"], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"\n"
            found = status.status(installed)
            assert found["servers"] == [{"process": server.pid, "release": "1.0.0-old"}]
            assert f"  serves   1.0.0-old, process {server.pid}" in status.render(found).splitlines()
            assert release_commands._other_servers(installed, "1.0.0-old") == []
            assert release_commands._other_servers(installed, str(found["current"])) == [
                f"note: `serve`, process {server.pid}, goes on with 1.0.0-old until it is started again"
            ]
        finally:
            server.kill()
    assert status.status(installed)["servers"] == []


def test_status_of_an_install(installed: Prefix) -> None:
    found = status.status(installed)
    assert (found["ok"], found["version"], found["notes"], found["running"]) == (True, "1.2.0", [], False)
    summary = {"verb": "install", "verdict": "installed", "release_id": found["current"], "error": None}
    assert found["last_install"] == found["last_change"]
    assert {key: value for key, value in found["last_install"].items() if key != "device_clock"} == summary
    clock = found["last_install"]["device_clock"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", clock)
    assert f"  install  installed ({found['current']}, {clock} by this device's clock)" in status.render(found)
    assert status.render(found).startswith(f"sentiment {found['current']} is active in {installed.root}\n")

    with state.lock(installed):
        assert status.status(installed)["notes"] == ["an install or a tuning is running"]


def test_status_notes_an_interruption_before_and_after_the_commit(installed: Prefix) -> None:
    current = installed.current_id()
    change(installed, pending="2.0.0-0123456789ab")
    found = status.status(installed)
    assert found["ok"]
    assert found["notes"] == [f"an install of 2.0.0-0123456789ab was interrupted; {current} stays active"]
    change(installed, pending=current, current="1.0.0-0123456789ab")
    found = status.status(installed)
    assert found["ok"]
    assert found["notes"] == [f"an install of {current} was interrupted right after its commit; it is active"]


def test_status_notes_a_damaged_manifest_and_a_lost_state(installed: Prefix) -> None:
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


def test_status_notes_files_that_are_missing_or_of_another_size(installed: Prefix) -> None:
    model = installed.current / "model" / "model.onnx"
    raw = model.read_bytes()
    fix = f"install it again from its file: sh FILE install --prefix {installed.root}"
    for change, told in (
        (lambda: model.write_bytes(raw[:-1]), f"model/model.onnx has {len(raw) - 1} bytes instead of {len(raw)}"),
        (model.unlink, "model/model.onnx is missing"),
    ):
        change()
        found = status.status(installed)
        assert (found["ok"], found["version"], status.holds_install(found)) == (False, "1.2.0", True)
        assert found["notes"] == [f"the release is damaged: {told}; {fix}"]
    (installed.current / "model" / "other").touch()
    assert "model/model.onnx is missing, and 1 more file;" in status.status(installed)["notes"][0]


@pytest.mark.parametrize(
    ("receipt", "clock"),
    [
        ({"device_clock_unix_s": 1764096698}, "2025-11-25 18:51 UTC"),
        ({"conditions": {"device_clock_utc": "2025-11-25T18:51:38Z"}}, "2025-11-25 18:51 UTC"),
        ({"device_clock_unix_s": 10**30}, None),
        ({"conditions": {"device_clock_utc": "\x1b[2J"}}, None),
        ({}, None),
    ],
)
def test_the_time_of_a_receipt(installed: Prefix, receipt: dict[str, Any], clock: str | None) -> None:
    bundle = {"release_id": installed.current_id()}
    receipts.write_receipt(installed, "gate", {"verb": "gate", "verdict": "pass", "bundle": bundle, **receipt}, print)
    found = status.status(installed)["last_gate"]
    assert found["device_clock"] == clock


def test_the_gate_is_that_of_the_active_release(installed: Prefix) -> None:
    ours = {"release_id": installed.current_id()}
    theirs = {"release_id": "1.0.0-0123456789ab"}
    gate = {"verb": "gate", "verdict": "pass", "bundle": ours}
    receipts.write_receipt(installed, "install", {"verb": "install", "bundle": ours, "gate": gate}, print)
    receipts.write_receipt(installed, "gate", {**gate, "verdict": "fail", "bundle": theirs}, print)
    found = status.status(installed)["last_gate"]
    assert (found["verb"], found["verdict"], found["release_id"]) == ("gate", "pass", installed.current_id())
    receipts.write_receipt(installed, "gate", {**gate, "verdict": "inconclusive"}, print)
    assert status.status(installed)["last_gate"]["verdict"] == "inconclusive"


def test_status_shows_why_an_install_failed(installed: Prefix) -> None:
    bundle = {"release_id": "2.0.0-0123456789ab"}
    receipt = {"verb": "install", "verdict": "not installed", "error": "missed\n  why: slow", "bundle": bundle}
    receipts.write_receipt(installed, "install", receipt, print)
    text = status.render(status.status(installed))
    assert "install  not installed (2.0.0-0123456789ab)" in text
    assert "why: slow" in text
    for error in ({"what": "missed"}, ["missed"], 3, True):  # edited by somebody
        receipts.write_receipt(installed, "install", {**receipt, "error": error}, print)
        found = status.status(installed)
        assert found["last_change"]["error"] is None
        assert "install  not installed" in status.render(found)
