"""Strict parsing of OpenSSH's formats."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.ssh_keys import BLOB, armored, body, make_key, public, sign, string

from edgepack_runtime.bundle.sshsig import PublicKey, Signer, parse_signature, parse_signers

LINE = "ssh-ed25519 " + base64.b64encode(BLOB).decode()


@pytest.mark.parametrize("columns", [64, 70, 76, 10_000])
def test_the_key_and_namespace_of_a_signature(columns: int) -> None:
    found = parse_signature(armored(body(), columns=columns))
    assert (found.key.kind, found.key.blob, found.namespace) == ("ssh-ed25519", BLOB, "edgepack")


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_real_signatures_are_read(tmp_path: Path, kind: str) -> None:
    key = make_key(tmp_path, "release", kind=kind)
    found = parse_signature(sign(key, b"text", "else"))
    assert (found.key, found.namespace) == (public(key), "else")
    told = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True).stdout
    assert told.split()[1] == public(key).fingerprint


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "does not begin"),
        (armored(body())[:-1], "does not begin"),
        (armored(body()) + b"\n", "does not begin"),
        (b"\n" + armored(body()), "does not begin"),
        (armored(body()).replace(b"\n", b"\r\n"), "does not begin"),
        (armored(body()).replace(b"SSH SIG", b"PGP SIG"), "does not begin"),
        (armored(body()).replace(b"U1NI", b"U1N\xff"), "ascii"),
        (armored(body()).replace(b"U1NI", b"U1 I"), "base64"),
        (armored(b"x" + body()), "version 1"),
        (armored(body(version=2)), "version 1"),
        (armored(body()[:-1]), "ends too early"),
        (armored(body(rest=b"x")), "bytes follow"),
        (armored(body(b"")), "ends too early"),
        (armored(body(string(b"pgp-rsa"))), "not a key type"),
        (armored(body(string(b"ssh-ed25519-cert-v01@openssh.com"))), "certificate"),
        (armored(body(namespace=b"\xff")), "utf-8"),
    ],
)
def test_malformed_signatures_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_signature(raw)


def test_spare_bits_of_base64_are_refused() -> None:
    raw = armored(body(rest=b""))
    assert raw.split(b"\n")[-3].endswith(b"=")
    spare = raw.replace(b"AA==\n", b"AB==\n").replace(b"A=\n", b"B=\n")
    assert spare != raw
    with pytest.raises(ValueError, match="unused bits"):
        parse_signature(spare)


@given(st.data())
def test_a_flipped_bit_changes_or_breaks_a_signature(data: st.DataObject) -> None:
    raw = armored(body())
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    flipped = bytearray(raw)
    flipped[at // 8] ^= 1 << at % 8
    try:
        parse_signature(bytes(flipped))
    except ValueError:
        return
    lines = bytes(flipped).decode().split("\n")
    assert base64.b64decode("".join(lines[1:-2])) != body()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_signature_or_a_value_error(raw: bytes) -> None:
    for source in (raw, armored(b"SSHSIG\0\0\0\1" + raw)):
        try:
            parse_signature(source)
        except ValueError:
            continue


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_signers_or_a_value_error(raw: bytes) -> None:
    try:
        found = parse_signers(raw)
    except ValueError:
        return
    assert all(isinstance(signer, Signer) for signer in found)


names = st.from_regex(r"[A-Za-z0-9@.,*!-]{1,30}", fullmatch=True)


@given(names, st.none() | names, st.binary(max_size=64))
def test_a_signer_round_trips(who: str, namespaces: str | None, key: bytes) -> None:
    signer = Signer(who, PublicKey("ssh-ed25519", string(b"ssh-ed25519") + string(key)), namespaces)
    if who.startswith(("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")):
        return  # reads as the type of a key
    assert parse_signers((signer.line() + " a comment\n").encode()) == [signer]


def test_files_of_signers() -> None:
    text = f'# ours\n\n{LINE} ann@example.com\nbob  NAMESPACES="edgepack,file" {LINE} x\r\n{LINE}\n{LINE} "quoted"'
    text += f"\n{LINE} eve ssh-key-2026\n{LINE} ssh-key-2026"
    found = parse_signers(text.encode())
    assert [(s.principals, s.namespaces) for s in found] == [
        ("ann@example.com", None), ("bob", "edgepack,file"), ("signer", None), ("signer", None),
        ("eve", None), ("signer", None),
    ]  # fmt: skip
    assert {s.key for s in found} == {PublicKey("ssh-ed25519", BLOB)}
    assert found[0].key.line == LINE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'a valid-before="20300101" {LINE}', "line 1: valid-after and valid-before are not supported"),
        (f'#\na namespaces="edgepack",valid-after="20200101" {LINE}', "line 2: valid-after"),
        (f"a cert-authority {LINE}", "certificates are not supported"),
        (f"a no-touch-required {LINE}", "not a supported option"),
        (f'a namespaces="x y" {LINE}', "not a supported option|not a public key"),
        (f'"a" {LINE}', "not a signer"),
        ("a ssh-ed25519", "not a public key"),
        ("ssh-ed25519 AAAA", "ends too early"),
        (LINE.replace("ssh-ed25519", "ssh-rsa"), "the line has type ssh-rsa, but the key has type ssh-ed25519"),
        ("ssh-ed25519 " + base64.b64encode(string(b"ssh-rsa-cert-v01@openssh.com")).decode(), "certificate"),
        (f"{LINE} third{LINE}\n", "line 1: a line break is missing before the second key"),
        (f"{LINE}{LINE}\n", "a line break is missing"),
        (f"{LINE} third {LINE}", "a line break is missing"),
        (f"{LINE}\r{LINE}", "a line break is missing"),
        (f"ann {LINE} ann@example.comrelease {LINE}", "a line break is missing"),
        (f"{LINE} third\u2028sk-ssh-ed25519@openssh.com damaged", "a line break is missing"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", "it is a private key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519", "it is a private key"),
        ("---- BEGIN SSH2 PUBLIC KEY ----", "line 1"),
        ("\0", "line 1"),
        pytest.param("#" * (1024 * 1024 + 1), "at most", id="huge"),
        ("\udcff".encode("utf-8", "surrogatepass").decode("latin-1"), "line 1"),
    ],
)
def test_invalid_signers_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_signers(text.encode())


def test_a_bundle_given_as_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it is not text\Z"):
        parse_signers(b"PK\x03\x04\xff")


@pytest.mark.parametrize("text", [f"# lost in May {LINE}", f"# lost in May{LINE}", f"{LINE}\n#{LINE}"])
def test_a_key_in_a_comment_is_refused_where_it_should_be_revoked(text: str) -> None:
    """As after `cat lost.pub >> revoked_keys`, where the last line had no line break."""
    with pytest.raises(ValueError, match="there is a key in a comment, or a line break is missing before it"):
        parse_signers(text.encode(), revoked=True)
    assert len(parse_signers(text.encode())) == text.startswith(LINE)
