"""The verb `trust`: list and change the trusted keys. Each change is recorded in a receipt.

Keys are never taken from a bundle; anybody who may write the prefix may add one.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from edgepack_runtime.bundle import sshsig
from edgepack_runtime.bundle.sshsig import Signer
from edgepack_runtime.cli.context import log
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.install import receipts, trust
from edgepack_runtime.install.prefix import SIGNERS_NAME, Prefix, check_owner, lock
from edgepack_runtime.install.trust import NAMESPACE, TrustedKey, TrustedKeys
from edgepack_runtime.messages import joined, message, printed
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors, write_atomic


def add(prefix: Prefix, name: Optional[str], file: Path) -> Dict[str, Any]:
    """Trust the keys in `file` for installs of bundle `name` (None: any) in `prefix`; return the receipt.

    Raises:
        UsageError: the file does not exist, or holds no public key or a private one; the prefix holds something else.
        EnvironmentUnfitError: the prefix cannot be written, or its trusted keys cannot be read.
    """
    given = _read_keys(file)
    with _changing(prefix, name) as before:
        here = [key.signer for key in before.keys if key.source == prefix.root / SIGNERS_NAME]
        fresh = [signer for signer in given if signer.key not in [known.key for known in here]]
        notes: List[str] = [message("trust.already", key=s.key.fingerprint) for s in given if s not in fresh]
        if fresh:
            _write(prefix, [*here, *fresh])
            if prefix.current_id() is None:
                notes.append(message("trust.not_yet", prefix=str(prefix.root)))
        after = trust.read_trusted_keys(prefix.root)
        notes += [*_about_serving(prefix, after), *_about_tools()]
        return _receipt(prefix, "add", fresh, notes, after)


def remove(prefix: Prefix, name: Optional[str], fingerprint: str) -> Dict[str, Any]:
    """Remove the key with `fingerprint`; return the receipt.

    Raises:
        UsageError: it is not listed in this prefix, or is the last one there.
        EnvironmentUnfitError: the prefix cannot be written, or its trusted keys cannot be read.
    """
    with _changing(prefix, name) as before:
        file = prefix.root / SIGNERS_NAME
        here = [key.signer for key in before.keys if key.source == file]
        gone = [signer for signer in here if signer.key.fingerprint == fingerprint]
        if not gone:
            sources = [str(key.source) for key in before.keys if key.signer.key.fingerprint == fingerprint]
            what = message("trust.not_listed", key=fingerprint, file=str(file))
            if sources:
                why, fix = (message(name, file=sources[0]) for name in ("trust.listed_in", "trust.edit"))
                raise UsageError(what, why=why, fix=fix)
            trusted = message("error.trusted", keys=before.describe()) if before else ""
            raise UsageError(what, why=trusted, fix=message("trust.see_list"))
        left = [signer for signer in here if signer not in gone]
        if not left:
            raise UsageError(
                message("trust.last", key=fingerprint, file=str(file)),
                why=message("trust.without_it"),
                fix=message("trust.add_first", file=str(file)),
            )
        _write(prefix, left)
        after = trust.read_trusted_keys(prefix.root)
        return _receipt(prefix, "remove", gone, _about_serving(prefix, after), after)


def list_keys(prefix: Optional[Prefix]) -> Dict[str, Any]:
    """The keys that are trusted for `prefix` and for the machine, as plain JSON values."""
    trusted = trust.read_trusted_keys(prefix.root if prefix else None)
    return {
        "signature_required": bool(trusted),
        "files": [str(path) for path in trusted.files],
        "keys": trusted.as_json(),
        "revoked": [str(path) for path, _ in trusted.revoked],
    }


def render(found: Dict[str, Any]) -> str:
    """The result of `list_keys`, `add` or `remove` as text."""
    lines: List[str] = [message(f"trust.{found['verdict']}", key=line(key)) for key in found.get("changed", [])]
    if not found["signature_required"]:
        lines.append(message("trust.none"))
    lines += [
        message("trust.is_revoked" if key["revoked"] else "trust.is_trusted", key=line(key), file=key["source"])
        for key in found["keys"]
    ]
    if found["signature_required"] and not found["keys"]:
        lines.append(message("trust.nothing_installs"))
    lines += [message("trust.revoked_keys", file=path) for path in found["revoked"]]
    return printed(lines + [message("trust.note", note=note) for note in found.get("notes", [])])


def line(key: Dict[str, Any]) -> str:
    """One key as text."""
    return f"{key['fingerprint']} ({key['principals']}, {key['type']})"


def _about_tools() -> List[str]:
    try:
        trust.find_ssh_keygen()
    except EnvironmentUnfitError as error:
        return [message("trust.no_tool", what=error.what, fix=error.fix)]
    return []


def _read_keys(file: Path) -> List[Signer]:
    try:
        _, raw = trust.read_key_file(file)
    except FileNotFoundError as error:
        raise UsageError(message("error.no_file", path=file), fix=message("trust.give_key")) from error
    except OSError as error:
        what = message("error.cannot_read", name=str(file))
        raise UsageError(what, why=error.strerror or str(error), fix=message("trust.give_key")) from error
    try:
        signers = sshsig.parse_signers(raw)
    except ValueError as error:
        private = "private key" in str(error)
        raise UsageError(
            message("trust.cannot_add", file=str(file)),
            why=str(error),
            fix=message("trust.only_public" if private else "trust.give_public"),
        ) from error
    if not signers:
        raise UsageError(message("trust.holds_no_key", file=str(file)), fix=message("trust.give_public"))
    for signer in signers:
        if not trust.allows_bundles(signer):
            raise UsageError(
                message("trust.cannot_add", file=str(file)),
                why=f'the key of {signer.principals} is for namespaces="{signer.namespaces}" only',
                fix=f'write namespaces="{NAMESPACE}" there, if that key signs bundles',
            )
    unique: Dict[sshsig.PublicKey, Signer] = {}
    for signer in signers:
        unique.setdefault(signer.key, signer)
    return list(unique.values())


@contextlib.contextmanager
def _changing(prefix: Prefix, name: Optional[str]) -> Iterator[TrustedKeys]:
    check_owner(prefix, name)
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        for made in make_folder(prefix.root):
            fsync_folder(made.parent)
    with lock(prefix):
        yield trust.read_trusted_keys(prefix.root)


def _write(prefix: Prefix, signers: Sequence[Signer]) -> None:
    head = "# One of these keys must have signed each installed bundle (OpenSSH allowed_signers format).\n"
    text = head + "".join(_for_bundles(signer).line() + "\n" for signer in signers)
    file = prefix.root / SIGNERS_NAME
    with os_errors(f"{file} cannot be written"):
        write_atomic(file, text.encode("utf-8"))


def _for_bundles(signer: Signer) -> Signer:
    """Limit a key to bundles, so that its signatures of mail or commits do not count."""
    return signer if signer.namespaces else Signer(signer.principals, signer.key, NAMESPACE)


def _about_serving(prefix: Prefix, after: TrustedKeys) -> List[str]:
    """Notes on the active release under the new keys."""
    current = prefix.current_id()
    if current is None:
        return []
    try:
        proof = trust.check_release(after, prefix.releases / current)
    except EdgepackError as error:
        return [joined(error.what, error.why)]
    return [] if proof.proven else [message("trust.stays", release=current, note=proof.note)]


def _receipt(
    prefix: Prefix, action: str, changed: Sequence[Signer], notes: List[str], after: TrustedKeys
) -> Dict[str, Any]:
    file = prefix.root / SIGNERS_NAME
    receipt = {
        **receipts.new_receipt("trust", {"add": "added", "remove": "removed"}[action]),
        "changed": [TrustedKey(signer, file).as_json() for signer in changed],
        "notes": notes,
        "serving": prefix.current_id(),
        **list_keys(prefix),
    }
    if changed:
        with os_errors("the receipt cannot be written; the change itself is done"):
            receipts.write_receipt(prefix, "trust", receipt, log)
    return receipt
