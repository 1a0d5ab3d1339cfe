"""Remove an install, and only files that an install made.

    `current` -> receipt -> launcher, unit -> releases, tuning, interpreters -> state.json

No release is active after the first step, which is one unlink. After a kill in a later step, `status` reports it,
`uninstall` continues and `install` installs again. The receipts, the trusted keys, and the name and minimum sequence in
state.json stay, unless `purge`. No link is followed. Foreign files stay and are named.

The code may run from the release that it removes: it imports everything before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shlex
from pathlib import Path
from typing import Any, Dict, Optional

from edgepack_runtime.bundle.manifest import RELEASE_ID
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError
from edgepack_runtime.install import receipts, recovery, release_process
from edgepack_runtime.install.prefix import (
    KEY_FILES,
    RECORDS,
    Prefix,
    State,
    clear_temporary,
    entries,
    lock,
    max_known,
    nothing_installed,
    read_state,
    require_install,
    write_state,
)
from edgepack_runtime.install.receipts import RECEIPT, Journal
from edgepack_runtime.util.fs import fsync_folder, os_errors, read_regular, remove_tree
from edgepack_runtime.util.progress import Log

UNITS = Path("/etc/systemd/system")  # folder of the links that `systemctl link` and `enable` make


def uninstall(root: Path, name: Optional[str], *, purge: bool, log: Log) -> Dict[str, Any]:
    """Remove the install in the prefix `root`; return the receipt, which is also stored there unless `purge`.

    Its `verdict` is `uninstalled`; its `notes` name the foreign files that stay.

    Args:
        name: the expected bundle; None accepts any.
        purge: remove receipts, trusted keys and state.json too.

    Raises:
        UsageError: the prefix holds no install, or one of another bundle.
        EnvironmentUnfitError: nothing is installed there; one of its folders is a link; systemd or a process serves it;
            or something cannot be removed, and the same command continues.
    """
    prefix = Prefix(root.absolute())
    _remove_leftovers(prefix)
    owner = require_install(prefix, name)
    check_removable(prefix, owner)
    run = Journal(prefix, owner, log, receipts.new_receipt("uninstall", "uninstalled"))
    log(f"uninstalling {owner} from {prefix.root}")
    with lock(prefix):
        before = _state(run)
        remaining = State(
            before.name, minimum_sequence=max_known(before.minimum_sequence, recovery.active_sequence(prefix))
        )
        if not purge and before == remaining and entries(prefix) <= RECORDS:
            remove_tree(prefix.lock_file)
            raise nothing_installed(prefix)
        serving = prefix.current_id() or before.current
        run.receipt["previous"] = serving
        run.receipt["bundle"] = {"name": owner, "release_id": serving}
        if (
            remaining.minimum_sequence != before.minimum_sequence and not purge
        ):  # an uninstall that is killed may not lose it
            with os_errors(f"the prefix {prefix.root} cannot be written"):
                write_state(prefix, dataclasses.replace(before, minimum_sequence=remaining.minimum_sequence))
        again = f"sh FILE uninstall --prefix {shlex.quote(str(prefix.root))}, as root if it holds files of root"
        with os_errors(f"the install in {prefix.root} cannot be removed; to continue: {again}"):
            with run.step("switch off"):
                if prefix.current.is_symlink():
                    prefix.current.unlink()
                fsync_folder(prefix.root)
            stored = purge or run.try_to_store()  # on a full disk there is space only after the removal
            with run.step("remove"):
                _remove_parts(run)
            if purge:
                _remove_records(prefix)
            else:
                write_state(prefix, remaining)
        if not stored:
            run.store()
        with os_errors(f"the install in {prefix.root} is removed except for its lock"):
            remove_tree(prefix.lock_file)
    _note_foreign_files(run, purge=purge)
    return run.receipt


def check_removable(prefix: Prefix, name: str) -> None:
    """Check that no server keeps the install from being removed.

    Raises:
        EnvironmentUnfitError: systemd or a process serves it.
    """
    unit = UNITS / f"{name}.service"
    with contextlib.suppress(OSError):  # no such link, or no access to it
        target = os.path.join(UNITS, os.readlink(unit))  # noqa: PTH115, PTH118 - Path.readlink came with Python 3.9
        if os.path.realpath(target) == os.path.realpath(prefix.root / "systemd" / unit.name):
            raise EnvironmentUnfitError(
                f"systemd runs {name} from {prefix.root}",
                why=f"{unit} is a link to its unit",
                fix=f"sudo systemctl disable --now {name}; then uninstall again",
            )
    with contextlib.suppress(OSError):  # no copy, or no access to it
        if not unit.is_symlink() and os.fsencode(prefix.bin / name) in read_regular(unit):
            raise EnvironmentUnfitError(
                f"systemd runs {name} from {prefix.root}",
                why=f"{unit} is a copy of its unit",
                fix=f"sudo systemctl disable --now {name}; sudo rm {unit}; then uninstall again",
            )
    servers = [str(process) for process in release_process.servers(prefix)]
    if servers:
        raise EnvironmentUnfitError(
            f"`serve` runs from {prefix.root}",
            why=f"it has the process number {', '.join(servers)}",
            fix=f"kill {' '.join(servers)}; then uninstall again",
        )


def _remove_leftovers(prefix: Prefix) -> None:
    """Remove a prefix that holds only leftovers of a killed install or purge."""
    if entries(prefix) or not prefix.lock_file.exists():
        return
    with lock(prefix), os_errors(f"the prefix {prefix.root} cannot be removed"):
        if not entries(prefix):
            clear_temporary(prefix)
            remove_tree(prefix.lock_file)
            _remove_empty(prefix.root)


def _state(run: Journal) -> State:
    """The committed state. Unlike `recover` this writes nothing, so that a full disk is no obstacle."""
    try:
        found = read_state(run.prefix)
    except BundleInvalidError as error:
        run.note(f"{error.what} ({error.why})")
        found = None
    return found or recovery.rebuild_state(run.prefix, run.name)


def _remove_parts(run: Journal) -> None:
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
    for folder in prefix.folders:
        if folder != prefix.receipts:
            _remove_empty(folder)
    fsync_folder(prefix.root)


def _remove_records(prefix: Prefix) -> None:
    """Remove receipts and trusted keys, and last state.json, which names the owner of the prefix."""
    for path in list(prefix.receipts.iterdir()) if prefix.receipts.is_dir() else ():
        if RECEIPT.match(path.name):
            remove_tree(path)
    _remove_empty(prefix.receipts)
    for name in KEY_FILES:
        remove_tree(prefix.root / name)
    fsync_folder(prefix.root)
    remove_tree(prefix.state_file)
    fsync_folder(prefix.root)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _note_foreign_files(run: Journal, *, purge: bool) -> None:
    root = run.prefix.root
    if purge:
        # An empty folder that belongs to another user or is a mount point stays.
        with contextlib.suppress(OSError):
            _remove_empty(root)
    foreign = sorted(name for name in entries(run.prefix) if purge or name not in RECORDS)
    if foreign:
        run.note(f"not part of an install, so they stay in {root}: {', '.join(foreign)}")
