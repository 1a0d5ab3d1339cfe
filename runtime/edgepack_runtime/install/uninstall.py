"""Removes an install, and nothing that is not of it (standard library only).

    `current` -> receipt -> launcher, unit -> releases, bytecode, tuning, interpreters -> state.json

From the first of these, which is one unlink, nothing serves; before it, all of it does. A kill later on leaves a
prefix without `current` whose state.json still tells whose it is: `status` says so, `uninstall` goes on, and `install`
builds it up again. What stays is what tells of the device: the receipts, the pinned keys, and in state.json the
name and what installs may not go below. `purge` removes those too.

It may run from the very release that it removes: everything it needs is imported before, and no bytecode is written
after. It never follows a link, and what an install did not make stays where it lies and is named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from edgepack_runtime.bundle.manifest import RELEASE_ID
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError
from edgepack_runtime.install import receipts, recovery
from edgepack_runtime.install.prefix import (
    LEFT_BEFORE_STATE,
    PINNED,
    RECORDS,
    Prefix,
    State,
    clear_temporary,
    lock,
    nothing_installed,
    read_state,
    require_install,
    write_state,
)
from edgepack_runtime.install.receipts import RECEIPT
from edgepack_runtime.util.fs import fsync_folder, os_errors, remove_tree

UNITS = Path("/etc/systemd/system")  # where `systemctl link` and `enable` put their links


@dataclasses.dataclass
class Uninstall(receipts.Journal):
    """One run of `uninstall`: what it works on, and the receipt it fills."""

    prefix: Prefix
    name: str
    say: receipts.Say
    receipt: Dict[str, Any]


def uninstall(root: Path, name: Optional[str], *, purge: bool, say: receipts.Say) -> Dict[str, Any]:
    """Remove the install in the prefix `root`; return the receipt, which also lies there unless `purge`.

    Its `verdict` is `uninstalled`; its `notes` name what stays that is not of an install.

    Args:
        name: the bundle that is meant; None for whichever is installed there.
        purge: whether receipts, pinned keys and state.json go too.

    Raises:
        UsageError: the prefix holds no install, or that of another bundle.
        EnvironmentUnfitError: nothing is installed there; a folder of it is a link; systemd still runs it; or something
            cannot be removed: the same command goes on.
    """
    prefix = Prefix(root.absolute())
    _clear_unborn(prefix)
    owner = require_install(prefix, name)
    check_may_go(prefix, owner)
    run = Uninstall(prefix, owner, say, receipts.begin("uninstall", "uninstalled"))
    say(f"uninstalling {owner} from {prefix.root}")
    with _no_bytecode(), lock(prefix):
        before = _state(run)
        if not purge and before == State(before.name, **_kept(before)) and _only_records(prefix):
            remove_tree(prefix.lock_file)  # ours: it was not there, or one that was killed here left it
            raise nothing_installed(prefix)
        serving = prefix.current_id() or before.current
        run.receipt["previous"] = serving
        run.receipt["bundle"] = {"name": owner, "release_id": serving}
        with os_errors(f"the install in {prefix.root} cannot be removed; uninstall again to go on"):
            with run.step("switch off"):
                _switch_off(run)
            # On a full disk there is room for it only after the rest is gone.
            missing = None if purge else receipts.leave(prefix, run.receipt, say, best_effort=True)
            with run.step("remove"):
                _remove_parts(run)
            if purge:
                _remove_records(prefix)
            else:
                write_state(prefix, State(before.name, **_kept(before)))
        if missing is not None:
            receipts.leave(prefix, run.receipt, say, best_effort=False)
        with os_errors(f"the install in {prefix.root} is gone but for its lock"):
            remove_tree(prefix.lock_file)
    _tell_what_stays(run, purge=purge)
    return run.receipt


def check_may_go(prefix: Prefix, name: str) -> None:
    """Whether the install may be removed as it stands.

    Raises:
        EnvironmentUnfitError: systemd runs it, or a folder of it is a link to another place.
    """
    links = [folder.name for folder in _folders(prefix) if folder.is_symlink()]
    if links:
        raise EnvironmentUnfitError(
            f"{prefix.root} holds links where an install has folders: {', '.join(links)}",
            why="what they point to may be shared, and is not removed",
            fix="remove those links, and what they point to if nothing else uses it; then uninstall again",
        )
    unit = UNITS / f"{name}.service"
    with contextlib.suppress(OSError):  # no such link, or not ours to see: nothing there that we could know of
        target = os.path.join(UNITS, os.readlink(unit))  # noqa: PTH115, PTH118 - Path.readlink came with Python 3.9
        if os.path.realpath(target) == os.path.realpath(prefix.root / "systemd" / unit.name):
            raise EnvironmentUnfitError(
                f"systemd runs {name} from {prefix.root}",
                why=f"{unit} is a link to its unit",
                fix=f"sudo systemctl disable --now {name}; then uninstall again",
            )


def _clear_unborn(prefix: Prefix) -> None:
    """Remove what an install leaves that was killed before it wrote its first state.json, and say that it was all."""
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        found = {entry.name for entry in prefix.root.iterdir()} if prefix.root.is_dir() else set()
    if not found or not found <= LEFT_BEFORE_STATE:
        return
    with lock(prefix), os_errors(f"the prefix {prefix.root} cannot be removed"):
        if {entry.name for entry in prefix.root.iterdir()} <= LEFT_BEFORE_STATE:
            for left in LEFT_BEFORE_STATE:
                remove_tree(prefix.root / left)
            _remove_empty(prefix.root)


@contextlib.contextmanager
def _no_bytecode() -> Iterator[None]:
    """No import of ours puts bytecode into the prefix that is being removed."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _state(run: Uninstall) -> State:
    """What was committed. Nothing is repaired or written, as `recover` would: a full disk must not be in the way."""
    try:
        found = read_state(run.prefix)
    except BundleInvalidError as error:
        run.note(f"{error.what} ({error.why})")
        found = None
    return found or recovery.rebuilt(run.prefix, run.name)  # the floor outlives what it was read from


