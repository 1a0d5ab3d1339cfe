"""SSH keys and signatures for tests: real ones by this machine's ssh-keygen, and well-formed ones that no key made."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from edgepack.bundle.archive import write_signed
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES
from edgepack_runtime.bundle.sshsig import PublicKey, parse_signers
from edgepack_runtime.install import trust

HAS_SSH_KEYGEN = shutil.which("ssh-keygen") is not None and any(Path(path).exists() for path in trust.TOOLS)
needs_ssh_keygen = pytest.mark.skipif(not HAS_SSH_KEYGEN, reason="there is no ssh-keygen here")


def make_key(folder: Path, name: str, *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new private key `folder/name`, with `name.pub` beside it; without ssh-keygen the test is skipped."""
    if not HAS_SSH_KEYGEN:
        pytest.skip("there is no ssh-keygen here")
    key = folder / name
    line = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", str(key)]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)
    return key


def public(key: Path) -> PublicKey:
    return parse_signers(key.with_name(f"{key.name}.pub").read_bytes())[0].key


def sign(key: Path, raw: bytes, namespace: str = "edgepack") -> bytes:
    """The armored signature of `raw`."""
    line = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", namespace]
    return subprocess.run(line, input=raw, stdout=subprocess.PIPE, check=True).stdout


def write_trusted_keys(folder: Path, *keys: Path, options: str = 'namespaces="edgepack" ') -> Path:
    """`folder/trusted_signers` with `keys`, each under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "trusted_signers"
    file.write_text("".join(f"{key.name} {options}{public(key).line}\n" for key in keys))
    file.chmod(0o644)
    return file


def signed(bundle: Path, key: Path, out: Path) -> Path:
    """A copy of `bundle` at `out`, signed with `key`."""
    with Archive(bundle) as archive:
        write_signed(archive, sign(key, archive.read(MANIFEST_NAME, MAX_MANIFEST_BYTES)), out)
    return out


def string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


BLOB = string(b"ssh-ed25519") + string(bytes(range(32)))


def armored(body: bytes, *, columns: int = 70) -> bytes:
    """`body` in the armor of a signature file."""
    text = base64.b64encode(body).decode()
    lines = [text[at : at + columns] for at in range(0, len(text), columns)]
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()


def body(blob: bytes = BLOB, namespace: bytes = b"edgepack", *, version: int = 1, rest: bytes = b"") -> bytes:
    """The binary form of an SSH signature."""
    fields = (blob, namespace, b"", b"sha512", string(b"ssh-ed25519") + string(bytes(64)))
    return b"SSHSIG" + struct.pack(">I", version) + b"".join(map(string, fields)) + rest
