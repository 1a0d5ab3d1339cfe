"""Receipts that a device signs with a key of its own, and what is said where it cannot."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from ssh_keys import make_key, needs_ssh_keygen

from edgepack.bundle import signing
from edgepack.cli import main
from edgepack.gating import fleet
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install import receipts as sealing
from edgepack_runtime.install.prefix import Prefix

pytestmark = needs_ssh_keygen


@pytest.fixture(autouse=True)
def _machine_has_a_folder(machine: Path) -> None:
    machine.mkdir()


def gate_receipt(release: str) -> dict[str, object]:
    bundle = {"name": "hotel", "release_id": release}
    return {"receipt": 1, "verb": "install", "verdict": "installed", "bundle": bundle, "serving": release}


def test_without_a_key_nothing_is_signed_and_nothing_is_said(machine: Path, tmp_path: Path) -> None:
    said: list[str] = []
    path = receipts.write_receipt(Prefix(tmp_path), "install", {"n": 1}, said.append)
    assert [file.name for file in path.parent.iterdir()] == ["000001-install.json"]
    assert said == []


def test_with_one_every_receipt_is(machine: Path, tmp_path: Path) -> None:
    key = make_key(machine, sealing.KEY_NAME)
    said: list[str] = []
    paths = [receipts.write_receipt(Prefix(tmp_path), "install", {"n": n}, said.append) for n in (1, 2)]
    assert [path.name for path in paths] == ["000001-install.json", "000002-install.json"]
    assert said == []
    signers = tmp_path / "signers"
    signers.write_text(f"gate-3 {key.with_suffix('.pub').read_text()}")
    for path in paths:
        assert stat.S_IMODE(path.with_name(path.name + ".sig").stat().st_mode) == 0o644
        assert signing.signer_of(path, path.read_bytes(), signers) == "gate-3"
    with pytest.raises(ValueError, match="wrong"):
        signing.signer_of(paths[0], paths[1].read_bytes(), signers)
    assert receipts.last_receipt(Prefix(tmp_path), "install") == {"n": 2}


def test_its_signature_is_none_of_a_bundle(machine: Path, tmp_path: Path) -> None:
    make_key(machine, sealing.KEY_NAME)
    path = receipts.write_receipt(Prefix(tmp_path), "install", {"n": 1}, print)
    signature = path.with_name(path.name + ".sig").read_bytes()
    with pytest.raises(trust.BundleInvalidError, match="something else"):
        trust.is_right("hotel", path.read_bytes(), signature)


@pytest.mark.parametrize(
    ("damage", "told"), [("passphrase", "passphrase"), ("no key", "receipt_key"), ("open to all", "permissions")]
)
def test_why_it_cannot_be_signed_is_said(machine: Path, tmp_path: Path, damage: str, told: str) -> None:
    key = machine / sealing.KEY_NAME
    if damage == "no key":
        key.write_text("nothing\n")
        key.chmod(0o600)
    else:
        make_key(machine, sealing.KEY_NAME, passphrase="secret" if damage == "passphrase" else "")
    if damage == "open to all":
        key.chmod(0o644)
    said: list[str] = []
    path = receipts.write_receipt(Prefix(tmp_path / "prefix"), "gate", {"n": 1}, said.append)
    assert [file.name for file in path.parent.iterdir()] == ["000001-gate.json"]
    (line,) = said
    assert line.startswith("  note  000001-gate.json is not signed: ")
    assert told in line.lower()


def test_a_key_that_others_may_read_only(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / sealing.KEY_NAME).mkdir()  # what cannot be opened as a file, whoever runs this
    said: list[str] = []
    receipts.write_receipt(Prefix(tmp_path), "gate", {"n": 1}, said.append)
    assert said == [f"  note  000001-gate.json is not signed: {machine / sealing.KEY_NAME}: {os.strerror(21)}"]


def test_a_pipe_is_no_key_and_is_not_waited_for(machine: Path, tmp_path: Path) -> None:
    os.mkfifo(machine / sealing.KEY_NAME)
    said: list[str] = []
    receipts.write_receipt(Prefix(tmp_path), "gate", {"n": 1}, said.append)
    assert said == [f"  note  000001-gate.json is not signed: {machine / sealing.KEY_NAME}: it is no file"]


def test_what_no_listed_device_signed_is_left_out(machine: Path, tmp_path: Path) -> None:
    stick, signers = tmp_path / "stick", tmp_path / "signers"
    lines = []
    for name in ("gate-3", "gate-7", "stranger"):
        (machine / sealing.KEY_NAME).unlink(missing_ok=True)
        key = make_key(machine, sealing.KEY_NAME)
        (key.parent / "receipt_key.pub").rename(tmp_path / f"{name}.pub")
        if name != "stranger":
            lines.append(f"{name} {(tmp_path / f'{name}.pub').read_text()}")
        prefix = Prefix(stick / name)
        receipts.write_receipt(prefix, "install", gate_receipt("1.0.0-000000000001"), print)
        receipts.write_receipt(prefix, "install", gate_receipt("1.1.0-000000000002"), print)
    signers.write_text("".join(lines))
    changed = stick / "gate-7" / "receipts" / "000002-install.json"
    changed.write_text(changed.read_text().replace("1.1.0", "1.2.0"))
    found = fleet.summarize(stick, lambda file, raw: signing.signer_of(file, raw, signers))
    told = {one.name: (one.serving, one.receipts, len(one.unreadable), one.signers) for one in found.devices}
    assert told == {
        "gate-3": ("1.1.0-000000000002", 2, 0, ("gate-3",)),
        "gate-7": ("1.0.0-000000000001", 1, 1, ("gate-7",)),
        "stranger": (None, 0, 2, ()),
    }
    shown = CliRunner().invoke(main, ["receipts", str(stick), "--signers", str(signers)])
    assert shown.exit_code == 0, shown.output
    assert "left out: 000002-install.json: its signature is wrong" in " ".join(shown.output.split())
    both = json.loads(CliRunner().invoke(main, ["receipts", str(stick), "--json"]).output)
    assert [one["receipts"] for one in both["devices"]] == [2, 2, 2]
