"""Signing on the build side: the manifest's bytes, one more member, and every other byte as it was."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stubs import STUB, STUB_SHA256
from tests.unit.runtime.ssh_keys import make_key, needs_ssh_keygen, public, sign

from edgepack.bundle import signing
from edgepack.bundle.archive import write_bundle, write_signed
from edgepack.cli import main
from edgepack.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError, UsageError
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import (
    MANIFEST_NAME,
    MAX_SIGNATURE_BYTES,
    SIGNATURE_NAME,
    FileEntry,
    Manifest,
    TargetFacts,
    dump,
)
from edgepack_runtime.install import trust

pytestmark = needs_ssh_keygen
Members = dict[str, Path | bytes]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "release"), make_key(folder, "other")


def members_of(files: dict[str, bytes]) -> Members:
    entries = tuple(FileEntry(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(files.items()))
    facts = TargetFacts("test", ("x86_64",), "2.5", "host", "CPUExecutionProvider")
    manifest = Manifest("hotel", "1.2.0", 1, "task", facts, {}, {}, (), {}, "0" * 64, STUB_SHA256, (), entries)
    return {**files, MANIFEST_NAME: dump(manifest)}


FILES = {
    "__main__.py": b"raise SystemExit(0)\n",
    "model/model.onnx": b"\x12\x80\x12" + bytes(range(256)) * 9,
    "site/x.py": b"",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    file = tmp_path / "hotel.edgepack"
    write_bundle(members_of(FILES), file, STUB)
    return file


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_bundle_is_signed_in_place_and_again_by_another_key(bundle: Path, keys: tuple[Path, Path]) -> None:
    unsigned = bundle.read_bytes()
    one, two = (public(key).fingerprint for key in keys)
    assert run("verify", bundle)[1].splitlines()[1] == "not signed"
    assert run("sign", bundle, "--key", keys[0]) == (0, f"{bundle}: signed by {one}\n")
    first = bundle.read_bytes()
    assert run("verify", bundle)[1].splitlines()[1] == (f"signed by {one}; --signers FILE checks whose key it is")
    assert run("verify", bundle, "--signers", f"{keys[0]}.pub")[1].splitlines()[1] == f"signed by release, {one}"
    code, said = run("verify", bundle, "--signers", f"{keys[1]}.pub")
    assert (code, "is signed by a key that this device does not trust" in said) == (8, True)
    run("sign", bundle, "--key", keys[1])
    assert f"signed by {two}" in run("verify", bundle)[1]
    run("sign", bundle, "--key", keys[0])
    assert bundle.read_bytes() == first  # ed25519 signs the same bytes the same way
    assert first != unsigned
    assert [path.name for path in bundle.parent.iterdir()] == [bundle.name]


def test_its_digest_is_updated_where_it_is_signed_in_place(
    bundle: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    sums, other = tmp_path / "hotel-1.2.0.sha256", tmp_path / "other.sha256"
    kept = [f"{'0' * 64}  {name}" for name in ("models/hotel.edgepack", "old hotel.edgepack")]
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    text = "\n".join([kept[0], f"{digest}  hotel.edgepack", kept[1], ""])
    sums.write_text(text)
    other.write_text(kept[0])
    os.mkfifo(tmp_path / "a.sha256")
    (tmp_path / "b.sha256").symlink_to("/dev/zero")
    assert "updated the line" not in run("sign", bundle, "--key", keys[0], "--output", tmp_path / "out.edgepack")[1]
    assert sums.read_text() == text
    code, said = run("sign", bundle, "--key", keys[0])
    assert (code, said.splitlines()[1:]) == (0, [f"{sums}: updated the line of hotel.edgepack"])
    assert sums.read_text() == text.replace(digest, hashlib.sha256(bundle.read_bytes()).hexdigest())
    assert other.read_text() == kept[0]
    assert "updated the line" not in run("sign", bundle, "--key", keys[0])[1]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "public key beside"])
@pytest.mark.parametrize(
    ("change", "mode", "hint"),
    [
        (lambda raw: raw.removesuffix(b"\n"), 0o600, "does a private key end with a line break, and has none with a"),
        (lambda raw: raw.replace(b"\n", b"\r\n"), 0o600, "has none with a carriage return?"),
        (lambda raw: raw, 0o644, "chmod 600 '{key}'"),
    ],
    ids=["no line break", "CRLF", "others may read it"],
)
def test_a_key_out_of_a_secret_gets_a_hint(
    bundle: Path, keys: tuple[Path, Path], tmp_path: Path, change: Callable[[bytes], bytes],
    mode: int, hint: str, beside: bool,
) -> None:  # fmt: skip
    key = tmp_path / "a key"
    key.write_bytes(change(keys[0].read_bytes()))
    key.chmod(mode)
    if beside:
        shutil.copy(f"{keys[0]}.pub", f"{key}.pub")
    code, said = run("sign", bundle, "--key", key)
    assert code in (2, 5)
    assert hint.format(key=key) in " ".join(said.split())


def test_the_name_of_a_bundle_forges_no_line(bundle: Path, keys: tuple[Path, Path]) -> None:
    odd = bundle.rename(bundle.with_name("x\nsigned by release, SHA256:forged\x1b[8m.edgepack"))
    for command in (["sign", odd, "--key", keys[0]], ["verify", odd]):
        code, said = run(*command)
        assert (code, "\x1b" in said) == (0, False)
        assert not [line for line in said.splitlines() if "forged" in line and "x\\u000asigned" not in line]


def test_signing_adds_one_member_to_a_copy(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    before, out = bundle.read_bytes(), tmp_path / "out.edgepack"
    assert run("sign", bundle, "--key", keys[0], "--output", out)[0] == 0
    assert bundle.read_bytes() == before
    with Archive(bundle) as one, Archive(out) as two:
        assert set(two.members) - set(one.members) == {SIGNATURE_NAME}
        assert {name: b"".join(two.stored(two.members[name])) for name in one.members} == {
            name: b"".join(one.stored(member)) for name, member in one.members.items()
        }


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?", fullmatch=True), st.binary(max_size=300), max_size=6),
    st.binary(min_size=1, max_size=900),
)
def test_a_signature_that_is_added_is_one_that_was_there(
    tmp_path: Path, files: dict[str, bytes], signature: bytes
) -> None:
    """The container is the one that the writer makes of the same members."""
    members: Members = dict(files)
    plain, added, whole = (tmp_path / name for name in ("plain", "added", "whole"))
    write_bundle(members, plain, STUB)
    write_bundle({**members, SIGNATURE_NAME: signature}, whole, STUB)
    with Archive(plain) as archive:
        write_signed(archive, signature, added)
    assert added.read_bytes() == whole.read_bytes()
    with Archive(added) as archive:
        write_signed(archive, b"other", added)
        write_signed(archive, signature, added)
    assert added.read_bytes() == whole.read_bytes()


def test_a_damaged_bundle_is_not_signed(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    raw = bytearray(bundle.read_bytes())
    raw[raw.index(b"SystemExit")] ^= 1
    bundle.write_bytes(raw)
    out = tmp_path / "out.edgepack"
    code, said = run("sign", bundle, "--key", keys[0], "--output", out)
    assert (code, "__main__.py" in said, out.exists()) == (8, True, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[: len(s) // 2],
        lambda s: s.replace(b"\n", b"\r\n"),
        lambda s: b"A" * (MAX_SIGNATURE_BYTES + 1),
        lambda s: b"",
    ],
    ids=["cut", "CRLF", "huge", "empty"],
)
def test_a_member_that_is_no_signature_is_damage(
    bundle: Path, keys: tuple[Path, Path], change: Callable[[bytes], bytes]
) -> None:
    members = members_of(FILES)
    raw = members[MANIFEST_NAME]
    assert isinstance(raw, bytes)
    write_bundle({**members, SIGNATURE_NAME: change(sign(keys[0], raw))}, bundle, STUB)
    for command in (["verify", bundle], ["sign", bundle, "--key", keys[0]]):
        code, said = run(*command)
        assert (code, SIGNATURE_NAME in said) == (8, True)


def test_a_wrong_signature_is_refused_without_any_signers(bundle: Path, keys: tuple[Path, Path]) -> None:
    with Archive(bundle) as archive:
        write_signed(archive, sign(keys[0], b"another manifest"), bundle)
    code, said = run("verify", bundle)
    assert (code, "the signature of hotel.edgepack is wrong" in said) == (8, True)
    with Archive(bundle) as archive:
        write_signed(archive, sign(keys[0], archive.read(MANIFEST_NAME, 10**6), "file"), bundle)
    assert "is not for a bundle" in run("verify", bundle)[1]


def test_keys_that_cannot_sign_are_refused(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bundle.read_bytes()
    none = tmp_path / "none"
    none.write_text("no key")
    with pytest.raises(UsageError, match="is not an SSH key"):
        signing.sign(bundle, none, bundle)
    locked = make_key(tmp_path, "locked", passphrase="secret")
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(StageFailedError, match="cannot be signed"):
        signing.sign(bundle, locked, bundle)
    assert signing.require(locked) == public(locked).fingerprint  # no passphrase is needed to know whose it is
    assert bundle.read_bytes() == before
    with pytest.raises(UsageError, match="is not a file of signers"):
        signing.verify_signed(bundle, none)
    tool = tmp_path / "ssh-keygen"
    tool.write_text("#!/bin/sh\necho 'unknown option -- Y' >&2; exit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(EnvironmentUnfitError, match="too old to sign"):
        signing.require(locked)
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfitError, match="ssh-keygen is not installed"):
        signing.require(locked)


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="there is no ssh-agent here")
def test_a_key_in_an_agent_is_named_by_its_public_half(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    key = make_key(folder, "release")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(folder / "s")], stdout=subprocess.PIPE)
    try:
        assert agent.stdout is not None
        agent.stdout.readline()  # it names its socket when that is there
        monkeypatch.setenv("SSH_AUTH_SOCK", str(folder / "s"))
        subprocess.run(["ssh-add", "-q", key], check=True, stdin=subprocess.DEVNULL)
        key.unlink()
        signed = signing.sign(bundle, key.with_name("release.pub"), bundle)
    finally:
        agent.terminate()
        agent.communicate()
    assert signed.fingerprint == public(key).fingerprint
    assert signing.verify_signed(bundle, key.with_name("release.pub"))[1].proven


def test_a_signature_that_is_there_and_right_is_kept(
    bundle: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist.edgepack"
    assert not signing.sign(bundle, keys[0], dist, known=dist).kept
    first = dist.read_bytes()
    monkeypatch.setattr(signing, "_signature", lambda *args: pytest.fail("the key was touched again"))
    assert signing.sign(bundle, keys[0], dist, known=dist).kept
    assert dist.read_bytes() == first
    monkeypatch.undo()
    assert not signing.sign(bundle, keys[1], dist, known=dist).kept
    write_bundle(members_of({**FILES, "site/x.py": b"new"}), bundle, STUB)
    assert not signing.sign(bundle, keys[1], dist, known=dist).kept
    dist.write_bytes(b"damaged")
    assert not signing.sign(bundle, keys[1], dist, known=dist).kept
    assert signing.verify_signed(dist, Path(f"{keys[1]}.pub"))[1].proven


def test_a_machine_without_ssh_keygen_cannot_verify(
    bundle: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    signing.sign(bundle, keys[0], bundle)
    monkeypatch.setattr(trust, "TOOLS", ())
    with pytest.raises(EnvironmentUnfitError, match="ssh-keygen is not installed"):
        signing.verify_signed(bundle, None)
    with pytest.raises(BundleInvalidError, match="is not signed"):
        write_bundle(members_of(FILES), bundle, STUB)
        signing.verify_signed(bundle, Path(f"{keys[0]}.pub"))
