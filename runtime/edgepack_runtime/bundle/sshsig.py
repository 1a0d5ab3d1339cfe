"""Parsers of OpenSSH's signatures, public keys and allowed_signers files.

They find the key that a signature names and the keys that a file lists. `ssh-keygen` verifies signatures (`trust.py`).
Parsing is strict, so that every byte of a signature counts.

Formats: OpenSSH's PROTOCOL.sshsig, RFC 4253 section 6.6 (public keys) and ssh-keygen(1), ALLOWED SIGNERS.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re
import struct
from typing import List, Optional, Tuple

MAX_SIGNERS_BYTES = 1024 * 1024  # about a thousand RSA keys
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_MAGIC, _VERSION = b"SSHSIG", 1
_KIND = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]{1,64}\Z")
_PRINCIPALS = re.compile(r"[^\s\"#\x00-\x1f\x7f]{1,256}\Z")
_NAMESPACES = re.compile(r"namespaces=\"([A-Za-z0-9@._*?,!-]{1,256})\"\Z", re.IGNORECASE)
# The first word of another key: its type, or its base64, which begins with three zero bytes.
_ANOTHER_KEY = re.compile(r"(?:sk-)?(?:ssh-(?:ed25519|rsa|dss)|ecdsa-sha2-nistp[0-9]+)(?:@openssh\.com)?\Z|AAAA")
_PRIVATE = ("PRIVATE KEY-----", "PuTTY-User-Key-File")


@dataclasses.dataclass(frozen=True)
class PublicKey:
    """A public key: its type, such as `ssh-ed25519`, and its encoded bytes."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii").rstrip("=")

    @property
    def line(self) -> str:
        """Type and base64 as in a .pub file."""
        return f"{self.kind} {base64.b64encode(self.blob).decode('ascii')}"


@dataclasses.dataclass(frozen=True)
class Signature:
    """The key and namespace that a signature names, not verified."""

    key: PublicKey
    namespace: str


@dataclasses.dataclass(frozen=True)
class Signer:
    """A line of an allowed_signers file: principals, key and namespaces (None: all)."""

    principals: str
    key: PublicKey
    namespaces: Optional[str] = None

    def line(self, principals: Optional[str] = None) -> str:
        """The line in OpenSSH's format, with other `principals` if given."""
        options = "" if self.namespaces is None else f'namespaces="{self.namespaces}" '
        return f"{principals or self.principals} {options}{self.key.line}"


def parse_signature(raw: bytes) -> Signature:
    """Parse an armored signature. It must fill `raw` and be in canonical base64.

    Raises:
        ValueError: `raw` is not a signature.
    """
    lines = raw.decode("ascii").split("\n")
    if len(lines) < 4 or lines[0] != _BEGIN or lines[-2:] != [_END, ""]:
        raise ValueError(f"it does not begin with {_BEGIN} and end with {_END}")
    blob = _unbase64("".join(lines[1:-2]))
    if not blob.startswith(_MAGIC + struct.pack(">I", _VERSION)):
        raise ValueError("it is not a signature of version 1")
    fields, rest = [], blob[len(_MAGIC) + 4 :]
    for _ in range(5):  # key, namespace, reserved, hash, signature
        field, rest = _string(rest)
        fields.append(field)
    if rest:
        raise ValueError("bytes follow its end")
    return Signature(parse_blob(fields[0]), fields[1].decode("utf-8"))


def parse_blob(blob: bytes) -> PublicKey:
    """The key with the encoded bytes `blob`.

    Raises:
        ValueError: they do not begin with a key type, or are a certificate.
    """
    kind = _string(blob)[0].decode("ascii")
    if not _KIND.match(kind):
        raise ValueError(f"{kind[:40]!r} is not a key type")
    if "-cert-v" in kind:
        raise ValueError("it is a certificate, which has dates, and a device's clock may be wrong; use plain keys")
    return PublicKey(kind, blob)


def parse_signers(raw: bytes, *, revoked: bool = False) -> List[Signer]:
    """Parse an allowed_signers file, or a .pub file, whose comment names the signer.

    Args:
        revoked: it lists keys to refuse, so that a key in a comment is an error: it would be accepted.

    Raises:
        ValueError: a line is neither; the message names it. Dates and certificates are refused, since a device's clock
            may be wrong.
    """
    if len(raw) > MAX_SIGNERS_BYTES:
        raise ValueError(f"it has {len(raw)} bytes; at most {MAX_SIGNERS_BYTES} are read")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("it is not text") from error
    if any(mark in text for mark in _PRIVATE):
        raise ValueError("it is a private key")
    signers = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.strip().split()
        if not words or words[0].startswith("#"):
            if revoked and any(_ANOTHER_KEY.match(word.lstrip("#")) for word in words):
                raise ValueError(f"line {number}: there is a key in a comment, or a line break is missing before it")
            continue
        try:
            signers.append(_signer(words))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return signers


def _signer(words: List[str]) -> Signer:
    if _KIND.match(words[0]):
        key = _key(words)
        return Signer(_name(words[2:]), key)
    principals, rest = words[0], words[1:]
    if not _PRINCIPALS.match(principals):
        raise ValueError(f"{principals[:40]!r} is not a signer: quotes and control characters are not allowed")
    namespaces = None
    if rest and not _KIND.match(rest[0]):
        namespaces, rest = _options(rest[0]), rest[1:]
    return Signer(principals, _key(rest), namespaces)


def _options(text: str) -> str:
    matched = _NAMESPACES.match(text)
    if matched:
        return matched.group(1)
    if "valid-" in text.lower():
        raise ValueError("valid-after and valid-before are not supported: a device's clock may be wrong")
    if "cert-authority" in text.lower():
        raise ValueError("certificates are not supported: they have dates; list the keys themselves")
    raise ValueError(f'{text[:60]!r} is not a supported option; namespaces="edgepack" is')


def _key(words: List[str]) -> PublicKey:
    if len(words) < 2 or not _KIND.match(words[0]):
        raise ValueError("it is not a public key: a type, such as ssh-ed25519, and base64")
    if any(_ANOTHER_KEY.match(word) for word in words[2:]):  # as a comment it would not be read
        raise ValueError("a line break is missing before the second key")
    key = parse_blob(_unbase64(words[1]))
    if key.kind != words[0]:
        raise ValueError(f"the line has type {words[0]}, but the key has type {key.kind}")
    return key


def _name(comment: List[str]) -> str:
    """The principal of a bare key: the first word of its comment if that is a valid name, else `signer`.

    A name like that of a type would be read as one.
    """
    name = comment[0] if comment else ""
    return name if re.match(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}\Z", name) and not _KIND.match(name) else "signer"


def _unbase64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from error
    if base64.b64encode(data).decode("ascii") != text:
        raise ValueError("it is not base64 in its canonical form (unused bits are set)")
    return data


def _string(data: bytes) -> Tuple[bytes, bytes]:
    """The length-prefixed string at the start of `data`, and the rest."""
    if len(data) < 4:
        raise ValueError("it ends too early")
    (length,) = struct.unpack(">I", data[:4])
    if len(data) < 4 + length:
        raise ValueError("it ends too early")
    return data[4 : 4 + length], data[4 + length :]
