"""Recover an install that was interrupted, and remove leftovers.

The symlink `current` is the truth about which release is active; `state.json` and the receipts supplement it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, Optional, Set

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import RELEASE_ID
from edgepack_runtime.errors import BundleInvalidError, EdgepackError
from edgepack_runtime.install.prefix import Prefix, State, clear_temporary, max_known, read_state, write_state
from edgepack_runtime.install.receipts import CHANGES, Journal, highest_installed, read_receipts
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import remove_tree


def recover(run: Journal) -> State:
    """Complete or undo an interrupted install, with notes on it; return the true state.

    If `current` names the pending release, that release was committed. The caller holds the prefix lock.

    Raises:
        OSError: the prefix cannot be written.
    """
    prefix = run.prefix
    current = prefix.current_id()
    damaged = False
    try:
        found = read_state(prefix)
    except BundleInvalidError as error:
        run.note(message("recovery.damaged", what=error.what, why=error.why))
        found, damaged = None, True
    if found is None and not damaged and current is not None:
        run.note(message("recovery.lost"))
    state = found or rebuild_state(prefix, run.name)
    interruption = state.interruption(current)
    if interruption:
        run.note(interruption)
    if state.current != current:
        state = dataclasses.replace(state, previous=state.current, **_serving_fields(prefix, current))
    state = dataclasses.replace(state, pending=None, minimum_sequence=max_known(state.minimum_sequence, state.sequence))
    clear_staging(prefix)
    clear_temporary(prefix)
    if found is not None:  # without state.json it is uncertain which release was kept
        try:
            _remove_others(prefix, {state.current, state.previous})
        except OSError as error:
            run.note(f"an uncommitted release could not be removed: {error.filename}: {error.strerror}")
    if state != found:
        write_state(prefix, state)
    return state


def rebuild_state(prefix: Prefix, name: str) -> State:
    """The state of an install with a lost or damaged state.json, from `current` and the receipts."""
    current = prefix.current_id()
    state = State(name, previous=_kept_before(prefix, current), **_serving_fields(prefix, current))
    return dataclasses.replace(state, minimum_sequence=max_known(highest_installed(prefix), state.sequence))


def active_sequence(prefix: Prefix) -> Optional[int]:
    """Sequence number of the active release, which a killed install may have committed; None if unknown."""
    sequence: Optional[int] = _serving_fields(prefix, prefix.current_id())["sequence"]
    return sequence


def _kept_before(prefix: Prefix, current: Optional[str]) -> Optional[str]:
    """The kept release that served before `current`, from the newest receipt that names both; None if it is gone."""
    for receipt in read_receipts(prefix, *CHANGES):
        before = receipt.get("previous")
        if current is not None and receipt.get("serving") == current != before and isinstance(before, str):
            return before if RELEASE_ID.match(before) and (prefix.releases / before).is_dir() else None
    return None


def clear_staging(prefix: Prefix) -> None:
    """Remove staged files of a killed or failed install.

    Raises:
        OSError: it cannot be removed.
    """
    remove_tree(prefix.staging)


def prune(run: Journal) -> None:
    """Remove releases that are neither current nor previous. A failure is only noted: the install is complete."""
    prefix, state = run.prefix, read_state(run.prefix)
    keep = {state.current, state.previous} if state else set()
    if not keep:
        return
    try:
        _remove_others(prefix, keep)
        # Separately from their release: a removal may have been killed between the two.
        for beside in (prefix.tuning, prefix.interpreters):
            for path in list(beside.iterdir()) if beside.is_dir() else ():
                release = path.name[: -len(".json")] if path.name.endswith(".json") else path.name
                if release not in keep and RELEASE_ID.match(release):
                    remove_tree(path)
    except OSError as error:
        run.note(f"an old release could not be removed: {error.filename}: {error.strerror}")


def _remove_others(prefix: Prefix, keep: Set[Optional[str]]) -> None:
    """Remove releases that are not in `keep`: older ones, and one that was placed but never committed."""
    for folder in list(prefix.releases.iterdir()) if prefix.releases.is_dir() else ():
        if folder.name not in keep and RELEASE_ID.match(folder.name):
            remove_tree(folder)


def _serving_fields(prefix: Prefix, current: Optional[str]) -> Dict[str, Any]:
    """The fields of State that describe the active release."""
    if current is None:
        return {"current": None, "manifest_sha256": None, "sequence": None, "bundle_bytes": None}
    try:
        manifest, raw = verify.read_manifest(prefix.releases / current)
    except EdgepackError:  # a damaged release stays active; installing it again repairs it
        return {"current": current, "manifest_sha256": None, "sequence": None, "bundle_bytes": None}
    digest = hashlib.sha256(raw).hexdigest()
    return {"current": current, "manifest_sha256": digest, "sequence": manifest.sequence, "bundle_bytes": None}