def _kept(before: State) -> Dict[str, Any]:
    """The fields of State that outlive an uninstall: all but those of the release that served."""
    gone = {"name", "current", "previous", "pending", "manifest_sha256", "sequence", "bundle_bytes"}
    return {key: value for key, value in dataclasses.asdict(before).items() if key not in gone}


def _only_records(prefix: Prefix) -> bool:
    """Whether an uninstall ended here before. Holds under the lock only."""
    with os_errors(f"the prefix {prefix.root} cannot be looked at"):
        return {entry.name for entry in prefix.root.iterdir()} <= RECORDS | LEFT_BEFORE_STATE


def _switch_off(run: Uninstall) -> None:
    current = run.prefix.current
    if current.is_symlink():
        current.unlink()
    fsync_folder(run.prefix.root)


def _folders(prefix: Prefix) -> List[Path]:
    inside = (prefix.releases, prefix.interpreters, prefix.tuning, prefix.bin, prefix.receipts)
    return [*inside, prefix.root / "cache", prefix.root / "systemd"]


def _remove_parts(run: Uninstall) -> None:
    prefix, name = run.prefix, run.name
    unit = f"{name}.service"
    clear_temporary(prefix)
    remove_tree(prefix.bin / name)
    remove_tree(prefix.root / "systemd" / unit)
    remove_tree(prefix.staging)
    for folder, suffix in ((prefix.releases, ""), (prefix.interpreters, ""), (prefix.tuning, ".json")):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            if path.name.endswith(suffix) and RELEASE_ID.match(path.name[: len(path.name) - len(suffix)]):
                remove_tree(path)
    remove_tree(prefix.root / "cache")
    for folder in _folders(prefix):
        if folder != prefix.receipts:
            _remove_empty(folder)
    fsync_folder(prefix.root)


def _remove_records(prefix: Prefix) -> None:
    """Receipts and pinned keys; state.json last, since it tells whose the prefix is."""
    for path in list(prefix.receipts.iterdir()) if prefix.receipts.is_dir() else ():
        if RECEIPT.match(path.name):
            remove_tree(path)
    _remove_empty(prefix.receipts)
    for name in PINNED:
        remove_tree(prefix.root / name)
    fsync_folder(prefix.root)
    remove_tree(prefix.state_file)
    fsync_folder(prefix.root)


def _remove_empty(folder: Path) -> None:
    """Remove `folder` if it is there and empty."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _tell_what_stays(run: Uninstall, *, purge: bool) -> None:
    root = run.prefix.root
    if purge:
        # Where it was made by somebody else, or is where a disk is mounted, the empty folder stays.
        with contextlib.suppress(OSError):
            _remove_empty(root)
    with os_errors(f"the prefix {root} cannot be looked at"):
        left = sorted(entry.name for entry in root.iterdir()) if root.is_dir() else []
    foreign = [name for name in left if purge or name not in RECORDS]
    if foreign:
        run.note(f"stays in {root}, as no install made it: {', '.join(foreign)}")
