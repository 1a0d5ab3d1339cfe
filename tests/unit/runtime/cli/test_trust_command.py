"""The verb `trust`: only public keys are added, each change leaves a receipt, and the last key does not go unsaid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.unit.runtime.installing import silent
from tests.unit.runtime.ssh_keys import needs_ssh_keygen, public, signed, write_trusted_keys

from edgepack_runtime.cli import main, trust_command
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import EnvironmentUnfitError, ExitCode, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import trust
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix

pytestmark = needs_ssh_keygen
OUTSIDE = Context("edgert", bundle=None, release=None)


def pub(key: Path) -> Path:
    return key.with_name(f"{key.name}.pub")


def edgert(*arguments: str | Path) -> int:
    return main.run([str(argument) for argument in arguments], OUTSIDE)


def test_add_list_and_remove(keys: tuple[Path, Path], prefix: Prefix, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (public(key).fingerprint for key in keys)
    file = prefix.root / "trusted_signers"
    assert edgert("trust", "list", "--prefix", prefix.root) == 0
    assert capsys.readouterr().out == "no key is trusted: bundles of any origin are installed\n"
    assert edgert("trust", "add", pub(keys[0]), "--prefix", prefix.root) == 0
    assert capsys.readouterr().out == (
        f"added: {one} (release, ssh-ed25519)\ntrusted: {one} (release, ssh-ed25519), in {file}\n"
        f"note: nothing is installed in {prefix.root} yet\n"
    )
    assert file.read_text().splitlines()[1:] == [f'release namespaces="edgepack" {public(keys[0]).line}']
    assert file.stat().st_mode & 0o777 == 0o644
    assert edgert("trust", "add", pub(keys[1]), "--prefix", prefix.root, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [key["fingerprint"] for key in told["changed"]] == [two]
    assert [key["fingerprint"] for key in told["keys"]] == [one, two]
    assert edgert("trust", "remove", one, "--prefix", prefix.root) == 0
    assert capsys.readouterr().out == (
        f"removed: {one} (release, ssh-ed25519)\ntrusted: {two} (other, ssh-ed25519), in {file}\n"
    )
    receipts = [json.loads(path.read_text()) for path in sorted(prefix.receipts.iterdir())]
    assert [(one["verb"], one["verdict"]) for one in receipts] == [("trust", "added")] * 2 + [("trust", "removed")]
    again = trust_command.add(prefix, None, pub(keys[1]))
    assert (again["changed"], again["notes"]) == ([], [f"{two} is trusted here already"])
    assert len(list(prefix.receipts.iterdir())) == len(receipts)


def test_the_last_key_is_not_removed(
    keys: tuple[Path, Path], prefix: Prefix, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fingerprint, other = (public(key).fingerprint for key in keys)
    trust_command.add(prefix, None, pub(keys[0]))
    assert edgert("trust", "remove", fingerprint, "--prefix", prefix.root) == ExitCode.USAGE
    file = prefix.root / "trusted_signers"
    shown = capsys.readouterr().err
    assert f"{fingerprint} is the last trusted key in {file}" in shown
    assert "add another key first" in shown
    with pytest.raises(UsageError, match=re.escape(f"{other} is not listed")):
        trust_command.remove(prefix, None, other)
    write_trusted_keys(machine, keys[1])
    with pytest.raises(UsageError, match=r"it is listed in .*etc/trusted_signers"):
        trust_command.remove(prefix, None, other)


def test_a_device_without_ssh_keygen_is_told_so_at_once(
    keys: tuple[Path, Path], prefix: Prefix, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trust, "TOOLS", ())
    assert edgert("trust", "add", pub(keys[0]), "--prefix", prefix.root) == 0
    assert "note: nothing can be installed here" in capsys.readouterr().out


def test_verify_takes_the_keys_that_a_prefix_trusts(
    keys: tuple[Path, Path], bundle: Path, prefix: Prefix, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = signed(bundle, keys[0], tmp_path / "signed.edgepack")
    assert edgert("trust", "add", pub(keys[0]), "--prefix", prefix.root) == 0
    capsys.readouterr()
    assert edgert("verify", file) == 0
    assert "no key is trusted here" in capsys.readouterr().out
    assert edgert("verify", file, "--prefix", prefix.root) == 0
    assert f"signed by release, {public(keys[0]).fingerprint}" in capsys.readouterr().out
    assert edgert("trust", "add", pub(keys[1]), "--prefix", prefix.root) == 0
    assert edgert("trust", "remove", public(keys[0]).fingerprint, "--prefix", prefix.root) == 0
    assert edgert("verify", file, "--prefix", prefix.root) == ExitCode.BUNDLE_INVALID


def test_verify_of_a_bundle_takes_the_keys_of_its_default_prefix(
    keys: tuple[Path, Path],
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*words: str) -> int:
        return main.run(words, Context("sentiment", bundle=file, release=None))

    file = signed(bundle, keys[0], tmp_path / "signed.edgepack")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("trust", "add", str(pub(keys[0]))) == 0
    capsys.readouterr()
    assert run("verify") == 0
    assert f"signed by release, {public(keys[0]).fingerprint}" in capsys.readouterr().out
    signed(bundle, keys[1], file)
    assert run("verify") == ExitCode.BUNDLE_INVALID
    monkeypatch.delenv("HOME")  # there is no default prefix
    assert run("verify") == 0
    assert "no key is trusted here" in capsys.readouterr().out


def test_a_file_of_signers_is_added(keys: tuple[Path, Path], prefix: Prefix, tmp_path: Path) -> None:
    file = tmp_path / "signers"
    lines = [f"# ours\nann {public(keys[0]).line} x", f'bob namespaces="edgepack,file" {public(keys[1]).line}']
    file.write_text("\n".join([*lines, lines[0]]))
    trust_command.add(prefix, None, file)
    written = (prefix.root / "trusted_signers").read_text().splitlines()[1:]
    assert written == [f'ann namespaces="edgepack" {public(keys[0]).line}', lines[1]]


@pytest.mark.parametrize(
    ("text", "why", "fix"),
    [
        (None, "it is a private key", "never the private key"),
        ("", "", "give a public key (KEY.pub)"),
        ("hello world", "not a supported option", "give a public key"),
        ('ann valid-before="20300101" {line}', "clock may be wrong", "give a public key"),
        ('ann namespaces="file" {line}', 'is for namespaces="file" only', 'write namespaces="edgepack"'),
    ],
)
def test_invalid_keys_are_refused(
    keys: tuple[Path, Path], prefix: Prefix, tmp_path: Path, text: str | None, why: str, fix: str
) -> None:
    file = keys[0]
    if text is not None:
        file = tmp_path / "given"
        file.write_text(text.format(line=public(keys[0]).line))
    with pytest.raises(UsageError) as caught:
        trust_command.add(prefix, None, file)
    assert why in caught.value.why
    assert fix in caught.value.fix
    assert not prefix.root.exists()


def test_trust_refuses_foreign_folders(
    keys: tuple[Path, Path], prefix: Prefix, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*none\.pub"):
        trust_command.add(prefix, None, prefix.root / "none.pub")
    prefix.root.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        trust_command.add(prefix, None, prefix.root)
    (prefix.root / "theirs").touch()
    with pytest.raises(UsageError, match="not empty and holds no install"):
        trust_command.add(prefix, None, pub(keys[0]))
    assert edgert("trust", "add", pub(keys[0])) == ExitCode.USAGE
    assert "--prefix DIR" in capsys.readouterr().err
    assert edgert("trust") == ExitCode.USAGE


def test_trust_changes_nothing_during_an_install_or_in_a_damaged_list(keys: tuple[Path, Path], prefix: Prefix) -> None:
    prefix.root.mkdir()
    with state.lock(prefix), pytest.raises(EnvironmentUnfitError, match="another install"):
        trust_command.add(prefix, None, pub(keys[0]))
    (prefix.root / "trusted_signers").write_text("???")
    with pytest.raises(EnvironmentUnfitError, match="nothing can be trusted"):
        trust_command.add(prefix, None, pub(keys[0]))
    assert (prefix.root / "trusted_signers").read_text() == "???"


@pytest.mark.usefixtures("proven")
def test_trust_notes_a_serving_release_that_is_not_trusted(
    small_bundle: Path, keys: tuple[Path, Path], prefix: Prefix, tmp_path: Path
) -> None:
    install(small_bundle, prefix.root, log=silent)
    notes = trust_command.add(prefix, "sentiment", pub(keys[0]))["notes"]
    assert notes[0].startswith(
        f"{prefix.current_id()} stays active, without a trusted signature: {prefix.current_id()} is not signed"
    )
    install(signed(small_bundle, keys[0], tmp_path / "x.edgepack"), prefix.root, log=silent)
    assert trust_command.add(prefix, "sentiment", pub(keys[1]))["notes"] == []
    gone = trust_command.remove(prefix, "sentiment", public(keys[0]).fingerprint)
    assert "is signed by a key that this device does not trust" in gone["notes"][0]


def test_an_empty_list_is_explained(prefix: Prefix) -> None:
    write_trusted_keys(prefix.root)
    assert trust_command.render(trust_command.list_keys(prefix)) == "trusted: no key, so nothing can be installed"
