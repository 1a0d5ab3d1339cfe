"""Trusted keys of this device, and whether one of them signed a manifest.

Trusted keys are files on the device in OpenSSH's allowed_signers format; they are never taken from a bundle:

    <prefix>/trusted_signers         for one install
    /etc/edgepack/trusted_signers    for the whole machine

If either file exists, one of its keys must have signed the manifest, which covers every byte of the bundle. Keys in
`revoked_keys` (public keys, or a KRL) in either folder are not accepted. The device's `ssh-keygen` verifies the
signature, from copies in a private folder. Dates in these files are refused: a device's clock may be wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from edgepack_runtime.bundle import sshsig, verify
from edgepack_runtime.bundle.manifest import SIGNATURE_NAME
from edgepack_runtime.bundle.sshsig import Signature, Signer
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError
from edgepack_runtime.install.prefix import REVOKED_NAME, SIGNERS_NAME
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import open_regular, os_errors, temporary_base

NAMESPACE = "edgepack"
MACHINE_FOLDER = Path("/etc/edgepack")
# Absolute, because PATH may name a folder on a removable disk.
TOOLS = ("/usr/bin/ssh-keygen", "/bin/ssh-keygen", "/usr/local/bin/ssh-keygen")
_OLDEST = "OpenSSH 8.1"  # the first version with `ssh-keygen -Y`
_KRL_MAGIC = b"SSHKRL\n\0"
_TIMEOUT_S = 60.0
TOO_OLD = re.compile(r"(unknown|invalid|illegal|unrecognized) option", re.IGNORECASE)
_NO_USER = "No user exists for uid"
_NOT_STARTED = (126, 127)  # exit codes of a program that could not be loaded; a refusal has 1 or 255
_PACKAGES = (
    "install the system's ssh-keygen (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh; Alpine: openssh-keygen)"
)


class RevokedKeyError(BundleInvalidError):
    """A bundle or release is signed by a key that must not be accepted any more."""


@dataclasses.dataclass(frozen=True)
class TrustedKey:
    """One trusted key and the file that lists it."""

    signer: Signer
    source: Path

    def as_json(self) -> Dict[str, Any]:
        return {
            "fingerprint": self.signer.key.fingerprint,
            "type": self.signer.key.kind,
            "principals": self.signer.principals,
            "source": str(self.source),
        }


@dataclasses.dataclass(frozen=True)
class TrustedKeys:
    """All trusted keys. If `files` exist but hold no key, nothing is accepted."""

    files: Tuple[Path, ...] = ()
    keys: Tuple[TrustedKey, ...] = ()
    revoked: Tuple[Tuple[Path, bytes], ...] = ()  # file, and its keys or KRL for ssh-keygen

    def __bool__(self) -> bool:
        return bool(self.files)

    def as_json(self) -> List[Dict[str, Any]]:
        """The trusted keys, with whether a list of revoked keys names them. ssh-keygen alone reads a KRL."""
        revoked = {line for _, raw in self.revoked for line in raw.splitlines()}
        return [{**key.as_json(), "revoked": key.signer.key.line.encode("ascii") in revoked} for key in self.keys]

    def describe(self) -> str:
        """The trusted keys in one line."""
        keys = ", ".join(f"{key.signer.key.fingerprint} ({key.signer.principals})" for key in self.keys) or "no key"
        return f"{keys}; listed in {' and '.join(map(str, self.files))}"


@dataclasses.dataclass(frozen=True)
class Proof:
    """Result of checking a signature. `proven`: a trusted key made it. `refused`: `require` refuses it, see `note`."""

    signed: bool
    proven: bool
    fingerprint: Optional[str] = None  # of the key that the signature names
    principals: Optional[str] = None
    trusted_in: Optional[str] = None
    note: Optional[str] = None
    refused: bool = False

    def as_json(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)


def read_trusted_keys(root: Optional[Path]) -> TrustedKeys:
    """The keys that are trusted for the prefix `root` (None: no prefix) and for the machine.

    Raises:
        EnvironmentUnfitError: a file exists and cannot be used. It is never treated as missing.
    """
    files: List[Path] = []
    trusted: List[TrustedKey] = []
    revoked: List[Tuple[Path, bytes]] = []
    for folder in ([] if root is None else [root]) + [MACHINE_FOLDER]:
        path = folder / SIGNERS_NAME
        raw = _read(path)
        if raw is not None:
            files.append(path)
            trusted += [TrustedKey(signer, path) for signer in _parsed(path, raw)]
        path = folder / REVOKED_NAME
        raw = _read(path)
        if raw is not None:
            if not raw.startswith(_KRL_MAGIC):  # a line of trusted_signers may be moved here: only its key counts
                raw = "".join(signer.key.line + "\n" for signer in _parsed(path, raw, revoked=True)).encode("ascii")
            revoked.append((path, raw))
    return TrustedKeys(tuple(files), tuple(trusted), tuple(revoked))


def require(trusted: TrustedKeys, name: str, raw: bytes, signature: Optional[bytes]) -> Proof:
    """Refuse the bundle or release `name` unless a trusted key signed its manifest. Without trusted keys, add a note.

    Args:
        raw: bytes of the manifest, as they will be used.
        signature: bytes of its signature, or None.

    Raises:
        RevokedKeyError: a revoked key signed it. This holds without trusted keys, too.
        BundleInvalidError: the manifest is not signed, or the signature is wrong or by an untrusted key.
        EnvironmentUnfitError: keys are trusted, and this device cannot check signatures.
    """
    found = None if signature is None else parse_signature(name, signature)
    if found is not None and signature is not None:
        _check_not_revoked(trusted, name, raw, signature, found)
    if not trusted:
        made_by = message("trust.unsigned")
        if found is not None:
            made_by = message("trust.by_its_own_account", key=found.key.fingerprint)
        note = message("trust.not_verified", made_by=made_by)
        return Proof(found is not None, False, found.key.fingerprint if found else None, note=note)
    if found is None or signature is None:
        raise BundleInvalidError(
            message("error.unsigned", name=name),
            why=message("error.trusted", keys=trusted.describe()),
            fix=message("error.sign"),
        )
    return _proven(trusted, name, raw, signature, found)


def require_no_trusted_keys(root: Optional[Path]) -> None:
    """Refuse to load a model from a folder if keys are trusted for the prefix `root` (None: no prefix) or the machine.

    Nothing proves who made the folder. Revoked keys alone refuse no folder: they say which signatures do not count.

    Raises:
        BundleInvalidError: keys are trusted.
        EnvironmentUnfitError: a file of keys cannot be used.
    """
    trusted = read_trusted_keys(root)
    if trusted:
        raise BundleInvalidError(
            "this device accepts only signed bundles, and a folder has no signature that holds while it is read",
            why=f"trusted: {trusted.describe()}",
            fix="install the signed bundle, and use PREFIX/bin/NAME",
        )


def allows_bundles(signer: Signer) -> bool:
    """Whether the namespaces of a signer, a comma-separated list of patterns, allow its key to sign bundles."""
    patterns = [] if signer.namespaces is None else signer.namespaces.split(",")
    refused = any(fnmatch.fnmatchcase(NAMESPACE, pattern[1:]) for pattern in patterns if pattern.startswith("!"))
    return not refused and (not patterns or any(fnmatch.fnmatchcase(NAMESPACE, pattern) for pattern in patterns))


def parse_signature(name: str, signature: bytes) -> Signature:
    """Parse the signature of the bundle or release `name`.

    Raises:
        BundleInvalidError: it is not an SSH signature.
    """
    try:
        return sshsig.parse_signature(signature)
    except ValueError as error:
        raise BundleInvalidError(
            f"{name} is damaged: {SIGNATURE_NAME} is not an SSH signature",
            why=str(error),
            fix="copy the bundle again from where you got it",
        ) from error


def check_signature(name: str, raw: bytes, signature: bytes) -> Signature:
    """Check that the key named in the signature signed `raw`, whether or not that key is trusted.

    Raises:
        BundleInvalidError: the signature is wrong.
        EnvironmentUnfitError: this machine cannot check signatures.
    """
    found = parse_signature(name, signature)
    _check_namespace(name, found)
    _check(name, ["check-novalidate"], raw, {"signature": signature})
    return found


def find_ssh_keygen() -> str:
    """The `ssh-keygen` of this machine.

    Raises:
        EnvironmentUnfitError: there is none.
    """
    for path in TOOLS:
        if os.access(path, os.X_OK):
            return path
    raise EnvironmentUnfitError(
        "signatures cannot be checked: ssh-keygen is not installed",
        why=f"none of {', '.join(TOOLS)} exists",
        fix=f"{_PACKAGES}, {_OLDEST} or newer",
    )


def check_release(trusted: TrustedKeys, release: Path) -> Proof:
    """`require` for an unpacked release; an untrusted signature gives a Proof with a `note` instead of an error.

    Raises:
        EdgepackError: its manifest or signature cannot be read.
        EnvironmentUnfitError: signatures cannot be checked here.
    """
    _, raw = verify.read_manifest(release)
    signature = verify.read_signature(release)
    try:
        return require(trusted, release.name, raw, signature)
    except EnvironmentUnfitError:
        raise
    except EdgepackError as error:
        fingerprint = None
        if signature is not None:
            with contextlib.suppress(ValueError):
                fingerprint = sshsig.parse_signature(signature).key.fingerprint
        why = f": {error.why}" if error.why else ""
        return Proof(signature is not None, False, fingerprint, refused=True, note=f"{error.what}{why}")


def _proven(trusted: TrustedKeys, name: str, raw: bytes, signature: bytes, found: Signature) -> Proof:
    _check_namespace(name, found)
    matching = [key for key in trusted.keys if key.signer.key == found.key]
    if not matching:
        raise BundleInvalidError(
            message("error.untrusted", name=name),
            why=message("error.other_key", key=found.key.fingerprint, keys=trusted.describe()),
            fix=message("error.use_trusted"),
        )
    if not any(allows_bundles(key.signer) for key in matching):
        raise BundleInvalidError(
            f"{name} is signed by a key that is trusted only for other namespaces",
            why=f'{matching[0].source} has namespaces="{matching[0].signer.namespaces}" for {found.key.fingerprint}',
            fix=f'write namespaces="{NAMESPACE}" there, if that key signs bundles',
        )
    files = {"signature": signature, "signers": "".join(p.signer.line(NAMESPACE) + "\n" for p in matching).encode()}
    _check(name, ["verify", "-I", NAMESPACE], raw, files)
    key = matching[0]
    return Proof(True, True, found.key.fingerprint, key.signer.principals, str(key.source))


def _check_not_revoked(trusted: TrustedKeys, name: str, raw: bytes, signature: bytes, found: Signature) -> None:
    files = {"signature": signature, "signers": Signer(NAMESPACE, found.key).line().encode("ascii") + b"\n"}
    for path, content in trusted.revoked:
        _check(name, ["verify", "-I", NAMESPACE], raw, files)  # a wrong signature is not a revoked one
        try:
            _check(name, ["verify", "-I", NAMESPACE], raw, {**files, "revoked": content})
        except BundleInvalidError as error:
            raise RevokedKeyError(
                f"{name} is signed by a key that is revoked",
                why=f"{path} lists {found.key.fingerprint}, or is a damaged list",
                fix="use a bundle signed by another trusted key",
            ) from error


def _check_namespace(name: str, found: Signature) -> None:
    if found.namespace != NAMESPACE:
        raise BundleInvalidError(
            f"the signature of {name} is not for a bundle",
            why=f"its namespace is {found.namespace!r} instead of {NAMESPACE!r}",
            fix="sign the bundle with `edgepack sign`",
        )


def _check(name: str, words: Sequence[str], raw: bytes, files: Dict[str, bytes]) -> None:
    """Run `ssh-keygen -Y` on `raw`, with `files` (`signers`, `signature`, `revoked`: content) in a private folder."""
    line = [find_ssh_keygen(), "-Y", *words, "-n", NAMESPACE]
    options = {"signers": "-f", "signature": "-s", "revoked": "-r"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(os_errors("signatures cannot be checked"))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgepack-trust-", dir=temporary_base()))
        for file, content in files.items():
            path = Path(folder) / file
            path.write_bytes(content)
            line += [options[file], str(path)]
        try:
            done = subprocess.run(
                line,
                input=raw,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentUnfitError(
                "signatures cannot be checked", why=f"ssh-keygen did not end within {_TIMEOUT_S:g} s"
            ) from error
    if done.returncode != 0:
        raise _refused(name, done)


def _refused(name: str, done: subprocess.CompletedProcess[bytes]) -> EdgepackError:
    output = " ".join(done.stdout.decode("utf-8", "replace").split())
    if TOO_OLD.search(output):
        return EnvironmentUnfitError(
            "signatures cannot be checked: this ssh-keygen is too old",
            why=output[:200],
            fix=f"{_PACKAGES}, {_OLDEST} or newer",
        )
    if _NO_USER in output:
        return EnvironmentUnfitError(
            "signatures cannot be checked: this user has no entry in the system's user database",
            why=output[:200],
            fix="run as another user",
        )
    if done.returncode < 0 or done.returncode in _NOT_STARTED:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return EnvironmentUnfitError(
            "signatures cannot be checked: ssh-keygen failed",
            why=f"it ended with {ended}{f': {output[:200]}' if output else ''}",
            fix=_PACKAGES,
        )
    return BundleInvalidError(
        f"the signature of {name} is wrong",
        why=f"ssh-keygen: {output[:200]}",
        fix="copy the bundle again from where you got it; if that does not help, it was changed after signing",
    )


def read_key_file(path: Path) -> Tuple[int, bytes]:
    """Mode and content of a regular file, at most one byte more than allowed for keys. Never blocks on a named pipe.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_mode, file.read(sshsig.MAX_SIGNERS_BYTES + 1)


