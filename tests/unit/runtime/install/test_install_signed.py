"""Installs with trusted keys, and the minimum sequence."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stubs import STUB
from tests.unit.runtime.installing import Device, MakeBundle, id_of, last_receipt, silent, state_of
from tests.unit.runtime.ssh_keys import public, signed, write_trusted_keys
from tests.unit.runtime.tiny_model import TUNED

from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, SIGNATURE_NAME, FileEntry, dump, parse
from edgepack_runtime.bundle.verify import verify_folder
from edgepack_runtime.cli import main
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, ExitCode, UsageError
from edgepack_runtime.install import install as install_module
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, release_process, status, trust
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback
from edgepack_runtime.util import fs


def altered(bundle: Path, out: Path, path: str, content: bytes, **fields: Any) -> Path:
    """A valid copy of `bundle` with another content of one file and other `fields` of the manifest."""
    with Archive(bundle) as archive:
        members = {name: archive.read(name, 10**8) for name in archive.members}
    manifest = parse(members.pop(MANIFEST_NAME))
    members[path] = content
    files = tuple(FileEntry(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(members.items()))
    members[MANIFEST_NAME] = dump(dataclasses.replace(manifest, files=files, **fields))
    write_bundle(dict(members), out, STUB)
    return out


@pytest.fixture(scope="module")
def bundle(make_bundle: MakeBundle) -> Path:
    """One with the runtime's sources: tests change them, or lay bytecode beside them."""
    return make_bundle(sources=True)


