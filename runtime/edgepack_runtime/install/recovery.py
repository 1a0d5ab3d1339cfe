"""Brings what was broken off to its end, and clears what it left (standard library only).

`current` is the truth about what serves; `state.json` and the receipts tell the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import RELEASE_ID
from edgepack_runtime.errors import BundleInvalidError, EdgepackError
from edgepack_runtime.install.prefix import Prefix, State, clear_temporary, higher, read_state, write_state
from edgepack_runtime.install.receipts import CHANGES, highest_installed, receipts_of
from edgepack_runtime.util.fs import remove_tree

if TYPE_CHECKING:
    from edgepack_runtime.install.install import Install


def recover(prefix: Prefix, name: str) -> Tuple[State, List[str]]:
    """Bring an interrupted install to its end; return the true state and what there is to tell about it.

    The symlink is the truth: if it names the pending release, that one was committed. Holds under the lock only.

    Raises:
        OSError: the prefix cannot be written.
    """
    notes: List[str] = []
    current = prefix.current_id()
    try:
        found = read_state(prefix)
    except BundleInvalidError as error:
        notes.append(f"{error.what} ({error.why}); it is rebuilt from `current`")
        found = None
    if found is None and not notes and current is not None:
        notes.append("state.json is lost; it is rebuilt from `current`")
    state = found or rebuilt(prefix, name)
    if state.pending is not None:
        if state.pending == current != state.current:
            notes.append(f"{state.unfinished} was interrupted right after its commit; it serves")
        else:
            notes.append(f"{state.unfinished} was interrupted; {current or 'nothing'} serves as before")
    elif state.current is not None and current is None:
        notes.append(f"an uninstall of {state.current} was interrupted, or `current` was removed by hand")
    elif state.current not in (None, current):
        notes.append(f"`current` was changed from {state.current} to {current} outside an install")
    if state.current != current:
        state = dataclasses.replace(state, previous=state.current, **_facts(prefix, current))
    state = dataclasses.replace(state, pending=None, floor=higher(state.floor, state.sequence))
    clear_staging(prefix)
    clear_temporary(prefix)
    if found is not None:  # else nothing tells for certain which release is the kept one
        try:
            _remove_others(prefix, {state.current, state.previous})
        except OSError as error:
            notes.append(f"a release that was never committed could not be removed: {error.filename}: {error.strerror}")
    if state != found:
        write_state(prefix, state)
    return state, notes


def rebuilt(prefix: Prefix, name: str) -> State:
    """What `current` and the receipts tell of an install whose state.json is lost or damaged."""
    current = prefix.current_id()
    state = State(name, previous=_kept_before(prefix, current), **_facts(prefix, current))
    return dataclasses.replace(state, floor=higher(highest_installed(prefix), state.sequence))


def _kept_before(prefix: Prefix, current: Optional[str]) -> Optional[str]:
    """The release that served before `current` and still lies there, as the newest receipt tells that has both."""
    for receipt in receipts_of(prefix, *CHANGES):
        before = receipt.get("previous")
        if current is not None and receipt.get("serving") == current != before and isinstance(before, str):
            return before if RELEASE_ID.match(before) and (prefix.releases / before).is_dir() else None
    return None


def clear_staging(prefix: Prefix) -> None:
    """Remove what a killed or failed install left in staging, bytecode included.

    Raises:
        OSError: it cannot be removed.
    """
    remove_tree(prefix.bytecode_of(prefix.staging))
    remove_tree(prefix.staging)


def prune(run: Install) -> None:
    """Remove releases that are neither current nor previous. A failure is told, not raised: the install is done."""
    prefix, state = run.prefix, read_state(run.prefix)
    keep = {state.current, state.previous} if state else set()
    if not keep:
        return
    try:
        _remove_others(prefix, keep)
        # By themselves, and not with their release: whoever removed that may have been killed before it came to them.
        for beside in (prefix.tuning, prefix.interpreters):
            for path in list(beside.iterdir()) if beside.is_dir() else ():
                if path.name not in keep and path.name[: -len(".json")] not in keep:
                    remove_tree(path)
    except OSError as error:
        run.note(f"an old release could not be removed: {error.filename}: {error.strerror}")


def _remove_others(prefix: Prefix, keep: Set[Optional[str]]) -> None:
    """Remove releases that are not in `keep`: older ones, and one that was moved to its place and never switched to."""
    for folder in list(prefix.releases.iterdir()) if prefix.releases.is_dir() else ():
        if folder.name not in keep and RELEASE_ID.match(folder.name):
            remove_tree(prefix.bytecode_of(folder))
            remove_tree(folder)


def _facts(prefix: Prefix, current: Optional[str]) -> Dict[str, Any]:
    """The fields of State that follow from the release that serves."""
    if current is None:
        return {"current": None, "manifest_sha256": None, "sequence": None, "bundle_bytes": None}
    try:
        manifest, raw = verify.read_manifest(prefix.releases / current)
    except EdgepackError:  # damaged: it serves all the same, and installing it again repairs it
        return {"current": current, "manifest_sha256": None, "sequence": None, "bundle_bytes": None}
    digest = hashlib.sha256(raw).hexdigest()
    return {"current": current, "manifest_sha256": digest, "sequence": manifest.sequence, "bundle_bytes": None}
