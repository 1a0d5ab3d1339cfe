"""The verb `trust`: which keys an install accepts (standard library only).

It asks nothing and takes nothing from a bundle: whoever may write the prefix, pins. Each change leaves a receipt.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from edgepack_runtime.bundle import sshsig, verify
from edgepack_runtime.bundle.sshsig import Signer
from edgepack_runtime.cli.context import say
from edgepack_runtime.errors import EdgepackError, UsageError
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install.prefix import SIGNERS_NAME, Prefix, check_is_ours, lock
from edgepack_runtime.install.trust import NAMESPACE, Pin, Pins
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors, write_atomic


def add(prefix: Prefix, name: Optional[str], file: Path) -> Dict[str, Any]:
    """Pin the keys in `file` for the installs of bundle `name` (None: of any) in `prefix`; return the receipt.

    Raises:
        UsageError: the file is not there, holds no public key, or a private one; the prefix holds something else.
        EnvironmentUnfitError: the prefix cannot be written, or what is pinned already cannot be read.
    """
    given = _read_keys(file)
    with _changing(prefix, name) as before:
        here = [pin.signer for pin in before.pins if pin.source == prefix.root / SIGNERS_NAME]
        fresh = [signer for signer in given if signer.key not in [known.key for known in here]]
        notes = [f"{s.key.fingerprint} is pinned here already" for s in given if s not in fresh]
        if fresh:
            _write(prefix, [*here, *fresh])
        after = trust.read_pins(prefix.root)
        notes += _about_serving(prefix, after)
        return _receipt(prefix, "add", fresh, notes, after)


def remove(prefix: Prefix, name: Optional[str], fingerprint: str) -> Dict[str, Any]:
    """Pin the key with `fingerprint` no longer; return the receipt.

    Raises:
        UsageError: it is not pinned in this prefix, or is the last one there.
        EnvironmentUnfitError: the prefix cannot be written, or what is pinned already cannot be read.
    """
    with _changing(prefix, name) as before:
        file = prefix.root / SIGNERS_NAME
        here = [pin.signer for pin in before.pins if pin.source == file]
        gone = [signer for signer in here if signer.key.fingerprint == fingerprint]
        if not gone:
            elsewhere = [str(pin.source) for pin in before.pins if pin.signer.key.fingerprint == fingerprint]
            raise UsageError(
                f"{fingerprint} is not pinned in {file}",
                why=f"it is pinned in {elsewhere[0]}"
                if elsewhere
                else f"trusted: {before.describe()}"
                if before
                else "",
                fix=f"edit {elsewhere[0]}" if elsewhere else "`trust list` tells which are",
            )
        left = [signer for signer in here if signer not in gone]
        if not left:
            raise UsageError(
                f"{fingerprint} is the last key that is pinned in {file}",
                why="without it, bundles that nobody signed might be installed again",
                fix=f"add the next key first; to pin nothing any more, delete {file}",
            )
        _write(prefix, left)
        after = trust.read_pins(prefix.root)
        return _receipt(prefix, "remove", gone, _about_serving(prefix, after), after)


def listed(prefix: Optional[Prefix]) -> Dict[str, Any]:
    """What is pinned for `prefix` and for the machine, as plain JSON values."""
    pins = trust.read_pins(prefix.root if prefix else None)
    return {
        "pinned": bool(pins),
        "files": [str(path) for path in pins.files],
        "keys": [pin.as_json() for pin in pins.pins],
        "revoked": [str(path) for path, _ in pins.revoked],
    }


def render(found: Dict[str, Any]) -> str:
    """What `listed`, `add` or `remove` returned, for people."""
    lines = [f"{found['verdict']}: {line(key)}" for key in found.get("changed", [])]
    if not found["pinned"]:
        lines.append("no key is pinned: bundles are installed whoever made them")
    lines += [f"trusted: {line(key)}, in {key['source']}" for key in found["keys"]]
    if found["pinned"] and not found["keys"]:
        lines.append("trusted: no key at all, so nothing can be installed")
    lines += [f"revoked: those in {path}" for path in found["revoked"]]
    return "\n".join(lines + [f"note: {note}" for note in found.get("notes", [])])


def line(key: Dict[str, Any]) -> str:
    """One key, for people."""
    return f"{key['fingerprint']} ({key['principals']}, {key['type']})"


def _read_keys(file: Path) -> List[Signer]:
    try:
        _, raw = trust.read_regular(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read", why=error.strerror or str(error), fix="give a .pub file") from error
    try:
        signers = sshsig.parse_signers(raw)
    except ValueError as error:
        private = "private key" in str(error)
        raise UsageError(
            f"{file} cannot be pinned",
            why=str(error),
            fix="bring the .pub file, and never the private key, to a device"
            if private
            else "give a public key (KEY.pub), or a file of lines `NAME ssh-ed25519 AAAA...`",
        ) from error
    if not signers:
        raise UsageError(f"{file} holds no key", fix="give a public key (KEY.pub)")
    for signer in signers:
        if signer.namespaces is None:
            continue
        if not trust.covers(signer):
            raise UsageError(
                f"{file} cannot be pinned",
                why=f'the key of {signer.principals} is for namespaces="{signer.namespaces}" only',
                fix=f'write namespaces="{NAMESPACE}" there, if that key signs bundles',
            )
    return _unique(signers)


def _unique(signers: Sequence[Signer]) -> List[Signer]:
    found: Dict[sshsig.PublicKey, Signer] = {}
    for signer in signers:
        found.setdefault(signer.key, signer)
    return list(found.values())


@contextlib.contextmanager
def _changing(prefix: Prefix, name: Optional[str]) -> Iterator[Pins]:
    check_is_ours(prefix, name)
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        for made in make_folder(prefix.root):
            fsync_folder(made.parent)
    with lock(prefix):
        yield trust.read_pins(prefix.root)


def _write(prefix: Prefix, signers: Sequence[Signer]) -> None:
    head = "# Keys of which one must have signed what is installed here; lines as in OpenSSH's allowed_signers.\n"
    text = head + "".join(_for_bundles(signer).line() + "\n" for signer in signers)
    file = prefix.root / SIGNERS_NAME
    with os_errors(f"{file} cannot be written"):
        write_atomic(file, text.encode("utf-8"))


def _for_bundles(signer: Signer) -> Signer:
    """A key that signs mail or commits too shall not make bundles of those."""
    return signer if signer.namespaces else Signer(signer.principals, signer.key, NAMESPACE)


def _about_serving(prefix: Prefix, after: Pins) -> List[str]:
    """What there is to say about the release that serves, now that other keys count."""
    current = prefix.current_id()
    if current is None:
        return []
    release = prefix.releases / current
    try:
        _, raw = verify.read_manifest(release)
        proof = trust.of_release(after, release, raw, verify.read_signature(release))
    except EdgepackError as error:
        return [f"{error.what}; {error.why}"]
    return [] if proof.proven else [f"{current} serves on, unproven: {proof.note}"]


def _receipt(prefix: Prefix, action: str, changed: Sequence[Signer], notes: List[str], after: Pins) -> Dict[str, Any]:
    file = prefix.root / SIGNERS_NAME
    receipt = {
        **receipts.begin("trust", {"add": "added", "remove": "removed"}[action]),
        "changed": [Pin(signer, file).as_json() for signer in changed],
        "notes": notes,
        "serving": prefix.current_id(),
        **listed(prefix),
    }
    if changed:
        with os_errors("the receipt cannot be written; the change itself is done"):
            receipts.write_receipt(prefix, "trust", receipt, say)
    return receipt
