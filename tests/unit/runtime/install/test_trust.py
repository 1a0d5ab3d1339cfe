"""Trusted keys: only a valid signature by a trusted key passes."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.ssh_keys import make_key, public, sign, write_trusted_keys

from edgepack_runtime.bundle import sshsig
from edgepack_runtime.cli import trust_command
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.trust import Proof, read_trusted_keys, require

RAW = b'{"name": "sentiment"}\n'


@pytest.fixture(scope="module")
def signature(keys: tuple[Path, Path]) -> bytes:
    return sign(keys[0], RAW)


def refused(root: Path, raw: bytes, signature: bytes | None) -> EdgepackError:
    with pytest.raises(EdgepackError) as caught:
        require(read_trusted_keys(root), "s.edgepack", raw, signature)
    return caught.value


def test_without_trusted_keys_an_unsigned_bundle_is_accepted_with_a_note(tmp_path: Path) -> None:
    trusted = read_trusted_keys(tmp_path)
    assert not trusted
    how = "`trust add KEY.pub` adds one; with --prefix DIR for the install in DIR, and `verify --prefix DIR` asks it"
    note = f"origin not verified: not signed, and no key is trusted here ({how})"
    assert require(trusted, "s.edgepack", RAW, None) == Proof(False, False, note=note)


def test_without_trusted_keys_a_signature_is_not_verified(
    tmp_path: Path, keys: tuple[Path, Path], signature: bytes
) -> None:
    proof = require(read_trusted_keys(tmp_path), "s.edgepack", RAW, signature)
    assert (proof.signed, proof.proven, proof.fingerprint) == (True, False, public(keys[0]).fingerprint)
    assert f"signed by {public(keys[0]).fingerprint}" in (proof.note or "")


def test_a_revoked_key_is_refused_where_no_key_is_trusted(
    tmp_path: Path, keys: tuple[Path, Path], signature: bytes
) -> None:
    (tmp_path / "revoked_keys").write_text(public(keys[1]).line + "\n")
    assert not require(read_trusted_keys(tmp_path), "s.edgepack", RAW, signature).proven
    (tmp_path / "revoked_keys").write_text(public(keys[0]).line + "\n")
    assert refused(tmp_path, RAW, signature).what == "s.edgepack is signed by a key that is revoked"


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_signature_by_a_trusted_key_is_proven(tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path, "ann@example.com", kind=kind)
    file = write_trusted_keys(tmp_path / "prefix", key)
    proof = require(read_trusted_keys(tmp_path / "prefix"), "s.edgepack", RAW, sign(key, RAW))
    assert proof == Proof(True, True, public(key).fingerprint, "ann@example.com", str(file))


def changed_bit(data: st.DataObject, raw: bytes) -> bytes:
    """`raw` with one bit the other way."""
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    flipped = bytearray(raw)
    flipped[at // 8] ^= 1 << at % 8
    return bytes(flipped)


@pytest.mark.parametrize("options", ["", 'namespaces="edge*" ', 'namespaces="file,edgepack" '])
def test_the_machines_keys_apply_to_every_prefix(
    tmp_path: Path, machine: Path, keys: tuple[Path, Path], signature: bytes, options: str
) -> None:
    file = write_trusted_keys(machine, keys[0], options=options)
    for root in (None, tmp_path / "prefix"):
        assert require(read_trusted_keys(root), "s.edgepack", RAW, signature).trusted_in == str(file)
    write_trusted_keys(tmp_path / "prefix", keys[1])
    assert require(read_trusted_keys(tmp_path / "prefix"), "s.edgepack", RAW, sign(keys[1], RAW)).proven
    assert require(read_trusted_keys(tmp_path / "prefix"), "s.edgepack", RAW, signature).proven


def test_refusals_name_cause_and_fix(tmp_path: Path, keys: tuple[Path, Path], signature: bytes) -> None:
    file = write_trusted_keys(tmp_path, keys[0])
    known, unknown = (public(key).fingerprint for key in keys)
    trusted = f"trusted: {known} (release); listed in {file}"
    for raw, given_signature, what, why, fix in (
        (RAW, None, "is not signed", trusted, "its builder signs it with `edgepack sign`"),
        (RAW, sign(keys[1], RAW), "that this device does not trust", f"{unknown}; {trusted}", "trust another key only"),
        (b"", signature, "signature of s.edgepack is wrong", "incorrect signature", "it was changed after signing"),
        (RAW + b"\n", signature, "signature of s.edgepack is wrong", "incorrect signature", "copy the bundle again"),
        (RAW, sign(keys[0], RAW, "file"), "is not for a bundle", "'file' instead of 'edgepack'", "`edgepack sign`"),
    ):
        error = refused(tmp_path, raw, given_signature)
        assert isinstance(error, BundleInvalidError)
        assert what in error.what
        assert why in error.why
        assert fix in error.fix


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_signature_or_a_manifest_with_a_flipped_bit_is_refused(
    tmp_path: Path, keys: tuple[Path, Path], signature: bytes, data: st.DataObject
) -> None:
    write_trusted_keys(tmp_path, keys[0])
    assert isinstance(refused(tmp_path, RAW, changed_bit(data, signature)), BundleInvalidError)
    assert isinstance(refused(tmp_path, changed_bit(data, RAW), signature), BundleInvalidError)


def test_a_malformed_signature_is_refused(tmp_path: Path, keys: tuple[Path, Path], signature: bytes) -> None:
    write_trusted_keys(tmp_path, keys[0])
    huge = signature.replace(b"\n", b"\n" + b"A" * 70_000 + b"\n", 1)
    for malformed in (b"", signature[: len(signature) // 2], signature * 2, huge):
        error = refused(tmp_path, RAW, malformed)
        assert isinstance(error, BundleInvalidError)
        assert error.what == "s.edgepack is damaged: manifest.json.sig is not an SSH signature"


def test_a_key_trusted_for_other_namespaces_is_refused(
    tmp_path: Path, keys: tuple[Path, Path], signature: bytes
) -> None:
    for namespaces in ("file", "*,!edgepack", "edgepack2"):
        write_trusted_keys(tmp_path, keys[0], options=f'namespaces="{namespaces}" ')
        error = refused(tmp_path, RAW, signature)
        assert error.what == "s.edgepack is signed by a key that is trusted only for other namespaces"
        assert f'namespaces="{namespaces}"' in error.why


@pytest.mark.parametrize("place", ["prefix", "machine"])
@pytest.mark.parametrize("form", ["list", "signers", "KRL"])
def test_a_revoked_key_is_refused(
    tmp_path: Path, machine: Path, keys: tuple[Path, Path], signature: bytes, place: str, form: str
) -> None:
    prefix = tmp_path / "prefix"
    write_trusted_keys(prefix, *keys)
    folder = {"prefix": prefix, "machine": machine}[place]
    folder.mkdir(exist_ok=True)
    file = folder / "revoked_keys"
    if form == "list":
        file.write_bytes(b"# lost\n" + keys[0].with_name("release.pub").read_bytes())
    elif form == "signers":
        file.write_bytes(write_trusted_keys(tmp_path / "other", keys[0]).read_bytes())
    else:
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", file, keys[0].with_name("release.pub")], check=True)
    error = refused(prefix, RAW, signature)
    assert error.what == "s.edgepack is signed by a key that is revoked"
    assert error.why == f"{file} lists {public(keys[0]).fingerprint}, or is a damaged list"
    assert [key["revoked"] for key in read_trusted_keys(prefix).as_json()] == [form != "KRL", False]
    assert require(read_trusted_keys(prefix), "s.edgepack", RAW, sign(keys[1], RAW)).proven
    if form == "KRL":
        file.write_bytes(file.read_bytes()[:-1])
        assert isinstance(refused(prefix, RAW, sign(keys[1], RAW)), BundleInvalidError)


@pytest.mark.parametrize("form", ["list", "KRL"])
def test_a_list_of_revoked_keys_that_is_too_long_is_an_error(tmp_path: Path, form: str) -> None:
    begin = {"list": b"", "KRL": b"SSHKRL\n\0"}[form]
    (tmp_path / "revoked_keys").write_bytes(begin + b"#" * (sshsig.MAX_SIGNERS_BYTES + 1))
    (tmp_path / "revoked_keys").chmod(0o644)
    with pytest.raises(EnvironmentUnfitError, match="revoked_keys cannot be used") as caught:
        read_trusted_keys(tmp_path)
    assert "1048576 bytes" in caught.value.why


def test_a_key_in_several_lines_and_among_many(tmp_path: Path, keys: tuple[Path, Path], signature: bytes) -> None:
    file = write_trusted_keys(tmp_path, keys[1], keys[0], keys[0])
    file.write_text(file.read_text().replace('namespaces="edgepack"', 'namespaces="file"', 2))
    assert require(read_trusted_keys(tmp_path), "s.edgepack", RAW, signature).proven


def test_a_file_without_keys_refuses_everything(tmp_path: Path) -> None:
    write_trusted_keys(tmp_path)
    error = refused(tmp_path, RAW, None)
    assert isinstance(error, BundleInvalidError)
    assert error.why == f"trusted: no key; listed in {tmp_path}/trusted_signers"


def write_mode(text: str, mode: int) -> Callable[[Path], None]:
    def place(file: Path) -> None:
        file.write_text(text)
        file.chmod(mode)

    return place


def test_a_folder_of_keys_may_be_a_link_unless_it_leads_nowhere(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "etc").symlink_to(tmp_path / "real")
    assert not read_trusted_keys(tmp_path / "etc")
    write_trusted_keys(tmp_path / "real", keys[0])
    assert read_trusted_keys(tmp_path / "etc")
    (tmp_path / "lost").symlink_to(tmp_path / "not mounted")
    with pytest.raises(EnvironmentUnfitError, match="cannot be read"):
        read_trusted_keys(tmp_path / "lost")


@pytest.mark.parametrize("name", ["trusted_signers", "revoked_keys"])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        (lambda file: file.symlink_to(file.parent / "nowhere"), "cannot be read"),
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "cannot be read"),
        (write_mode("SHA256:abc", 0o644), "not a public key"),
        (write_mode('a valid-after="20260101" ssh-ed25519 A', 0o644), "clock may be wrong"),
        (write_mode("", 0o646), "writable by every user"),
    ],
    ids=["link", "folder", "pipe", "no key", "dates", "writable"],
)
def test_an_unusable_file_of_keys_is_an_error(
    tmp_path: Path, name: str, place: Callable[[Path], None], why: str
) -> None:
    place(tmp_path / name)
    with pytest.raises(EnvironmentUnfitError, match=why):
        read_trusted_keys(tmp_path)


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o775, False)])
def test_keys_in_a_folder_where_every_user_may_replace_them_are_an_error(
    tmp_path: Path, mode: int, refused: bool
) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "revoked_keys").write_text("")
    (tmp_path / "keys").chmod(mode)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "revoked_keys").symlink_to(tmp_path / "keys" / "revoked_keys")
    (tmp_path / "keys" / "below").mkdir()
    (tmp_path / "keys" / "below" / "trusted_signers").write_text("")
    for place in ("keys", "link", "keys/below"):
        with pytest.raises(EnvironmentUnfitError, match="every user may replace it") if refused else nullcontext():
            read_trusted_keys(tmp_path / place)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_trust_add_refuses_a_pipe_and_a_folder(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "keys.pub")
    with pytest.raises(UsageError, match=r"keys\.pub cannot be read"):
        trust_command.add(Prefix(tmp_path / "prefix"), None, tmp_path / "keys.pub")


@pytest.mark.parametrize(
    ("script", "what", "why"),
    [
        (None, "signatures cannot be checked: ssh-keygen is not installed", "none of"),
        ("echo 'unknown option -- Y' >&2; exit 1", "this ssh-keygen is too old", "unknown option -- Y"),
        ("echo \"ssh-keygen: invalid option -- 'Y'\"; exit 1", "this ssh-keygen is too old", "invalid option"),
        ("echo 'No user exists for uid 4711'; exit 255", "no entry in the system", "4711"),
        ("echo 'libcrypto.so.3: cannot open'; exit 127", "ssh-keygen failed", "exit code 127: libcrypto.so.3"),
        ("kill -SEGV $$", "ssh-keygen failed", "it ended with signal 11"),
    ],
)
def test_a_device_that_cannot_verify_is_not_fit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[Path, Path],
    signature: bytes,
    script: str | None,
    what: str,
    why: str,
) -> None:
    tool = tmp_path / "ssh-keygen"
    if script is not None:
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    monkeypatch.setattr(trust, "TOOLS", (str(tool),))
    write_trusted_keys(tmp_path, keys[0])
    error = refused(tmp_path, RAW, signature)
    assert isinstance(error, EnvironmentUnfitError)
    assert what in error.what
    assert why in error.why
    assert isinstance(refused(tmp_path, RAW, None), BundleInvalidError)  # it takes no tool to see that there is none


def test_ssh_keygen_does_not_see_the_callers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[Path, Path], signature: bytes
) -> None:
    """Neither its PATH nor its folder, where a stick may be."""
    fake = tmp_path / "ssh-keygen"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent.so")
    monkeypatch.chdir(tmp_path)
    write_trusted_keys(tmp_path, keys[0])
    assert "incorrect signature" in refused(tmp_path, b"other", signature).why
    assert require(read_trusted_keys(tmp_path), "s.edgepack", RAW, signature).proven


def test_a_full_disk_is_not_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[Path, Path], signature: bytes
) -> None:
    write_trusted_keys(tmp_path, keys[0])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    error = refused(tmp_path, RAW, signature)
    assert isinstance(error, EnvironmentUnfitError)
    assert error.what == "signatures cannot be checked"


def test_a_signature_can_be_checked_without_trusted_keys(keys: tuple[Path, Path], signature: bytes) -> None:
    assert trust.check_signature("s.edgepack", RAW, signature).key == public(keys[0])
    for raw, other in ((b"x", signature), (RAW, sign(keys[0], RAW, "file")), (RAW, b"")):
        with pytest.raises(BundleInvalidError):
            trust.check_signature("s.edgepack", raw, other)