@pytest.fixture
def good(small_bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> Path:
    """The small bundle, signed with the first key."""
    return signed(small_bundle, keys[0], tmp_path / "x.edgepack")


def test_a_device_installs_only_updates_that_a_trusted_key_signed(
    make_bundle: MakeBundle, bundle: Path, keys: tuple[Path, Path], prefix: Prefix, device: Device, tmp_path: Path
) -> None:
    pub = keys[0].with_name("release.pub")
    added = device(sys.executable, bundle, "trust", "add", pub, "--prefix", prefix.root)
    assert added.returncode == 0, added.stderr
    assert added.stdout.splitlines()[0] == f"added: {public(keys[0]).fingerprint} (release, ssh-ed25519)"
    first = signed(bundle, keys[0], tmp_path / "first.edgepack")
    done = device(sys.executable, first, "install", "--prefix", prefix.root)
    assert done.returncode == 0, done.stderr
    entry, marker = prefix.bin / "sentiment", tmp_path / "it ran"

    code = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n".encode()
    evil = altered(
        bundle, tmp_path / "evil.edgepack", "edgepack_runtime/inference/selftest.py", code, version="1.3.0", sequence=2
    )
    for name, file in (("unsigned", evil), ("other key", signed(evil, keys[1], tmp_path / "other.edgepack"))):
        refused = device(entry, "install", file)
        assert refused.returncode == 8, (name, refused.stderr)
        assert "this device" in refused.stderr
        assert not marker.exists()
    assert {path.name for path in prefix.releases.iterdir()} == {id_of(bundle)}
    assert not prefix.staging.exists()

    second = signed(make_bundle(version="1.3.0", sequence=2), keys[0], tmp_path / "second.edgepack")
    update = device(entry, "install", second, "--json")
    assert update.returncode == 0, update.stderr
    receipt = json.loads(update.stdout)
    assert receipt["signature"]["proven"]
    assert receipt["notes"] == []
    release = prefix.releases / id_of(second)
    assert (release / SIGNATURE_NAME).is_file()
    verify_folder(release)
    again = device(entry, "verify")
    assert f"signed by release, {public(keys[0]).fingerprint}" in again.stdout
    told = json.loads(device(entry, "status", "--json").stdout)
    assert (told["notes"], told["minimum_sequence"], told["sequence"]) == ([], 2, 2)
    assert told["signature"]["proven"]
    assert [key["fingerprint"] for key in told["trusted"]] == [public(keys[0]).fingerprint]

    down = device(entry, "install", first)
    assert down.returncode == 8
    assert down.stderr.splitlines()[-3:] == [
        "error: first.edgepack is older than a bundle that was installed here before",
        f"  why: its sequence is 1 (1.2.0); 2 was installed; {id_of(second)} is active",
        "  fix: install a newer bundle, or return to the previous release with `rollback`",
    ]
    assert prefix.current_id() == id_of(second)


@pytest.mark.usefixtures("proven")
def test_the_machines_keys_apply_to_a_new_prefix(
    small_bundle: Path, good: Path, keys: tuple[Path, Path], prefix: Prefix, machine: Path
) -> None:
    write_trusted_keys(machine, keys[0])
    with pytest.raises(BundleInvalidError, match="is not signed"):
        install(small_bundle, prefix.root, log=silent)
    assert not prefix.root.exists()
    assert install(good, prefix.root, log=silent)["signature"]["trusted_in"] == str(machine / "trusted_signers")


def test_edgert_checks_the_signature_of_a_bundle_it_runs(
    bundle: Path, keys: tuple[Path, Path], machine: Path, tmp_path: Path
) -> None:
    write_trusted_keys(machine, keys[0])
    with (
        pytest.raises(BundleInvalidError, match="is not signed"),
        release_process.unpacked(bundle, check_signature=True),
    ):
        pass
    with release_process.unpacked(bundle, check_signature=False):
        pass
    runs = signed(bundle, keys[0], tmp_path / "runs.edgepack")
    with release_process.unpacked(runs, check_signature=True) as release:
        assert (release / SIGNATURE_NAME).is_file()


@pytest.fixture
def stick(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> Path:
    """A signed release in a folder that looks like a prefix."""
    release = Prefix(tmp_path / "stick").releases / id_of(bundle)
    with release_process.unpacked(signed(bundle, keys[0], tmp_path / "x.edgepack"), check_signature=False) as copy:
        shutil.copytree(copy, release)
    return release


@pytest.mark.parametrize("verb", ["selftest", "gate", "tune"])
def test_edgert_runs_nothing_from_a_folder(
    stick: Path, keys: tuple[Path, Path], machine: Path, verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its files could change between their check and their start, and bytecode lie beside it."""
    write_trusted_keys(machine, keys[0])
    before = sorted(stick.parents[1].rglob("*"))
    (stick / "__main__.py").write_text("import os; os._exit(99)")
    assert main.run([verb, str(stick)], main.Context("edgert", None, None)) == ExitCode.USAGE
    assert "is a folder" in capfd.readouterr().err
    assert sorted(stick.parents[1].rglob("*")) == before


@pytest.mark.parametrize("line", ["predict --model STICK 好", "bench STICK", "serve --model STICK"])
def test_edgert_loads_no_model_from_a_folder_where_keys_are_trusted(
    stick: Path, keys: tuple[Path, Path], machine: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trusted_keys(machine, keys[0])
    words = [str(stick) if word == "STICK" else word for word in line.split()]
    assert main.run(words, main.Context("edgert", None, None)) == ExitCode.BUNDLE_INVALID
    assert "accepts only signed bundles" in capsys.readouterr().err


def test_a_release_loads_no_model_from_a_folder_where_keys_are_trusted_in_its_prefix(
    bundle: Path, stick: Path, keys: tuple[Path, Path], prefix: Prefix, device: Device, tmp_path: Path
) -> None:
    install(signed(bundle, keys[0], tmp_path / "good.edgepack"), prefix.root, log=silent)
    entry = prefix.bin / "sentiment"
    assert device(entry, "bench", stick).returncode == ExitCode.OK
    write_trusted_keys(prefix.root, keys[0])
    refused = device(entry, "bench", stick)
    assert refused.returncode == ExitCode.BUNDLE_INVALID, refused.stderr
    assert "accepts only signed bundles" in refused.stderr
    assert device(entry, "bench").returncode == ExitCode.OK


def test_edgert_verifies_a_folder_by_the_machines_keys(
    stick: Path, keys: tuple[Path, Path], machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys beside an unpacked release do not count."""
    write_trusted_keys(machine, keys[1])
    write_trusted_keys(stick.parents[1], keys[0])
    assert main.run(["verify", str(stick)], main.Context("edgert", None, None)) == ExitCode.BUNDLE_INVALID
    assert "does not trust" in capsys.readouterr().err


def test_bytecode_that_no_manifest_lists_does_not_run(stick: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = stick / "edgepack_runtime/cli/main.py"
    code = bytearray(b"\0" * 16)
    code[:4], code[4] = importlib.util.MAGIC_NUMBER, 1  # of a hash that is not compared with the source
    code += marshal.dumps(compile("import os; os._exit(99)", str(source), "exec"))
    planted = source.parent / "__pycache__" / f"main.{sys.implementation.cache_tag}.pyc"
    planted.parent.mkdir()
    planted.write_bytes(code)
    assert release_process.run(stick, ["selftest"]) == ExitCode.BUNDLE_INVALID
    assert f"cli/__pycache__/{planted.name} is not as it was built" in capfd.readouterr().err


@pytest.mark.parametrize(
    "planted", [f"edgepack_runtime/{name}" for name in ("errors/__init__.py", "json.abi3.so", "link", "pipe")]
)
def test_no_file_beside_the_runtimes_own_is_tolerated(
    stick: Path, tmp_path: Path, planted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    file = stick / planted
    file.parent.mkdir(exist_ok=True)
    if file.name == "link":
        file.symlink_to(tmp_path)
    elif file.name == "pipe":
        os.mkfifo(file)
    else:
        file.write_text("import os; os._exit(99)")
    assert release_process.run(stick, ["selftest"]) == ExitCode.BUNDLE_INVALID
    assert f"{planted} is not as it was built" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["selftest", "gate --smoke", "predict 好"])
def test_no_module_beside_the_runtime_runs(stick: Path, verb: str) -> None:
    """Neither in the place of a module of Python's nor for one that Python looks for and does not have."""
    for name in [*sys.stdlib_module_names, "sitecustomize", "usercustomize"]:
        (stick / f"{name}.py").write_text("import os; os._exit(99)")
    assert release_process.run(stick, verb.split()) != 99


@pytest.mark.parametrize("verb", ["selftest", "gate --smoke", "predict 好"])
def test_no_package_of_a_release_stands_before_python_or_the_runtime(stick: Path, verb: str) -> None:
    """Names of modules that this Python lacks are refused when a bundle is built."""
    for name in [name for name in sys.stdlib_module_names if importlib.util.find_spec(name)] + ["edgepack_runtime"]:
        (stick / "site" / f"{name}.py").write_text("import os; os._exit(99)")
    assert release_process.run(stick, verb.split()) != 99


@pytest.mark.parametrize("verb", ["install", "doctor", "verify", "selftest", "gate", "tune", "verify of a folder"])
def test_no_manifest_is_parsed_before_its_signature_is_checked(
    bundle: Path, installed: Prefix, keys: tuple[Path, Path], machine: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trusted_keys(machine, keys[0])
    path = installed.current if verb.endswith("folder") else bundle
    monkeypatch.setattr(contract, "parse", lambda raw: pytest.fail("it was parsed"))
    assert main.run([verb.split()[0], str(path)], main.Context("edgert", None, None)) == ExitCode.BUNDLE_INVALID


@pytest.mark.parametrize("name", ["trusted_signers", "revoked_keys"])
def test_keys_that_are_trusted_or_revoked_during_an_install_count(
    good: Path, keys: tuple[Path, Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    @contextlib.contextmanager
    def later(taken: Prefix) -> Iterator[None]:
        line = public(keys[name == "trusted_signers"]).line
        (taken.root / name).write_text(f"ann {line}\n" if name == "trusted_signers" else f"{line}\n")
        with state.lock(taken):
            yield

    monkeypatch.setattr(install_module, "lock", later)
    with pytest.raises(BundleInvalidError, match=r"revoked|does not trust"):
        install(good, prefix.root, log=silent)
    assert prefix.current_id() is None


@pytest.mark.usefixtures("proven")
def test_a_bundle_of_another_name_that_is_installed_meanwhile_keeps_the_prefix(
    make_bundle: MakeBundle, small_bundle: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_bundle(name="other")

    @contextlib.contextmanager
    def later(taken: Prefix) -> Iterator[None]:
        monkeypatch.setattr(install_module, "lock", state.lock)
        install(other, prefix.root, log=silent)
        with state.lock(taken):
            yield

    monkeypatch.setattr(install_module, "lock", later)
    with pytest.raises(UsageError, match="holds another bundle, other"):
        install(small_bundle, prefix.root, log=silent)
    assert prefix.current_id() == id_of(other)


@pytest.mark.usefixtures("proven")
def test_a_key_that_is_revoked_during_the_self_test_counts(
    good: Path, keys: tuple[Path, Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove = install_module._prove

    def later(run: Any, stage: Path) -> None:
        prove(run, stage)
        (prefix.root / "revoked_keys").write_text(f"{public(keys[0]).line}\n")

    monkeypatch.setattr(install_module, "_prove", later)
    with pytest.raises(BundleInvalidError, match="revoked"):
        install(good, prefix.root, log=silent)
    assert prefix.current_id() is None


@pytest.mark.usefixtures("proven")
def test_install_without_trusted_keys_notes_that_the_origin_is_not_verified(small_bundle: Path, prefix: Prefix) -> None:
    lines: list[str] = []
    receipt = install(small_bundle, prefix.root, log=lines.append)
    how = "`trust add KEY.pub` adds one; with --prefix DIR for the install in DIR, and `verify --prefix DIR` asks it"
    note = f"origin not verified: not signed, and no key is trusted here ({how})"
    assert receipt["notes"] == [note]
    assert f"  note  {note}" in lines
    assert receipt["signature"] == {
        "signed": False, "proven": False, "fingerprint": None, "principals": None, "trusted_in": None, "note": note,
        "refused": False,
    }  # fmt: skip
    found = status.status(prefix)
    assert (found["notes"], found["trusted"]) == ([], [])
    assert "  signed   no" in status.render(found)


def test_keys_trusted_after_an_install_ask_for_a_signed_one(
    small_bundle: Path, good: Path, keys: tuple[Path, Path], installed: Prefix
) -> None:
    write_trusted_keys(installed.root, keys[0])
    found = status.status(installed)
    assert found["ok"]
    assert "is not signed by a key that this device trusts" in found["notes"][0]
    assert install(good, installed.root, log=silent)["verdict"] == "installed"  # another signature is no damage
    assert status.status(installed)["notes"] == []
    assert install(good, installed.root, log=silent)["verdict"] == "already installed"
    write_trusted_keys(installed.root, keys[1])
    text = status.render(status.status(installed))
    assert f"signed   by {public(keys[0]).fingerprint}, not accepted, see below" in text
    assert install(signed(small_bundle, keys[1], good), installed.root, log=silent)["verdict"] == "installed"
    assert status.status(installed)["signature"]["proven"]


@pytest.mark.usefixtures("proven")
def test_an_unsigned_copy_does_not_remove_the_signature(small_bundle: Path, good: Path, prefix: Prefix) -> None:
    install(good, prefix.root, log=silent)
    assert install(small_bundle, prefix.root, log=silent)["verdict"] == "already installed"
    assert (prefix.current / SIGNATURE_NAME).is_file()
    (prefix.current / "model/model.onnx").write_bytes(b"damaged")
    assert install(small_bundle, prefix.root, log=silent)["verdict"] == "repaired"
    assert (prefix.current / SIGNATURE_NAME).is_file()
    (prefix.current / SIGNATURE_NAME).write_bytes(b"damaged")
    with pytest.raises(BundleInvalidError, match="is not an SSH signature"):
        verify_folder(prefix.current)
    assert install(small_bundle, prefix.root, log=silent)["verdict"] == "repaired"
    verify_folder(prefix.current)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_install_refuses_a_signed_bundle_with_any_bit_flipped(
    good: Path, keys: tuple[Path, Path], prefix: Prefix, tmp_path: Path, data: st.DataObject
) -> None:
    write_trusted_keys(prefix.root, keys[0])
    raw = bytearray(good.read_bytes())
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[at // 8] ^= 1 << at % 8
    bad = tmp_path / "bad.edgepack"
    bad.write_bytes(raw)
    before = sorted(prefix.root.iterdir())
    with pytest.raises(BundleInvalidError):
        install(bad, prefix.root, log=silent)
    assert sorted(prefix.root.iterdir()) == before


@pytest.mark.usefixtures("proven")
def test_install_refuses_files_that_change_after_the_check(
    good: Path, keys: tuple[Path, Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trusted_keys(prefix.root, keys[0])
    real, chunks, other = state.lock, Archive.chunks, bytes(reversed(range(256)))

    def swap(place: Prefix) -> Any:  # the first step after the check
        monkeypatch.setattr(
            Archive, "chunks", lambda self, m: iter([other]) if m.path == "model/model.onnx" else chunks(self, m)
        )
        return real(place)

    monkeypatch.setattr("edgepack_runtime.install.install.lock", swap)
    with pytest.raises(BundleInvalidError, match=r"model/model\.onnx: its content has changed"):
        install(good, prefix.root, log=silent)
    assert prefix.current_id() is None
    assert not prefix.staging.exists()


@pytest.fixture
def releases(small_bundle: Path, tmp_path: Path) -> list[Path]:
    """Sequences 0 to 3."""
    return [
        altered(small_bundle, tmp_path / f"{n}.edgepack", "golden/n", b"%d" % n, version=f"1.{n}.0", sequence=n)
        for n in range(4)
    ]


@pytest.mark.usefixtures("proven")
def test_the_minimum_sequence_never_decreases(releases: list[Path], prefix: Prefix) -> None:
    install(releases[1], prefix.root, log=silent)
    assert state_of(prefix).minimum_sequence == 1
    install(releases[3], prefix.root, log=silent)
    for older in releases[:3]:
        with pytest.raises(BundleInvalidError, match="is older than a bundle that was installed here before"):
            install(older, prefix.root, log=silent)
        assert (state_of(prefix).minimum_sequence, prefix.current_id()) == (3, id_of(releases[3]))
    last = last_receipt(prefix, "install")
    assert (last["verdict"], last["exit_code"]) == ("not installed", 8)


def test_install_repairs_the_serving_release_below_the_minimum_sequence(small_bundle: Path, installed: Prefix) -> None:
    state.write_state(installed, dataclasses.replace(state_of(installed), minimum_sequence=3))
    (installed.current / "site/词.txt").write_bytes(b"x")
    assert install(small_bundle, installed.root, log=silent)["verdict"] == "repaired"
    assert state_of(installed).minimum_sequence == 3


def test_install_notes_another_bundle_with_the_same_sequence(
    releases: list[Path], small_bundle: Path, installed: Prefix
) -> None:
    receipt = install(releases[1], installed.root, log=silent)
    was = id_of(small_bundle)
    note = f"another bundle with the same sequence (1) is here: {was} serves until this one passed"
    assert note in receipt["notes"]


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize(
    "damage", [b"\0" * 100, b'{"state_format": 1, "name": "sentiment", "minimum_sequence": -1}', b"[]"]
)
def test_a_rebuilt_state_keeps_the_minimum_sequence(releases: list[Path], prefix: Prefix, damage: bytes) -> None:
    """The minimum sequence comes from the receipts, or without them from `current`."""
    for bundle in releases[1:]:
        install(bundle, prefix.root, log=silent)
    fs.switch_link(prefix.current, f"releases/{id_of(releases[2])}")
    prefix.state_file.write_bytes(damage)
    with pytest.raises(BundleInvalidError, match="; 3 was installed"):
        install(releases[1], prefix.root, log=silent)
    assert state_of(prefix).minimum_sequence == 3
    for receipt in prefix.receipts.iterdir():
        receipt.write_bytes(b"{" if receipt.name < "000002" else b'{"bundle": null}')
    prefix.state_file.write_bytes(damage)
    with pytest.raises(BundleInvalidError, match="; 2 was installed"):
        install(releases[1], prefix.root, log=silent)


@pytest.mark.usefixtures("proven")
def test_an_uncommitted_release_does_not_raise_the_minimum_sequence(
    releases: list[Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(releases[1], prefix.root, log=silent)
    monkeypatch.setattr(
        release_process,
        "run_json",
        lambda *args, **options: (ExitCode.GATE_FAILED, {"verdict": "fail", "checks": [], **TUNED}),
    )
    with pytest.raises(EdgepackError):
        install(releases[3], prefix.root, log=silent)
    assert state_of(prefix).minimum_sequence == 1
    prefix.state_file.write_bytes(b"")
    assert receipts.highest_installed(prefix) == 1


@pytest.mark.usefixtures("proven")
def test_only_root_rolls_back_to_a_release_that_a_revoked_key_signed(
    make_bundle: MakeBundle, good: Path, keys: tuple[Path, Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(good, prefix.root, log=silent)
    install(make_bundle(version="0.0.2", sequence=2), prefix.root, log=silent)
    (prefix.root / "revoked_keys").write_text(public(keys[0]).line + "\n")
    with pytest.raises(BundleInvalidError, match="revoked") as caught:
        rollback(prefix.root, None, log=silent)
    assert "--allow-revoked" in caught.value.fix and prefix.current_id() != id_of(good)
    assert status.status(prefix)["notes"] == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match="only root"):
        rollback(prefix.root, None, log=silent, allow_revoked=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert rollback(prefix.root, None, log=silent, allow_revoked=True)["notes"] == [
        f"{id_of(good)} is signed by a key that is revoked, and root allowed it"
    ]
    assert prefix.current_id() == id_of(good)
    found = status.status(prefix)
    assert f"{id_of(good)} is signed by a key that is revoked" in found["notes"][0] and found["trusted"] == []
    assert f"signed   by {public(keys[0]).fingerprint}, not accepted, see below" in status.render(found)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("unusable", ["damaged line", "writable by all", "damaged trusted_signers", "no ssh-keygen"])
def test_no_rollback_where_the_keys_cannot_be_used(
    make_bundle: MakeBundle,
    good: Path,
    keys: tuple[Path, Path],
    prefix: Prefix,
    monkeypatch: pytest.MonkeyPatch,
    unusable: str,
) -> None:
    install(good, prefix.root, log=silent)
    second = make_bundle(version="0.0.2", sequence=2)
    install(second, prefix.root, log=silent)
    revoked = prefix.root / "revoked_keys"
    revoked.write_text(
        public(keys[0]).line + "\n" + ("ssh-ed25519 AAAAdamaged\n" if unusable == "damaged line" else "")
    )
    if unusable == "writable by all":
        revoked.chmod(0o666)
    elif unusable == "damaged trusted_signers":
        (prefix.root / "trusted_signers").write_text("x y z\n")
    elif unusable == "no ssh-keygen":
        monkeypatch.setattr(trust, "TOOLS", ())
    with pytest.raises(EnvironmentUnfitError):
        rollback(prefix.root, None, log=silent)
    assert prefix.current_id() == id_of(second)
