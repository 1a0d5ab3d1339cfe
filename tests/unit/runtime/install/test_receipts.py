"""Receipts: numbers, signatures, and no other use of the wall clock."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.runtime.installing import last_receipt
from tests.unit.runtime.ssh_keys import make_key, needs_ssh_keygen

import edgepack_runtime
from edgepack.bundle import signing
from edgepack.cli import main
from edgepack.gating import receipts_summary
from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.receipts import write_receipt

RUNTIME = Path(edgepack_runtime.__path__[0])
_WALL_CLOCK = {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime"}


def test_a_run_logs_and_keeps_its_steps_its_notes_and_its_failure(tmp_path: Path) -> None:
    lines: list[str] = []
    receipt = receipts.new_receipt("rollback", "rolled back")
    run = receipts.Journal(Prefix(tmp_path), "hotel", lines.append, receipt)
    with run.step("good"):
        run.note("odd")
    with pytest.raises(ZeroDivisionError), run.step("bad"):
        _ = 1 / 0
    with pytest.raises(KeyboardInterrupt), run.step("long"):
        raise KeyboardInterrupt
    found = [(step["step"], step["ok"]) for step in run.receipt["steps"]]
    assert found == [("good", True), ("bad", False), ("long", False)]
    assert run.receipt["notes"] == ["odd"]
    assert lines[0] == "  note  odd"
    assert [line.split()[:2] for line in lines[1:]] == [["ok", "good"], ["FAIL", "bad"], ["STOP", "long"]]
    with pytest.raises(StageFailedError), run.recorded("not rolled back"):
        raise StageFailedError("it broke", why="so")
    assert lines[4:] == [f"  receipt {run.prefix.receipts}/000001-rollback.json"]
    last = last_receipt(run.prefix, "rollback")
    assert (last["verdict"], last["exit_code"], last["error"]) == ("not rolled back", 5, "it broke\n  why: so")


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupted_run_keeps_its_receipt(tmp_path: Path, end: BaseException, code: int) -> None:
    run = receipts.Journal(Prefix(tmp_path), "hotel", str, receipts.new_receipt("install", "installed"))
    with pytest.raises(type(end)), run.recorded("not installed"), run.step("gate"):
        raise end
    last = last_receipt(run.prefix, "install")
    assert (last["verdict"], last["exit_code"], last["error"]) == ("interrupted", code, None)
    assert [step["ok"] for step in last["steps"]] == [False]


def test_receipts_of_several_writers_have_numbers_of_their_own(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    with ThreadPoolExecutor(8) as writers:
        paths = list(
            writers.map(
                lambda index: write_receipt(prefix, ("gate", "install")[index % 2], {"index": index}, print), range(40)
            )
        )
    assert sorted(int(path.name[:6]) for path in paths) == list(range(1, 41))
    assert [json.loads(path.read_text(encoding="utf-8"))["index"] for path in paths] == list(range(40))
    assert sorted(prefix.receipts.iterdir()) == sorted(paths)
    *_, before, newest = sorted(path for path in paths if path.name.endswith("-install.json"))
    expected = json.loads(before.read_text(encoding="utf-8"))
    newest.write_text("damaged")
    assert last_receipt(prefix, "install") == expected


def test_who_may_read_the_receipts_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "_LOCK_PAUSE_S", 0.0)
    prefix = Prefix(tmp_path)
    write_receipt(prefix, "install", {}, print)
    descriptor = os.open(prefix.receipts, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert write_receipt(prefix, "gate", {}, print).name == "000002-gate.json"
    finally:
        os.close(descriptor)


def test_numbers_go_on_above_six_digits(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    prefix.receipts.mkdir()
    (prefix.receipts / "999999-gate.json").write_text("{}")
    names = [write_receipt(prefix, "gate", {"index": index}, print).name for index in range(2)]
    assert names == ["1000000-gate.json", "1000001-gate.json"]
    assert [receipt.get("index") for receipt in receipts.read_receipts(prefix, "gate")] == [1, 0, None]


def test_a_number_that_nobody_counted_up_to_does_not_move_the_next_ones(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    prefix.receipts.mkdir()
    planted = ("999999999999-gate.json", "000002-gate.json", "999999998-gate.json")
    for name, expected in zip(planted, ("000001-gate.json", "000003-gate.json", "999999999-gate.json"), strict=True):
        (prefix.receipts / name).write_text("{}")
        assert write_receipt(prefix, "gate", {}, print).name == expected
    names = [write_receipt(prefix, "gate", {}, print).name for _ in range(3)]  # no file is written over
    assert names == ["1000000000-gate.json", "1000000001-gate.json", "1000000002-gate.json"]
    assert all(map(receipts.RECEIPT.match, names))


def _wall_clock_uses(file: Path) -> set[str]:
    """Functions of `file` that read the clock on the wall, and how."""
    found: set[str] = set()
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                dotted = f"{node.value.id}.{node.attr}"
                if (node.value.id == "time" and node.attr in _WALL_CLOCK) or node.value.id in ("datetime", "date"):
                    found.add(f"{function.name}: {dotted}")
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "datetime" in ast.unparse(node):
                found.add(f"{function.name}: {ast.unparse(node)}")
    return found


def test_nothing_depends_on_the_clock() -> None:
    """The clock of a device may say 1970: receipts and logs tell it to whoever reads them, and nothing goes by it."""
    uses = {file.stem: found for file in sorted(RUNTIME.rglob("*.py")) if (found := _wall_clock_uses(file))}
    logs = {"format: time.strftime", "format: time.gmtime"}
    conditions = {"device_clock_utc: time.strftime", "device_clock_utc: time.gmtime"}
    shown = {"_clock: time.strftime", "_clock: time.gmtime"}  # by `status`, of receipts
    assert uses == {"receipts": {"new_receipt: time.time"}, "conditions": conditions, "logs": logs, "status": shown}
    imports = [file.stem for file in RUNTIME.rglob("*.py") if "import datetime" in file.read_text(encoding="utf-8")]
    assert imports == []


@pytest.fixture
def key(machine: Path) -> Path:
    """Where the machine has its key for receipts: none yet."""
    machine.mkdir()
    return machine / receipts.KEY_NAME


def test_receipts_are_signed_where_the_machine_has_a_key(key: Path, tmp_path: Path) -> None:
    said: list[str] = []
    unsigned = write_receipt(Prefix(tmp_path / "other"), "install", {"n": 1}, said.append)
    assert [file.name for file in unsigned.parent.iterdir()] == ["000001-install.json"]
    make_key(key.parent, key.name)
    paths = [write_receipt(Prefix(tmp_path), "install", {"n": n}, said.append) for n in (1, 2)]
    assert [path.name for path in paths] == ["000001-install.json", "000002-install.json"]
    assert said == []
    signers = tmp_path / "signers"
    signers.write_text(f"gate-3 {key.with_suffix('.pub').read_text()}")
    for path in paths:
        assert stat.S_IMODE(path.with_name(path.name + ".sig").stat().st_mode) == 0o644
        assert signing.signer_of(path, path.read_bytes(), signers) == "gate-3"
    with pytest.raises(ValueError, match="wrong"):
        signing.signer_of(paths[0], paths[1].read_bytes(), signers)
    assert last_receipt(Prefix(tmp_path), "install") == {"n": 2, "number": 2}
    with pytest.raises(trust.BundleInvalidError, match="not for a bundle"):
        trust.check_signature("hotel", paths[0].read_bytes(), paths[0].with_name(f"{paths[0].name}.sig").read_bytes())


@needs_ssh_keygen
@pytest.mark.parametrize(
    ("place", "why"),
    [
        (lambda key: make_key(key.parent, key.name, passphrase="secret"), "passphrase"),
        (lambda key: make_key(key.parent, key.name).chmod(0o644), "permissions"),
        (lambda key: key.touch(0o600), "receipt_key"),
        (Path.mkdir, f"receipt_key: {os.strerror(21).lower()}"),  # cannot be opened as a file, whoever runs this
        (os.mkfifo, "receipt_key: it is not a regular file"),  # and is not waited for
    ],
    ids=["passphrase", "open to all", "empty", "folder", "pipe"],
)
def test_a_receipt_that_cannot_be_signed_is_written_and_the_cause_noted(
    key: Path, tmp_path: Path, place: Callable[[Path], object], why: str
) -> None:
    place(key)
    said: list[str] = []
    path = write_receipt(Prefix(tmp_path / "prefix"), "gate", {"n": 1}, said.append)
    assert [file.name for file in path.parent.iterdir()] == ["000001-gate.json"]
    (line,) = said
    assert line.startswith("  note  000001-gate.json is not signed: ")
    assert why in line.lower()


def test_a_fleet_leaves_out_receipts_that_no_listed_device_signed(key: Path, tmp_path: Path) -> None:
    stick, signers = tmp_path / "stick", tmp_path / "signers"
    lines = []
    for name in ("gate-3", "gate-7", "stranger"):
        key.unlink(missing_ok=True)
        public = make_key(key.parent, key.name).with_suffix(".pub").rename(tmp_path / f"{name}.pub")
        if name != "stranger":
            lines.append(f"{name} {public.read_text()}")
        for release in ("1.0.0-000000000001", "1.1.0-000000000002"):
            bundle = {"name": "hotel", "release_id": release}
            receipt = {"receipt": 1, "verb": "install", "verdict": "installed", "bundle": bundle, "serving": release}
            write_receipt(Prefix(stick / name), "install", receipt, print)
    signers.write_text("".join(lines))
    changed = stick / "gate-7" / "receipts" / "000002-install.json"
    changed.write_text(changed.read_text().replace("1.1.0", "1.2.0"))
    found = receipts_summary.summarize(stick, lambda file, raw: signing.signer_of(file, raw, signers))
    told = {one.name: (one.serving, one.receipts, len(one.unreadable), one.signers) for one in found.devices}
    assert told == {
        "gate-3": ("1.1.0-000000000002", 2, 0, ("gate-3",)),
        "gate-7": ("1.0.0-000000000001", 1, 1, ("gate-7",)),
        "stranger": (None, 0, 2, ()),
    }
    shown = CliRunner().invoke(main, ["receipts", str(stick), "--signers", str(signers)])
    assert shown.exit_code == 0, shown.output
    assert "left out: 000002-install.json: its signature is wrong" in " ".join(shown.output.split())
    replayed = stick / "gate-3" / "receipts"
    for suffix in (".json", ".json.sig"):
        (replayed / f"000002-install{suffix}").write_bytes((replayed / f"000001-install{suffix}").read_bytes())
    found = receipts_summary.summarize(stick, lambda file, raw: signing.signer_of(file, raw, signers))
    assert found.devices[0].unreadable == ("000002-install.json: it is receipt 1 under another name",)
    assert found.devices[0].serving == "1.0.0-000000000001"
    both = json.loads(CliRunner().invoke(main, ["receipts", str(stick), "--json"]).output)
    assert [one["receipts"] for one in both["devices"]] == [1, 2, 2]
