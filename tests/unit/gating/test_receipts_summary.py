"""Receipts of many devices, summarised; other files are named and never stop it."""

from __future__ import annotations

import json
import os
import subprocess
import weakref
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.forged import FORGED, commands, forge

from edgepack.cli import main
from edgepack.console import gate_tables
from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack.gating import receipts_summary

OLD, NEW = "1.0.0-000000000001", "1.1.0-000000000002"


def gate(release: str, *, accuracy: float = 0.9, p95_ms: float = 8.0, verdict: str = "pass") -> dict[str, Any]:
    return {
        "receipt": 1,
        "verb": "gate",
        "bundle": {"name": "hotel", "release_id": release},
        "verdict": verdict,
        "accuracy": {"metric": "accuracy", "value": accuracy, "n": 200, "low": 0.8, "high": 0.95},
        "promised": {"metric": "accuracy", "value": 0.91, "n": 200},
        "latency": {"p50_ms": 5.0, "p95_ms": p95_ms, "threads": 2},
        "conditions": {"cpu_model": "Cortex-A76", "emulated": False},
        "checks": [
            {
                "gate": "latency.p95_ms",
                "verdict": verdict,
                "value": p95_ms,
                "low": 5.0,
                "high": 12.0,
                "limit": 10.0,
                "unit": "ms",
                "n": 130,
                "confidence": 0.98,
                "detail": "batch 1",
            }
        ],
    }


def install(release: str, **changes: Any) -> dict[str, Any]:
    found = {
        "receipt": 1,
        "verb": "install",
        "bundle": {"name": "hotel", "release_id": release},
        "verdict": "installed",
        "error": None,
        "serving": release,
        "gate": gate(release),
    }
    return {**found, **changes}


def write(folder: Path, receipts: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True)
    for number, receipt in enumerate(receipts, start=1):
        (folder / f"{number:06d}-{receipt['verb']}.json").write_text(json.dumps(receipt), encoding="utf-8")


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    """Three devices: one updated, one whose update failed, one that was rolled back and has a broken receipt."""
    write(tmp_path / "gate-3" / "receipts", [install(OLD), install(NEW), gate(NEW, accuracy=0.9, p95_ms=9.6)])
    failed = install(NEW, verdict="not installed", error="missed its gate", serving=OLD, gate=gate(NEW, verdict="fail"))
    write(tmp_path / "gate-7", [install(OLD), failed, {"receipt": 1, "verb": "trust", "verdict": "added"}])
    back = {**install(OLD, verdict="rolled back", gate=None), "verb": "rollback"}
    write(tmp_path / "yard" / "east", [install(OLD), install(NEW), back])
    (tmp_path / "yard" / "east" / "000004-install.json").write_text('{"verb": "install"', encoding="utf-8")
    (tmp_path / "notes.txt").touch()
    return tmp_path


def test_what_serves_is_what_the_newest_change_left(stick: Path) -> None:
    found = receipts_summary.summarize(stick)
    assert [(one.name, one.serving, one.last, one.receipts) for one in found.devices] == [
        ("gate-3", NEW, "install: installed", 3),
        ("gate-7", OLD, "install: not installed", 3),
        ("yard/east", OLD, "rollback: rolled back", 3),
    ]
    assert found.releases == {("hotel", NEW): 1, ("hotel", OLD): 2}


def test_a_device_where_nothing_is_installed_any_more(tmp_path: Path) -> None:
    nowhere = {"name": "hotel", "release_id": None}
    refused = {**install(OLD, verdict="not rolled back", bundle=nowhere, gate=None), "verb": "rollback"}
    gone = {**install(OLD, verdict="uninstalled", serving=None, gate=None), "verb": "uninstall"}
    write(tmp_path / "a", [install(OLD), refused, gone])
    write(tmp_path / "b", [install(OLD), refused])
    a, b = receipts_summary.summarize(tmp_path).devices
    assert (a.serving, a.last, a.gate, a.unreadable) == (None, "uninstall: uninstalled", None, ())
    assert (b.serving, b.last, b.unreadable) == (OLD, "rollback: not rolled back", ())


def test_gates_are_those_of_the_release_that_serves(stick: Path) -> None:
    updated, failed, _ = receipts_summary.summarize(stick).devices
    assert updated.gate is not None and failed.gate is not None
    assert (updated.gate.latency and updated.gate.latency.p95_ms, updated.p95_limit_ms) == (9.6, 10.0)
    assert updated.drift_points == pytest.approx(-1.0)
    assert updated.slower == pytest.approx(1.2)
    assert failed.gate.verdict == "pass"  # of the release that stayed, not of the one that failed
    assert failed.slower is None
    assert failed.error == "missed its gate"


def test_nothing_is_compared_that_was_not_measured_alike(tmp_path: Path) -> None:
    for name, promised in (("a", {"metric": "accuracy", "value": 0.9, "n": 100}), ("b", None)):
        write(tmp_path / name, [{**gate(NEW), "promised": promised}])
    assert [device.drift_points for device in receipts_summary.summarize(tmp_path).devices] == [None, None]


