"""Whom this device trusts, and whether a manifest was signed by one of them (standard library only).

Trusted keys are pinned on the device, in OpenSSH's allowed_signers format, and never taken from a bundle:

    <prefix>/trusted_signers         for one install
    /etc/edgepack/trusted_signers    for the whole machine

Where either file exists, a key in one of them must have signed the manifest, which covers every byte of the bundle.
A key in `revoked_keys` (a list of public keys, or a KRL) in either folder is not accepted. The device's own
`ssh-keygen` decides. It gets the bytes that we hold, in a private folder, and one line with the one key that
the signature names. Dates in these files are refused: a device's clock may say 1970.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fnmatch
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from edgepack_runtime.bundle import sshsig
from edgepack_runtime.bundle.manifest import SIGNATURE_NAME
from edgepack_runtime.bundle.sshsig import Signature, Signer
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError
from edgepack_runtime.install.prefix import REVOKED_NAME, SIGNERS_NAME
from edgepack_runtime.util.fs import os_errors, temporary_base

NAMESPACE = "edgepack"
MACHINE = Path("/etc/edgepack")
# Not PATH: who runs this may have started it in the folder of a stick.
TOOLS = ("/usr/bin/ssh-keygen", "/bin/ssh-keygen", "/usr/local/bin/ssh-keygen")
_OLDEST = "OpenSSH 8.1"  # the first whose ssh-keygen has -Y
_KRL_MAGIC = b"SSHKRL\n\0"
_TIMEOUT_S = 60.0
TOO_OLD = re.compile(r"(unknown|invalid|illegal|unrecognized) option", re.IGNORECASE)
_NO_USER = "No user exists for uid"
_NOT_STARTED = (126, 127)  # exit codes of what could not be loaded; those of a refusal are 1 and 255
_PACKAGES = (
    "install the system's ssh-keygen (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh; Alpine: openssh-keygen)"
)


@dataclasses.dataclass(frozen=True)
class Pin:
    """One trusted key, and the file that says so."""

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
class Pins:
    """All that is pinned. `files` may exist and hold no key: then nothing is accepted."""

    files: Tuple[Path, ...] = ()
    pins: Tuple[Pin, ...] = ()
    revoked: Tuple[Tuple[Path, bytes], ...] = ()  # file, and what ssh-keygen gets of it: a list of keys or a KRL

    def __bool__(self) -> bool:
        return bool(self.files)

    def describe(self) -> str:
        """Who is trusted, in one line."""
        keys = ", ".join(f"{pin.signer.key.fingerprint} ({pin.signer.principals})" for pin in self.pins) or "no key"
        return f"{keys}; pinned in {' and '.join(map(str, self.files))}"


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is known of who made a bundle. `proven`: a pinned key signed it."""

    signed: bool
    proven: bool
    fingerprint: Optional[str] = None  # of the key that the signature names
    principals: Optional[str] = None
    pinned_in: Optional[str] = None
    note: Optional[str] = None

    def as_json(self) -> Dict[str, Any]:
        return dataclasses.asdict(self)


def read_pins(root: Optional[Path]) -> Pins:
    """What is pinned for the prefix `root` (None: no prefix) and for the machine.

    Raises:
        EnvironmentUnfitError: a file is there and cannot be used. It is never taken for one that is not there.
    """
    files: List[Path] = []
    pins: List[Pin] = []
    revoked: List[Tuple[Path, bytes]] = []
    for folder in ([] if root is None else [root]) + [MACHINE]:
        path = folder / SIGNERS_NAME
        raw = _read(path)
        if raw is not None:
            files.append(path)
            pins += [Pin(signer, path) for signer in _parsed(path, raw)]
        path = folder / REVOKED_NAME
        raw = _read(path)
        if raw is not None:
            if not raw.startswith(_KRL_MAGIC):  # only keys, whoever's: a line of trusted_signers may be moved here
                raw = "".join(signer.key.line + "\n" for signer in _parsed(path, raw)).encode("ascii")
            revoked.append((path, raw))
    return Pins(tuple(files), tuple(pins), tuple(revoked))