def _read(path: Path) -> Optional[bytes]:
    """The content of a file of keys, or None if it does not exist."""
    try:
        mode, raw = read_key_file(path)
    except OSError as error:
        # A dangling link is a mistake in the setup, not a device without trusted keys.
        dangling = path.is_symlink() or (path.parent.is_symlink() and not path.parent.exists())
        if isinstance(error, (FileNotFoundError, NotADirectoryError)) and not dangling:
            return None
        raise EnvironmentUnfitError(
            f"{path} cannot be read", why=error.strerror or str(error), fix="run as a user who may read it"
        ) from error
    if len(raw) > sshsig.MAX_SIGNERS_BYTES:
        raise EnvironmentUnfitError(
            f"{path} cannot be used, so nothing can be trusted",
            why=f"it has more than {sshsig.MAX_SIGNERS_BYTES} bytes",
            fix="remove keys that are no longer used",
        )
    if mode & stat.S_IWOTH:
        raise EnvironmentUnfitError(
            f"{path} lists trusted keys and is writable by every user",
            fix=f"check its content, then chmod o-w {path}",
        )
    for folder in (path.parent, *path.resolve().parents):  # a link's, and those of what it leads to
        open_to = folder.stat().st_mode
        if open_to & stat.S_IWOTH and not open_to & stat.S_ISVTX:
            raise EnvironmentUnfitError(
                f"{path} lists trusted keys, and every user may replace it",
                fix=f"check its content, then chmod o-w {folder}",
            )
    return raw


def _parsed(path: Path, raw: bytes, *, revoked: bool = False) -> List[Signer]:
    try:
        return sshsig.parse_signers(raw, revoked=revoked)
    except ValueError as error:
        raise EnvironmentUnfitError(
            f"{path} cannot be used, so nothing can be trusted",
            why=str(error),
            fix="correct it: one line for each key, in the format that `trust add` writes",
        ) from error
