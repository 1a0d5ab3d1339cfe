"""Uninstalls: files of an install are removed, foreign files stay, and a kill at any point is recoverable."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import Device, full_disk, last_receipt, silent

from edgepack_runtime.errors import EnvironmentUnfitError, ExitCode, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status, uninstall
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback


def entries(prefix: Prefix) -> set[str]:
    return {path.name for path in prefix.root.iterdir()}


def remove(prefix: Prefix, *, purge: bool = False, name: str | None = None) -> dict[str, Any]:
    return uninstall.uninstall(prefix.root, name, purge=purge, log=silent)


@pytest.mark.parametrize("purge", [False, True])
def test_an_install_is_removed_by_its_own_launcher(
    bundle: Path, second: Path, prefix: Prefix, device: Device, purge: bool
) -> None:
    for item in (bundle, second):
        install(item, prefix.root, log=silent)
    entry = prefix.bin / "sentiment"
    done = device(entry, "uninstall", *(["--purge"] if purge else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("uninstalled: sentiment")
    assert "note" not in done.stderr
    if purge:
        assert not prefix.root.exists()
        return
    assert entries(prefix) == {"receipts", "state.json"}
    receipt = last_receipt(prefix, "uninstall")
    assert (receipt["verdict"], receipt["serving"]) == ("uninstalled", None)
    again = device(sys.executable, bundle, "status", "--prefix", prefix.root)
    assert again.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert again.stdout.startswith(f"nothing is installed in {prefix.root}\n  uninstall uninstalled (1.3.0-")


def unusual(receipt: dict[str, Any]) -> list[str]:
    """The notes of a receipt, without the one that every unsigned bundle gets."""
    return [note for note in receipt["notes"] if not note.startswith("origin not verified")]


def test_an_uninstalled_bundle_can_be_installed_again(installed: Prefix, small_bundle: Path) -> None:
    remove(installed)
    with pytest.raises(EnvironmentUnfitError, match="nothing is installed"):
        remove(installed)
    assert len(list(installed.receipts.iterdir())) == 2
    again = install(small_bundle, installed.root, log=silent)
    assert (again["verdict"], unusual(again), again["previous"]) == ("installed", [], None)
    assert len(list(installed.receipts.iterdir())) == 3
    remove(installed)
    remove(installed, purge=True)
    assert not installed.root.exists()


def test_uninstall_leaves_and_names_foreign_files(installed: Prefix) -> None:
    (installed.root / "notes.txt").touch()
    (installed.releases / "not-ours").mkdir()
    (installed.bin / "other").touch()
    (installed.receipts / "summary.txt").touch()
    (installed.root / "trusted_signers").touch()
    receipt = remove(installed)
    assert receipt["notes"] == [f"not part of an install, so they stay in {installed.root}: bin, notes.txt, releases"]
    assert entries(installed) == {"bin", "notes.txt", "receipts", "releases", "state.json", "trusted_signers"}
    remove(installed, purge=True)
    assert entries(installed) == {"bin", "notes.txt", "receipts", "releases"}
    assert [path.name for path in installed.receipts.iterdir()] == ["summary.txt"]


@pytest.mark.parametrize("folder", ["releases", "tuning", "receipts"])
def test_uninstall_refuses_links_where_an_install_has_folders(installed: Prefix, tmp_path: Path, folder: str) -> None:
    moved = tmp_path / "shared"
    place = installed.root / folder
    if place.exists():
        place.rename(moved)
    else:
        moved.mkdir()
    place.symlink_to(moved)
    before = sorted(moved.rglob("*"))
    with pytest.raises(EnvironmentUnfitError, match=f"links where an install has folders: {folder}"):
        remove(installed, purge=True)
    assert sorted(moved.rglob("*")) == before
    assert installed.current.is_symlink()


@pytest.mark.parametrize("folder", ["releases", "bin", "tuning", "interpreters", "receipts", "systemd"])
def test_no_verb_goes_where_a_link_in_a_prepared_prefix_leads(
    small_bundle: Path, make_bundle: Any, installed: Prefix, tmp_path: Path, folder: str
) -> None:
    """A folder of somebody else with a state.json and a link to another install: nothing there is lost or changed."""
    prepared, other = Prefix(tmp_path / "prepared"), make_bundle(version="1.3.0", sequence=2)
    prepared.root.mkdir()
    prepared.state_file.write_bytes(installed.state_file.read_bytes())
    (installed.root / folder).mkdir(exist_ok=True)
    (prepared.root / folder).symlink_to(installed.root / folder)
    before = {path: path.lstat().st_mtime_ns for path in installed.root.rglob("*")}
    for verb in (
        lambda: install(other, prepared.root, log=silent),
        lambda: install(small_bundle, prepared.root, log=silent),
        lambda: rollback(prepared.root, None, log=silent),
        lambda: remove(prepared, purge=True),
    ):
        with pytest.raises(EnvironmentUnfitError, match=f"links where an install has folders: {folder}"):
            verb()
    assert {path: path.lstat().st_mtime_ns for path in installed.root.rglob("*")} == before


def test_uninstall_removes_links_and_not_what_they_point_to(installed: Prefix, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    release = installed.releases / str(installed.current_id())
    (release / "extra").symlink_to(precious)
    (installed.bin / "sentiment").unlink()
    (installed.bin / "sentiment").symlink_to(precious / "file")
    (installed.releases / "0.9.0-0123456789ab").symlink_to(precious)
    remove(installed, purge=True)
    assert not installed.root.exists()
    assert (precious / "file").exists()


def test_uninstall_refuses_a_foreign_folder(installed: Prefix, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        remove(installed, name="other")
    theirs = Prefix(tmp_path / "theirs")
    (theirs.root / "releases").mkdir(parents=True)
    theirs.state_file.write_text('{"terraform": 1}')
    with pytest.raises(UsageError, match="holds no install"):
        remove(theirs, purge=True)
    assert entries(theirs) == {"releases", "state.json"}
    with pytest.raises(EnvironmentUnfitError, match="nothing is installed"):
        remove(Prefix(tmp_path / "none"))


def test_uninstall_removes_an_install_with_a_damaged_state(installed: Prefix) -> None:
    installed.state_file.write_bytes(b"\0" * 50)
    receipt = remove(installed)
    assert "damaged" in receipt["notes"][0]
    assert entries(installed) == {"receipts", "state.json"}


def test_uninstall_refuses_while_systemd_uses_a_unit(
    installed: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = installed.root / "systemd" / "sentiment.service"
    unit.parent.mkdir()
    unit.touch()
    monkeypatch.setattr(uninstall, "UNITS", tmp_path / "etc")
    (tmp_path / "etc").mkdir()
    link = tmp_path / "etc" / "sentiment.service"
    link.symlink_to(unit)
    with pytest.raises(EnvironmentUnfitError) as caught:
        remove(installed)
    assert caught.value.fix == "sudo systemctl disable --now sentiment; then uninstall again"
    assert installed.current_id() is not None
    link.unlink()
    link.write_text(f"[Service]\nExecStart={installed.bin}/sentiment serve\n")
    with pytest.raises(EnvironmentUnfitError) as caught:
        remove(installed)
    assert caught.value.fix == f"sudo systemctl disable --now sentiment; sudo rm {link}; then uninstall again"
    link.unlink()
    link.symlink_to(tmp_path / "another.service")
    remove(installed, purge=True)
    assert not installed.root.exists()


def test_uninstall_refuses_while_a_server_runs(installed: Prefix) -> None:
    program = installed.releases / str(installed.current_id()) / "__main__.py"
    wait = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    for verb, refused in (("serve", True), ("predict", False)):
        with subprocess.Popen([*wait, program, verb], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.readline()
            if refused:
                with pytest.raises(EnvironmentUnfitError) as caught:
                    remove(installed)
                assert caught.value.what == f"`serve` runs from {installed.root}"
                assert caught.value.fix == f"kill {process.pid}; then uninstall again"
                assert installed.current_id() is not None
            else:
                remove(installed)
            process.stdin.close()
    assert installed.current_id() is None


def test_uninstall_works_on_a_full_disk(installed: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    real = receipts.write_receipt

    def full(prefix: Prefix, verb: str, receipt: dict[str, Any], say: Callable[[str], None]) -> Path:
        if prefix.releases.exists():
            full_disk()
        return real(prefix, verb, receipt, say)

    monkeypatch.setattr(receipts, "write_receipt", full)
    remove(installed)
    assert last_receipt(installed, "uninstall")
    monkeypatch.setattr(receipts, "write_receipt", full_disk)
    installed.releases.mkdir()
    with pytest.raises(EnvironmentUnfitError, match="receipt cannot be written; the verdict is: uninstalled"):
        remove(installed)


def test_an_interrupted_uninstall_is_reported_and_continues(installed: Prefix, small_bundle: Path) -> None:
    current = installed.current_id()
    installed.current.unlink()
    found = status.status(installed)
    assert (found["ok"], found["current"]) == (False, None)
    assert found["notes"] == [f"an uninstall of {current} was interrupted, or `current` was removed by hand"]
    assert status.holds_install(found)
    again = install(small_bundle, installed.root, log=silent)
    assert unusual(again) == [f"an uninstall of {current} was interrupted, or `current` was removed by hand"]
    installed.current.unlink()
    assert remove(installed)["previous"] == current
    assert entries(installed) == {"receipts", "state.json"}


def test_uninstall_refuses_while_an_install_runs(installed: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    with state.lock(installed), pytest.raises(EnvironmentUnfitError, match="is running"):
        remove(installed)
    assert installed.current_id() is not None
    real = os.open

    def removed_meanwhile(path: Any, *args: Any, **options: Any) -> int:
        descriptor = real(path, *args, **options)
        if path == installed.lock_file:
            installed.lock_file.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", removed_meanwhile)
    with pytest.raises(EnvironmentUnfitError, match="ended just now"), state.lock(installed):
        raise AssertionError


@pytest.mark.parametrize(("answer", "gone"), [("y", True), ("n", False), ("", False)])
def test_uninstall_asks_for_confirmation_on_a_terminal(served_prefix: Prefix, answer: str, gone: bool) -> None:
    prefix = served_prefix
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [prefix.bin / "sentiment", "uninstall", "--json"], stdin=theirs, capture_output=True, text=True, timeout=60
    )
    os.close(ours)
    os.close(theirs)
    assert f"remove the install in {prefix.root}? [y/N]" in done.stderr
    assert prefix.current.is_symlink() != gone
    assert done.returncode == (0 if gone else ExitCode.USAGE)
    assert (json.loads(done.stdout)["verdict"] == "uninstalled") if gone else "nothing was removed" in done.stderr


def test_uninstall_removes_partial_files(installed: Prefix) -> None:
    (installed.root / ".state.json.0123456789ab.tmp").touch()
    (installed.root / ".current.tmp").touch()
    (installed.receipts / ".000002-uninstall.json.0123456789ab.tmp").touch()
    (installed.receipts / ".000002-gate.json.0123456789ab.tmp").touch()
    (installed.interpreters / ".1.0.0-0123456789ab.0123456789ab.tmp").touch()
    (installed.root / ".work.tmp").mkdir()
    state.clear_temporary(installed)
    assert {path.name for path in installed.root.rglob("*.tmp")} == {
        ".000002-gate.json.0123456789ab.tmp", ".work.tmp",
    }  # fmt: skip


def test_files_of_somebody_else_are_neither_removed_nor_taken_for_leftovers(small_bundle: Path, prefix: Prefix) -> None:
    (prefix.root / ".work.tmp").mkdir(parents=True)
    (prefix.root / ".work.tmp" / "thesis").touch()
    (prefix.root / ".notes.tmp").touch()
    prefix.lock_file.touch()
    with pytest.raises(UsageError, match="is not empty and holds no install"):
        install(small_bundle, prefix.root, log=silent)
    with pytest.raises(UsageError, match="holds no install"):
        remove(prefix)
    assert {".work.tmp", ".notes.tmp"} <= entries(prefix)
    assert (prefix.root / ".work.tmp" / "thesis").exists()


@pytest.mark.usefixtures("proven")
def test_an_install_that_was_killed_after_its_commit_counts_for_the_minimum_sequence(
    small_bundle: Path, make_bundle: Any, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(small_bundle, prefix.root, log=silent)
    before = prefix.state_file.read_bytes()
    install(make_bundle(version="3.0.0", sequence=3_000_000), prefix.root, log=silent)
    prefix.state_file.write_bytes(before)  # as after a kill between the switch and the new state
    (prefix.receipts / "000002-install.json").unlink()
    remove(prefix)
    found = state.read_state(prefix)
    assert found is not None and found.minimum_sequence == 3_000_000


@pytest.mark.usefixtures("proven")
def test_an_install_removes_no_file_beside_its_own(small_bundle: Path, make_bundle: Any, prefix: Prefix) -> None:
    install(small_bundle, prefix.root, log=silent)
    prefix.tuning.mkdir(exist_ok=True)
    (prefix.tuning / "lr_sweep.csv").touch()
    (prefix.tuning / "9.9.9-0123456789ab.json").touch()
    install(make_bundle(version="1.3.0", sequence=2), prefix.root, log=silent)
    assert (prefix.tuning / "lr_sweep.csv").exists()
    assert not (prefix.tuning / "9.9.9-0123456789ab.json").exists()


def test_any_state_json_makes_no_install_of_a_folder(small_bundle: Path, prefix: Prefix) -> None:
    prefix.root.mkdir(parents=True, exist_ok=True)
    prefix.state_file.write_text("{}")
    (prefix.root / "thesis.txt").touch()
    with pytest.raises(UsageError, match="is not empty and holds no install"):
        install(small_bundle, prefix.root, log=silent)
    assert prefix.state_file.read_text() == "{}"