@pytest.mark.parametrize(
    ("waived", "message"), [(True, "accuracy.min: not measured, waived"), (False, "accuracy.min: not measured")]
)
def test_a_gate_without_rows_says_what_was_not_measured(tmp_path: Path, waived: bool, message: str) -> None:
    unmeasured = [{"gate": "accuracy.min", "why": "at home", "waived": waived}]
    write(tmp_path / "line3", [{**gate(NEW), "accuracy": None, "unmeasured": unmeasured}])
    (device,) = receipts_summary.summarize(tmp_path).devices
    assert device.gate is not None and device.drift_points is None
    assert device.missed == (message,)
    shown = CliRunner().invoke(main, ["receipts", str(tmp_path)])
    assert f"line3: {message}" in shown.output


def test_a_release_without_gates_is_not_shown_as_one_that_passed(tmp_path: Path) -> None:
    left_out = [{"gate": "gates", "why": "the recipe sets no gates", "waived": True}]
    write(tmp_path / "line-1", [install(NEW, gate={**gate(NEW), "checks": [], "unmeasured": left_out})])
    shown = CliRunner().invoke(main, ["receipts", str(tmp_path)])
    assert "no gates" in shown.output and "pass" not in shown.output and "waived" not in shown.output


def test_what_is_no_receipt_is_told(stick: Path) -> None:
    assert [len(device.unreadable) for device in receipts_summary.summarize(stick).devices] == [0, 0, 1]
    assert "not valid JSON" in receipts_summary.summarize(stick).devices[2].unreadable[0]


def test_what_another_device_planted_hides_no_receipt(stick: Path) -> None:
    """Folders nested deeper than Python calls functions, and a pipe that nobody writes."""
    before = receipts_summary.summarize(stick).devices
    place = stick / "deep"
    for _ in range(44):
        place /= "/".join(["d"] * 25)
        place.mkdir(parents=True)
    os.mkfifo(stick / "000001-gate.json")
    try:
        pipe, *others = receipts_summary.summarize(stick).devices
    finally:
        subprocess.run(["rm", "-r", str(stick / "deep")], check=True)  # pytest's own way is recursive
    assert pipe.unreadable == ("000001-gate.json: it is not a regular file",)
    assert tuple(others) == before


def test_a_folder_of_one_device(tmp_path: Path) -> None:
    write(tmp_path / "kiosk", [install(NEW)])
    assert [device.name for device in receipts_summary.summarize(tmp_path / "kiosk").devices] == ["kiosk"]


@pytest.mark.parametrize("made", [True, False])
def test_no_receipts(tmp_path: Path, made: bool) -> None:
    folder = tmp_path / "stick"
    if made:
        folder.mkdir()
    with pytest.raises(UsageError, match="receipts" if made else "no folder"):
        receipts_summary.summarize(folder)


@pytest.mark.parametrize("figure", [{"accuracy": 1e300}, {"accuracy": -0.1}, {"p95_ms": 1e300}, {"p95_ms": -1.0}])
def test_a_figure_that_cannot_be_makes_a_receipt_none(stick: Path, figure: dict[str, float]) -> None:
    """One such receipt made the columns of every device too wide to be read."""
    write(stick / "gate-9", [install(OLD, gate=gate(OLD, **figure))])
    broken = next(device for device in receipts_summary.summarize(stick).devices if device.name == "gate-9")
    assert (broken.receipts, len(broken.unreadable)) == (0, 1)


def test_a_device_of_which_nothing_can_be_read_counts_nowhere(stick: Path) -> None:
    write(stick / "gate-9", [install(NEW)])
    before = receipts_summary.summarize(stick).releases
    (stick / "gate-9" / "000001-install.json").write_text("{", encoding="utf-8")
    assert before[("hotel", NEW)] == 2
    assert receipts_summary.summarize(stick).releases == {("hotel", NEW): 1, ("hotel", OLD): 2}


def test_receipts_that_another_device_signed_are_told(stick: Path) -> None:
    found = receipts_summary.summarize(stick, lambda file, raw: "gate-3")
    said = [str(part) for part in gate_tables.fleet(found, live=False)]
    assert "gate-7: receipts in this folder were signed by: gate-3" in said
    assert "gate-3: receipts in this folder were signed by: gate-3" not in said


def test_the_table_and_the_json(stick: Path) -> None:
    shown = CliRunner().invoke(main, ["receipts", str(stick)])
    assert shown.exit_code == 0, shown.output
    assert "-1.00" in shown.output
    assert "gate-7: missed its gate" in shown.output
    assert "p95 is 1.20 times" in shown.output
    assert f"hotel {OLD} is active on 2 devices" in shown.output
    message = json.loads(CliRunner().invoke(main, ["receipts", str(stick), "--json"]).output)
    assert [device["serving"] for device in message["devices"]] == [NEW, OLD, OLD]
    assert message["releases"][0] == {"bundle": "hotel", "serving": NEW, "devices": 1}


