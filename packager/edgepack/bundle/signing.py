"""Signatures of bundles: `ssh-keygen` signs with a key in a file, in an agent, or in hardware.

What is signed are the exact bytes of the manifest, which covers every other byte. The key is named by its path and is
never read here, but for telling what kind of file it is. `ssh-keygen` asks for passphrases and touches itself.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.archive import write_signed
from edgepack.errors import EnvironmentUnfitError, StageFailedError, UsageError
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import sshsig, verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install.trust import NAMESPACE, Pin, Pins, Proof

_INSTALL = "install OpenSSH 8.1 or newer (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh)"


@dataclass(frozen=True)
class Signed:
    """A signed bundle: whose key it was, as `ssh-keygen -l` tells it, and whether its signature was there already."""

    fingerprint: str
    kept: bool


def fingerprint(key: Path) -> str:
    """The fingerprint of the key in the file `key`, private or .pub; no passphrase is needed for it.

    Raises:
        UsageError: it is no key.
        EnvironmentUnfitError: there is no ssh-keygen.
    """
    done = subprocess.run(
        [_tool(), "-l", "-E", "sha256", "-f", str(key)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    words = done.stdout.decode("utf-8", "replace").split()
    if done.returncode != 0 or len(words) < 2 or not words[1].startswith("SHA256:"):
        raise UsageError(
            f"{key} is no SSH key",
            why=done.stderr.decode("utf-8", "replace").strip(),
            fix="give a private key, or the .pub file of a key that an agent or a piece of hardware holds",
        )
    return words[1]


def sign(bundle: Path, key: Path, out: Path, *, known: Path | None = None) -> Signed:
    """Write `bundle` with a signature by `key` to `out`, which may be `bundle`; a signature it has is replaced.

    Every other byte of its files stays as it is. Where `known`, an earlier result, has the same manifest and a right
    signature by the same key, that signature is taken: a key in hardware need not be touched again.

    Raises:
        BundleInvalidError: `bundle` is damaged.
        UsageError: `key` is no key.
        EnvironmentUnfitError: there is no ssh-keygen, or one that cannot sign.
        StageFailedError: it did not sign, or `out` cannot be written.
    """
    who = require(key)
    with Archive(bundle) as archive:
        raw, _ = verify.read_signed_manifest(archive)
        verify.verify_archive(archive, raw)
        kept = None if known is None else _kept(known, raw, who)
        signature = kept or _signature(bundle.name, key, raw)
        trust.check_signature(bundle.name, raw, signature)  # whatever made it: what is not right is never delivered
        write_signed(archive, signature, out)
    return Signed(who, kept is not None)


def verified(bundle: Path, signers: Path | None) -> tuple[Manifest, Proof]:
    """The manifest of `bundle`, every byte of which was checked, and what is known of who made it.

    Args:
        signers: a file of allowed signers, or a public key; one of them must have signed it. Without it a signature
            must be right, whoever made it.

    Raises:
        BundleInvalidError: it is damaged, or not signed as it must be.
        EnvironmentUnfitError: its signature cannot be checked here.
    """
    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
        if signers is not None:
            proof = trust.require(_pins(signers), bundle.name, raw, signature)
        elif signature is None:
            proof = Proof(False, False)
        else:
            proof = Proof(True, False, trust.check_signature(bundle.name, raw, signature).key.fingerprint)
        return verify.verify_archive(archive, raw)[0], proof


def signer_of(file: Path, raw: bytes, signers: Path) -> str:
    """The principal in `signers`, of OpenSSH's allowed_signers format, whose key signed the receipt `file`.

    Args:
        raw: its bytes. The signature lies beside it.

    Raises:
        ValueError: none of them did.
        EnvironmentUnfitError: there is no ssh-keygen.
    """
    signature = file.with_name(file.name + receipts.SUFFIX)
    if not signature.is_file():
        raise ValueError("it is not signed")
    line = [_tool(), "-Y", "find-principals", "-s", str(signature), "-f", str(signers)]
    found = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    for principal in found.stdout.decode("utf-8", "replace").splitlines():
        line = [_tool(), "-Y", "verify", "-f", str(signers), "-I", principal, "-n", receipts.NAMESPACE]
        if subprocess.run([*line, "-s", str(signature)], input=raw, capture_output=True, check=False).returncode == 0:
            return principal
    raise ValueError(f"its signature is wrong, or by a key that is not in {signers}")


def _pins(file: Path) -> Pins:
    try:
        signers = sshsig.parse_signers(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file} is no file of signers", why=str(error), fix="give lines `NAME ssh-ed25519 AAAA...`, or a .pub file"
        ) from error
    return Pins((file,), tuple(Pin(signer, file) for signer in signers))


def _kept(known: Path, raw: bytes, who: str) -> bytes | None:
    """The signature in `known`, if it is one by `who` for the manifest `raw`."""
    try:
        with Archive(known) as archive:
            other, signature = verify.read_signed_manifest(archive)
        if signature is None or other != raw:
            return None
        return signature if trust.check_signature(known.name, raw, signature).key.fingerprint == who else None
    except EdgepackError:  # not there, or nothing that could be kept: it is made anew
        return None


def _signature(name: str, key: Path, raw: bytes) -> bytes:
    # Its stderr is ours: that is where it asks for a touch.
    done = subprocess.run(
        [_tool(), "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE], input=raw, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0 or not 0 < len(done.stdout) <= contract.MAX_SIGNATURE_BYTES:
        raise StageFailedError(
            f"{name} cannot be signed with {key}",
            why=f"ssh-keygen -Y sign ended with exit code {done.returncode}; its messages stand above",
            fix="try `ssh-add -l`, the passphrase, or the key's plug; ssh-keygen has to be of OpenSSH 8.1 or newer",
        )
    return done.stdout


def _tool() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise EnvironmentUnfitError("there is no ssh-keygen to sign with", fix=_INSTALL)
    return found


def require(key: Path) -> str:
    """The fingerprint of `key`; with it, that ssh-keygen is there, can sign, and knows the key.

    A build asks before its hours begin.

    Raises:
        UsageError, EnvironmentUnfitError: as the message says.
    """
    # Without its further arguments it fails either way: an old one because it does not know -Y.
    done = subprocess.run([_tool(), "-Y", "sign"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace")
    if trust.TOO_OLD.search(said):
        raise EnvironmentUnfitError("this ssh-keygen is too old to sign with", why=said.strip()[:200], fix=_INSTALL)
    return fingerprint(key)
