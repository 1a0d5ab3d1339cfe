"""Signatures of bundles: `ssh-keygen` signs with a key in a file, in an agent, or in hardware.

The signature covers the exact bytes of the manifest, which covers every other byte. Private keys are never read here,
except to recognise the kind of the file. `ssh-keygen` itself asks for passphrases and touches.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.archive import write_signed
from edgepack.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError, UsageError
from edgepack.util.process import find_program
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import sshsig, verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install.trust import NAMESPACE, Proof, TrustedKey, TrustedKeys

_FORM = "does a private key end with a line break, and has none with a carriage return?"
_INSTALL = "install OpenSSH 8.1 or newer (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh)"


@dataclass(frozen=True)
class Signed:
    """A signed bundle: the key as printed by `ssh-keygen -l`, and whether the signature existed before."""

    fingerprint: str
    kept: bool


def fingerprint(key: Path) -> str:
    """The fingerprint of the key in the file `key`, private or .pub; no passphrase is needed for it.

    Raises:
        UsageError: it is not a key.
        EnvironmentUnfitError: ssh-keygen is not installed.
    """
    done = subprocess.run(
        [_tool(), "-l", "-E", "sha256", "-f", str(key)], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    words = done.stdout.decode("utf-8", "replace").split()
    if done.returncode != 0 or len(words) < 2 or not words[1].startswith("SHA256:"):
        raise UsageError(
            f"{key} is not an SSH key",
            why=done.stderr.decode("utf-8", "replace").strip(),
            fix=f"give a private key, or the .pub file of a key in an agent or in hardware; {_FORM}",
        )
    return words[1]


def sign(bundle: Path, key: Path, out: Path, *, known: Path | None = None) -> Signed:
    """Write `bundle` with a signature by `key` to `out`, which may be `bundle`. An existing signature is replaced.

    All other bytes are kept. If `known`, an earlier result, has the same manifest and a valid signature by the same
    key, that signature is reused, so that a key in hardware need not be touched again.

    Raises:
        BundleInvalidError: `bundle` is damaged.
        UsageError: `key` is not a key.
        EnvironmentUnfitError: ssh-keygen is not installed, or cannot sign.
        StageFailedError: signing failed, or `out` cannot be written.
    """
    who = require(key)
    with Archive(bundle) as archive:
        raw, _ = verify.read_signed_manifest(archive)
        verify.verify_archive(archive, raw)
        kept = None if known is None else _kept(known, raw, who)
        signature = kept or _signature(bundle.name, key, raw)
        trust.check_signature(bundle.name, raw, signature)  # an invalid signature is never delivered
        write_signed(archive, signature, out)
    return Signed(who, kept is not None)


def verify_signed(bundle: Path, signers: Path | None) -> tuple[Manifest, Proof]:
    """Verify every byte of `bundle`; return its manifest and its signature.

    Args:
        signers: a file of allowed signers, or a public key, one of which must have signed it. Without it any valid
            signature, or none, is accepted.

    Raises:
        BundleInvalidError: it is damaged, or its signature is not accepted.
        EnvironmentUnfitError: this machine cannot check signatures.
    """
    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
        if signers is not None:
            trusted = _trusted_keys(signers)
            if signature is None:
                raise BundleInvalidError(
                    f"{bundle.name} is not signed",
                    why=f"a key in {signers} has to have signed it",
                    fix="sign it with `edgepack sign`, or omit --signers",
                )
            proof = trust.require(trusted, bundle.name, raw, signature)
        elif signature is None:
            proof = Proof(False, False)
        else:
            proof = Proof(True, False, trust.check_signature(bundle.name, raw, signature).key.fingerprint)
        return verify.verify_archive(archive, raw)[0], proof


def signer_of(file: Path, raw: bytes, signers: Path) -> str:
    """The principal in `signers`, of OpenSSH's allowed_signers format, whose key signed the receipt `file`.

    Args:
        raw: its bytes. The signature is a file beside it.

    Raises:
        ValueError: none of them did.
        EnvironmentUnfitError: ssh-keygen is not installed.
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


def _trusted_keys(file: Path) -> TrustedKeys:
    try:
        signers = sshsig.parse_signers(file.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file} is not a file of signers",
            why=str(error),
            fix="give lines `NAME ssh-ed25519 AAAA...`, or a .pub file",
        ) from error
    return TrustedKeys((file,), tuple(TrustedKey(signer, file) for signer in signers))


def _kept(known: Path, raw: bytes, who: str) -> bytes | None:
    """The signature in `known`, if `who` made it for the manifest `raw`."""
    try:
        with Archive(known) as archive:
            other, signature = verify.read_signed_manifest(archive)
        if signature is None or other != raw:
            return None
        return signature if trust.check_signature(known.name, raw, signature).key.fingerprint == who else None
    except EdgepackError:  # missing or invalid: sign again
        return None


def _signature(name: str, key: Path, raw: bytes) -> bytes:
    # It asks for a touch on stderr, which is inherited.
    done = subprocess.run(
        [_tool(), "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE], input=raw, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0 or not 0 < len(done.stdout) <= contract.MAX_SIGNATURE_BYTES:
        fix = (
            f"try `ssh-add -l`, the passphrase, or the key's plug; {_FORM} ssh-keygen has to be of OpenSSH 8.1 or newer"
        )
        raise StageFailedError(
            f"{name} cannot be signed with {key}",
            why=f"ssh-keygen -Y sign ended with exit code {done.returncode}; see its messages above",
            fix=f"type `chmod 600 {shlex.quote(str(key))}`: others may read it" if _is_open(key) else fix,
        )
    return done.stdout


def _is_open(key: Path) -> bool:
    """Whether ssh-keygen refuses `key` because other users may read or write it."""
    about = key.stat()
    others = about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return about.st_uid == os.geteuid() and others != 0 and b"PRIVATE KEY-----" in key.read_bytes()


def _tool() -> str:
    found = find_program("ssh-keygen")
    if found is None:
        raise EnvironmentUnfitError("ssh-keygen is not installed, so nothing can be signed", fix=_INSTALL)
    return found


def require(key: Path) -> str:
    """Check that ssh-keygen is installed, can sign, and knows the key; return the fingerprint of `key`.

    A build checks this first, before hours of training.

    Raises:
        UsageError, EnvironmentUnfitError: as the message says.
    """
    # Without further arguments every version fails; an old one because it does not know -Y.
    done = subprocess.run([_tool(), "-Y", "sign"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace")
    if trust.TOO_OLD.search(said):
        raise EnvironmentUnfitError("this ssh-keygen is too old to sign", why=said.strip()[:200], fix=_INSTALL)
    return fingerprint(key)