@pytest.mark.parametrize("text", FORGED)
def test_nothing_in_receipts_is_a_command_to_ci(tmp_path: Path, text: str) -> None:
    forged = forge(install(OLD, error=text), text, keep=("verb", "unit", "verdict"))
    write(tmp_path / text, [forged, {**forged, "verb": "rollback"}])
    (tmp_path / text / "000003-install.json").write_text("{", encoding="utf-8")
    for options in ([], ["--json"]):
        shown = CliRunner().invoke(main, ["receipts", str(tmp_path), *options])
        assert shown.exit_code == 0, shown.output
        assert shown.output.count("forged") > 4
        assert commands(shown.output) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_receipt_or_a_reason(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "000001-install.json").write_bytes(raw)
    [device] = receipts_summary.summarize(folder).devices
    assert device.receipts + len(device.unreadable) == 1


@given(st.sampled_from(["verb", "verdict", "bundle", "error", "serving", "notes", "gate"]), values)
def test_any_value_anywhere_is_a_receipt_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "000001-install.json").write_text(json.dumps({**install(NEW), key: value}), encoding="utf-8")
    assert len(receipts_summary.summarize(folder).devices) == 1
    assert CliRunner().invoke(main, ["receipts", str(folder)]).exit_code == 0


def test_of_a_device_that_was_only_gated_the_newest_gate_is_told(tmp_path: Path) -> None:
    write(tmp_path / "line3", [gate(OLD), gate(NEW, accuracy=0.85), gate(NEW, accuracy=0.8, p95_ms=8.8)])
    found = receipts_summary.summarize(tmp_path)
    (device,) = found.devices
    assert (device.serving, device.last) == (None, None)
    assert device.gate is not None
    assert (device.gated_release, device.gate.accuracy and device.gate.accuracy.value) == (NEW, 0.8)
    assert device.slower == pytest.approx(1.1)
    assert found.releases == {}  # what serves there, nobody said
    shown = CliRunner().invoke(main, ["receipts", str(tmp_path)]).output
    assert f"({NEW})" in shown and "gated, and not installed by these receipts" in shown


def test_missing_repeated_and_exchanged_receipts_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "gate-3"
    write(folder, [{**install(OLD), "number": number} for number in range(1, 8)])
    for number in (2, 3, 6):
        (folder / f"00000{number}-install.json").unlink()
    (folder / "000005-gate.json").write_text(json.dumps({**gate(OLD), "number": 5}), encoding="utf-8")
    (folder / "000007-rollback.json").write_text(json.dumps({**install(NEW), "number": 7}), encoding="utf-8")
    (folder / "000008-install.json").write_text(json.dumps({**install(NEW), "number": 1}), encoding="utf-8")
    [device] = receipts_summary.summarize(tmp_path).devices
    assert device.unreadable == (
        "000007-rollback.json: it is a receipt of install under another name",
        "000008-install.json: it is receipt 1 under another name",
    )
    assert device.remarks == (
        "3 receipts between 1 and 8 are missing", "2 receipts have the number 5", "2 receipts have the number 7",
    )  # fmt: skip
    assert device.serving == OLD
    shown = " ".join(CliRunner().invoke(main, ["receipts", str(tmp_path)]).output.split())
    assert "gate-3: 3 receipts between 1 and 8 are missing" in shown


def test_one_receipt_under_many_links_counts_once(tmp_path: Path) -> None:
    """A receipt may have 4 MiB: a stick of a few megabytes would take gigabytes."""
    write(tmp_path / "a", [install(OLD)])
    first = tmp_path / "a" / "000001-install.json"
    (tmp_path / "a" / "000002-install.json").hardlink_to(first)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "000001-install.json").symlink_to(first)
    a, b = receipts_summary.summarize(tmp_path).devices
    assert (a.receipts, a.unreadable) == (1, ("000002-install.json: it is the same file as 000001-install.json",))
    assert (b.receipts, len(b.unreadable)) == (0, 1)


def test_no_receipt_is_kept_but_the_gates_that_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", [install(OLD), *[gate(OLD, accuracy=0.5 + n / 100) for n in range(9)]])
    alive: list[weakref.ref[Any]] = []
    parse = receipts_summary._parsed

    def parsed(raw: bytes) -> Any:
        assert sum(one() is not None for one in alive) <= 3
        found = parse(raw)
        alive.append(weakref.ref(found))
        return found

    monkeypatch.setattr(receipts_summary, "_parsed", parsed)
    [device] = receipts_summary.summarize(tmp_path).devices
    assert device.receipts == 10 and device.gate is not None and device.gate.accuracy is not None
    assert device.gate.accuracy.value == pytest.approx(0.58)
    assert device.first_gate is not None and device.first_gate is not device.gate


def test_a_receipt_that_changes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a", [install(OLD)])
    raw = receipts_summary._raw

    def changed(file: Path) -> bytes:
        found = raw(file)
        file.write_text(json.dumps(install(OLD, gate=gate(OLD, accuracy=1.0))), encoding="utf-8")
        return found

    monkeypatch.setattr(receipts_summary, "_raw", changed)
    with pytest.raises(EnvironmentUnfitError, match="was changed while it was read"):
        receipts_summary.summarize(tmp_path)