def require(pins: Pins, name: str, raw: bytes, signature: Optional[bytes]) -> Proof:
    """Refuse the bundle or release `name` unless a pinned key signed its manifest; where none is pinned, say so.

    Args:
        raw: bytes of the manifest, as they will be used.
        signature: bytes of its signature; None where there is none.

    Raises:
        BundleInvalidError: unsigned, wrongly signed, or by a key that is not pinned, or that is revoked.
        EnvironmentUnfitError: keys are pinned, and this device cannot check signatures.
    """
    found = None if signature is None else parse(name, signature)
    if not pins:
        made_by = "it is not signed" if found is None else f"it says {found.key.fingerprint} signed it"
        note = f"who made it is not proven: {made_by}, and no key is pinned here (`trust add KEY.pub` pins one)"
        return Proof(found is not None, False, found.key.fingerprint if found else None, note=note)
    if found is None or signature is None:
        raise BundleInvalidError(
            f"{name} is not signed, and this device takes signed bundles only",
            why=f"trusted: {pins.describe()}",
            fix="bring the signed bundle; who builds it signs it with `edgepack sign`",
        )
    return _proven(pins, name, raw, signature, found)


def covers(signer: Signer) -> bool:
    """Whether the namespaces of a line, patterns with commas between, let its key sign bundles."""
    patterns = [] if signer.namespaces is None else signer.namespaces.split(",")
    refused = any(fnmatch.fnmatchcase(NAMESPACE, pattern[1:]) for pattern in patterns if pattern.startswith("!"))
    return not refused and (not patterns or any(fnmatch.fnmatchcase(NAMESPACE, pattern) for pattern in patterns))


def parse(name: str, signature: bytes) -> Signature:
    """What the signature of the bundle or release `name` says of itself.

    Raises:
        BundleInvalidError: it is no SSH signature.
    """
    try:
        return sshsig.parse_signature(signature)
    except ValueError as error:
        raise BundleInvalidError(
            f"{name} is damaged: {SIGNATURE_NAME} is no SSH signature",
            why=str(error),
            fix="copy the bundle again from where it was built",
        ) from error


def is_right(name: str, raw: bytes, signature: bytes) -> Signature:
    """That the key which the signature names did sign `raw`, whoever has that key: proof of nothing but that.

    Raises:
        BundleInvalidError: it did not.
        EnvironmentUnfitError: this machine cannot check signatures.
    """
    found = parse(name, signature)
    _check_namespace(name, found)
    _check(name, ["check-novalidate"], raw, {"signature": signature})
    return found


def tool() -> str:
    """The `ssh-keygen` of this machine.

    Raises:
        EnvironmentUnfitError: there is none.
    """
    for path in TOOLS:
        if os.access(path, os.X_OK):
            return path
    raise EnvironmentUnfitError(
        "signatures cannot be checked: there is no ssh-keygen",
        why=f"none of {', '.join(TOOLS)} is there",
        fix=f"{_PACKAGES}, {_OLDEST} or newer",
    )


def of_release(pins: Pins, release: Path, raw: bytes, signature: Optional[bytes]) -> Proof:
    """`require` for an installed release: what is wrong with it is in the `note`, and nothing is raised."""
    try:
        return require(pins, release.name, raw, signature)
    except EdgepackError as error:
        fingerprint = None
        if signature is not None:
            try:
                fingerprint = sshsig.parse_signature(signature).key.fingerprint
            except ValueError:
                fingerprint = None
        why = f": {error.why}" if error.why else ""
        return Proof(signature is not None, False, fingerprint, note=f"{error.what}{why}")


def _proven(pins: Pins, name: str, raw: bytes, signature: bytes, found: Signature) -> Proof:
    _check_namespace(name, found)
    matching = [pin for pin in pins.pins if pin.signer.key == found.key]
    if not matching:
        raise BundleInvalidError(
            f"{name} is signed by a key that this device does not trust",
            why=f"it is {found.key.fingerprint}; trusted: {pins.describe()}",
            fix="bring a bundle that a trusted key signed; pin another key only if its owner told you its fingerprint",
        )
    if not any(covers(pin.signer) for pin in matching):
        raise BundleInvalidError(
            f"{name} is signed by a key that is trusted for other things",
            why=f'{matching[0].source} has namespaces="{matching[0].signer.namespaces}" for {found.key.fingerprint}',
            fix=f'write namespaces="{NAMESPACE}" there, if that key signs bundles',
        )
    files = {"signature": signature, "signers": "".join(p.signer.line(NAMESPACE) + "\n" for p in matching).encode()}
    _check(name, ["verify", "-I", NAMESPACE], raw, files)
    for path, content in pins.revoked:
        try:
            _check(name, ["verify", "-I", NAMESPACE], raw, {**files, "revoked": content})
        except BundleInvalidError as error:
            raise BundleInvalidError(
                f"{name} is signed by a key that is revoked",
                why=f"{path} lists {found.key.fingerprint}, or is a damaged list",
                fix="bring a bundle that another trusted key signed",
            ) from error
    pin = matching[0]
    return Proof(True, True, found.key.fingerprint, pin.signer.principals, str(pin.source))


