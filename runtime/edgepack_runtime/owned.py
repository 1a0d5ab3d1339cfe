"""Whose install a prefix holds, and what in it is nobody's: asked before anything goes (standard library only)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from edgepack_runtime import verify
from edgepack_runtime.durable import os_errors, remove_tree
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.state import REVOKED_NAME, SIGNERS_NAME, Prefix, read_state

_NOWHERE = Prefix(Path())
# What an install leaves that was killed before it wrote its first state.json.
LEFT_BEFORE_STATE = {_NOWHERE.lock_file.name, f".{_NOWHERE.state_file.name}.tmp"}
# What a prefix may hold before its first install: keys are pinned by then, best of all.
_BEFORE_INSTALL = {*LEFT_BEFORE_STATE, SIGNERS_NAME, f".{SIGNERS_NAME}.tmp", REVOKED_NAME, _NOWHERE.receipts.name}
# Not the receipts of `gate`, which holds no lock and may be writing one right now.
_TEMPORARY = re.compile(r"\.(?![0-9]{6}-gate\.).+\.tmp\Z")
PINNED = (SIGNERS_NAME, REVOKED_NAME)
# What stays when an install is removed: it tells of the device and not of a release.
RECORDS = {_NOWHERE.receipts.name, _NOWHERE.state_file.name, *PINNED}


def require_install(prefix: Prefix, wanted: Optional[str]) -> str:
    """The name of the bundle that `prefix` holds an install of, as its state.json or the serving release says.

    Args:
        wanted: the bundle that is meant; None for whichever there is.

    Raises:
        EnvironmentUnfitError: nothing is installed there, or it cannot be looked at.
        UsageError: the folder holds no install, or that of another bundle.
    """
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        found = sorted(entry.name for entry in prefix.root.iterdir()) if prefix.root.is_dir() else []
    if set(found) <= LEFT_BEFORE_STATE | RECORDS - {prefix.state_file.name}:
        raise nothing_installed(prefix)
    name = _name_in_state(prefix) or _name_of_release(prefix)
    if name is None:
        raise UsageError(
            f"the prefix {prefix.root} holds no install",
            why=f"it holds {', '.join(found[:3])}, and neither state.json nor `current` is one that an install wrote",
            fix="name the folder of an install: --prefix FOLDER",
        )
    if wanted is not None and name != wanted:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {name}",
            fix=f"name the folder of {wanted}: --prefix FOLDER",
        )
    return name


def check_is_ours(prefix: Prefix, name: Optional[str]) -> None:
    """Refuse a prefix that holds anything but installs of the bundle `name` (None: of any): what is not ours stays.

    Where state.json is lost or damaged, the serving release tells whose it is; the install itself rebuilds the file.

    Raises:
        UsageError: the folder holds other files, or another bundle.
        EnvironmentUnfitError: it cannot be looked at.
    """
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        found = {entry.name for entry in prefix.root.iterdir()} if prefix.root.exists() else set()
    owner = _name_in_state(prefix) or _name_of_release(prefix)
    if owner is None and prefix.state_file.name not in found and found - _BEFORE_INSTALL:
        raise UsageError(
            f"the prefix {prefix.root} is not empty and holds no install",
            why=f"it holds {', '.join(sorted(found)[:3])}; an install owns its whole prefix",
            fix="name a folder that is empty or does not exist: install --prefix FOLDER",
        )
    if owner is not None and name is not None and owner != name:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {owner}",
            fix=f"choose another folder for {name}: install --prefix FOLDER",
        )


def nothing_installed(prefix: Prefix) -> EnvironmentUnfitError:
    """The error for a prefix that holds no release, ready to be raised."""
    return EnvironmentUnfitError(
        f"nothing is installed in {prefix.root}", fix="name the folder of an install: --prefix FOLDER"
    )


def clear_temporary(prefix: Prefix) -> None:
    """Remove files that were being written by somebody who held the lock and was killed. Holds under the lock only.

    Raises:
        OSError: they cannot be removed.
    """
    inside = (prefix.receipts, prefix.interpreters, prefix.tuning, prefix.bin, prefix.root / "systemd")
    for folder in (prefix.root, *inside):
        for path in list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
            if _TEMPORARY.match(path.name):
                remove_tree(path)


def _name_in_state(prefix: Prefix) -> Optional[str]:
    try:
        state = read_state(prefix)
    except BundleInvalidError:  # `current` may still tell
        return None
    return state.name if state else None


def _name_of_release(prefix: Prefix) -> Optional[str]:
    """What the serving release's manifest says, which its folder's name proves to be the one that was installed."""
    current = prefix.current_id()
    try:
        return verify.read_manifest(prefix.releases / current)[0].name if current else None
    except EdgepackError:
        return None