def _check_namespace(name: str, found: Signature) -> None:
    if found.namespace != NAMESPACE:
        raise BundleInvalidError(
            f"the signature of {name} was made for something else",
            why=f"its namespace is {found.namespace!r}, and that of bundles is {NAMESPACE!r}",
            fix="sign the bundle with `edgepack sign`",
        )


def _check(name: str, words: Sequence[str], raw: bytes, files: Dict[str, bytes]) -> None:
    """Run `ssh-keygen -Y` with `files` (option by name -> content) in a private folder, and `raw` on its input."""
    line = [tool(), "-Y", *words, "-n", NAMESPACE]
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
    said = " ".join(done.stdout.decode("utf-8", "replace").split())
    if TOO_OLD.search(said):
        return EnvironmentUnfitError(
            "signatures cannot be checked: this ssh-keygen is too old",
            why=said[:200],
            fix=f"{_PACKAGES}, {_OLDEST} or newer",
        )
    if _NO_USER in said:
        return EnvironmentUnfitError(
            "signatures cannot be checked by a user that the system does not know",
            why=said[:200],
            fix="run as another user",
        )
    if done.returncode < 0 or done.returncode in _NOT_STARTED:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return EnvironmentUnfitError(
            "signatures cannot be checked: ssh-keygen broke down",
            why=f"it ended with {ended}{f': {said[:200]}' if said else ''}",
            fix=_PACKAGES,
        )
    return BundleInvalidError(
        f"the signature of {name} is wrong",
        why=f"ssh-keygen says: {said[:200]}",
        fix="copy the bundle again from where it was built; if it stays wrong, somebody changed it",
    )


def read_regular(path: Path) -> Tuple[int, bytes]:
    """Mode and content of a file of keys, as far as one may be long; a pipe or a device is none, and is not waited for.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)  # here: of a folder no file object is made that would close it
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(errno.EINVAL, "it is no file")
    with os.fdopen(descriptor, "rb") as file:
        return mode, file.read(sshsig.MAX_SIGNERS_BYTES + 1)


def _read(path: Path) -> Optional[bytes]:
    """The content of a file of ours; None where there is none."""
    try:
        mode, raw = read_regular(path)
    except OSError as error:
        # A link that leads nowhere is a mistake of whoever pins, and no device without pins.
        if isinstance(error, (FileNotFoundError, NotADirectoryError)) and not path.is_symlink():
            return None
        raise EnvironmentUnfitError(
            f"{path} cannot be read", why=error.strerror or str(error), fix="run as a user who may read it"
        ) from error
    if len(raw) > sshsig.MAX_SIGNERS_BYTES:
        raise EnvironmentUnfitError(
            f"{path} cannot be used, so nothing can be trusted",
            why=f"it has more than {sshsig.MAX_SIGNERS_BYTES} bytes",
            fix="remove the keys that no bundle is signed by any more",
        )
    if mode & stat.S_IWOTH:
        raise EnvironmentUnfitError(
            f"{path} says whom to trust, and everybody may write it",
            fix=f"chmod o-w {path}, after a look at what it says",
        )
    return raw


def _parsed(path: Path, raw: bytes) -> List[Signer]:
    try:
        return sshsig.parse_signers(raw)
    except ValueError as error:
        raise EnvironmentUnfitError(
            f"{path} cannot be used, so nothing can be trusted",
            why=str(error),
            fix="correct it: one line for each key, as `trust add` or the docs' page on security write it",
        ) from error
