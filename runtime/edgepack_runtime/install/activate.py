"""Commit of an install: makes a tested release the active one, or undoes it.

Each step is durable before the next: the release's folder, its tuning, its interpreter, the launcher, the symlink
`current` (the commit), `state.json`. Tuning and interpreter are stored per release, so that one rename switches code,
tuning and interpreter together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, SIGNATURE_NAME, Manifest
from edgepack_runtime.device import tuning
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, ExitCode, RolledBackError, StageFailedError
from edgepack_runtime.install import release_process
from edgepack_runtime.install.prefix import Prefix, State, max_known, read_state, write_state
from edgepack_runtime.messages import joined, message
from edgepack_runtime.util.fs import (
    EXECUTABLE_MODE,
    FILE_MODE,
    fsync_folder,
    holds,
    make_folder,
    os_errors,
    remove_tree,
    switch_link,
    write_atomic,
)

if TYPE_CHECKING:
    from edgepack_runtime.install.install import Install
    from edgepack_runtime.install.receipts import Journal

# Plain POSIX sh with builtins only, so that it works with any PATH. If started through a link, it runs the system's
# readlink: PATH may name the working directory, which may be on a removable disk.
# It finds the prefix from its own path, as a prefix may be moved. The release is resolved once, before Python starts,
# so that a switch at the same time cannot mix two releases. Since Python 3.11, -I does not stop the two variables that
# name another executable: the standard library would be the one beside it.
_ENTRY = """\
#!/bin/sh
# Runs the active release of {name}. Written by its installer.
unset PYTHONEXECUTABLE __PYVENV_LAUNCHER__
self=$0
case $self in
    */*) ;;
    *) self=./$self ;;
esac
while [ -h "$self" ]; do
    link=$(command -p readlink "$self") || exit {unfit}
    case $link in
        /*) self=$link ;;
        *) self=${{self%/*}}/$link ;;
    esac
done
prefix=$(CDPATH= cd -P -- "${{self%/*}}/.." && pwd -P) || exit {unfit}
release=$(CDPATH= cd -P -- "$prefix/current" 2>&- && pwd -P)
case $release in
    "" | "$prefix"/releases/*) ;;
    *)
        echo "error: $prefix/releases leads to another place: $release" >&2
        echo "  why: the keys of $prefix would not be asked there" >&2
        echo "  fix: move the whole folder $prefix, and not a part of it" >&2
        exit {unfit}
        ;;
esac
own=$release/{machine}/python/bin/python3
if [ -n "$release" ] && [ -x "$own" ]; then
    exec "$own" -I -S -B "$release/__main__.py" "$@"
fi
if [ -z "$release" ] || ! read -r python <"$prefix/interpreters/${{release##*/}}"; then
    echo "error: no release of {name} is installed in $prefix" >&2
    echo "  fix: sh FILE.edgepack install --prefix '$prefix'" >&2
    exit {invalid}
fi
if [ ! -x "$python" ]; then
    echo "error: the Python that {name} was installed with cannot be run: $python" >&2
    echo "  why: it is gone, or this user has no access to it" >&2
    echo "  fix: install with a Python that all its users can run: /usr/bin/python3 FILE install --prefix '$prefix'" >&2
    exit {unfit}
fi
exec "$python" -I -S -B "$release/__main__.py" "$@"
"""


def commit(run: Install, stage: Path, before: State) -> None:
    """Make the staged release the active one, and read it back.

    Raises:
        EnvironmentUnfitError: a write failed before the switch; the old release stays active.
        StageFailedError, RolledBackError: a step after the rename failed, and the switch was undone.
    """
    prefix, release = run.prefix, run.release
    try:
        with run.step("commit"), os_errors(f"{release} cannot be committed in {prefix.root}"):
            _place(run, stage)
            _place_tuning(prefix, stage)
            write_launcher(prefix, run.manifest.name, release)
            switch_link(prefix.current, f"releases/{release}")
        with run.step("read back"):
            with os_errors(f"{prefix.state_file} cannot be written"):
                write_state(prefix, _state_after(run, before))
            run.receipt["selftest"] = read_back(prefix, run.manifest.name, release, run.raw)
    except Exception as error:  # after any error: a release that was not read back must not stay active
        if prefix.current_id() == before.current:
            raise
        restore(prefix, before)
        if not isinstance(error, EdgepackError):
            raise
        what: str = message("install.failed_after_switch", what=error.what)
        if before.current is None:
            what = joined(what, message("install.nothing"))
            raise StageFailedError(what, why=error.why, fix=error.fix) from error
        why = joined(error.why, message("install.active_again", release=before.current))
        raise RolledBackError(what, why=why, fix=error.fix) from error


def read_back(prefix: Prefix, name: str, release: str, raw: bytes) -> Dict[str, Any]:
    """Self-test the installed release through its launcher; return the result.

    Raises:
        StageFailedError: the prefix does not hold what was written into it, or the self-test fails.
    """
    state = read_state(prefix)
    found = prefix.current / MANIFEST_NAME
    with os_errors(f"{found} cannot be read back"):
        same = holds(found, raw)
    if prefix.current_id() != release or state is None or state.current != release or not same:
        raise StageFailedError(f"`current` and state.json do not name {release} after the switch", fix="check the disk")
    line = [str(prefix.bin / name), "selftest", "--json"]
    return release_process.run_selftest(line, "self-test of the installed release")


def write_launcher(prefix: Prefix, name: str, release: str, *, interpreter: Optional[str] = None) -> None:
    """Write the launcher `<prefix>/bin/<name>` and the path of the Python that runs `release`, each only if it differs.

    Args:
        interpreter: path of that Python, for a release that carries none; None for ours.

    Raises:
        OSError: they cannot be written.
    """
    text = _ENTRY.format(
        name=name,
        machine=platform.machine(),
        unfit=int(ExitCode.ENVIRONMENT_UNFIT),
        invalid=int(ExitCode.BUNDLE_INVALID),
    )
    wanted = [(prefix.bin / name, text.encode("utf-8"), EXECUTABLE_MODE)]
    if release_process.carried_interpreter(prefix.releases / release) is None:
        python = os.fsencode(interpreter or release_process.interpreter()) + b"\n"
        wanted.insert(0, (prefix.interpreters / release, python, FILE_MODE))
    for path, data, mode in wanted:
        for made in make_folder(path.parent):
            fsync_folder(made.parent)
        if not holds(path, data) or path.stat().st_mode & 0o777 != mode:
            write_atomic(path, data, mode=mode)


def _place(run: Install, stage: Path) -> None:
    """Move the staged release to its final name; if that exists already, repair it file by file."""
    final = run.prefix.releases / run.release
    if final.is_dir() and not final.is_symlink():
        repaired = _repair(final, stage, run.manifest)
        _replace_signature(final, stage)  # another signature is no damage
        if repaired and run.release == run.receipt["previous"]:
            run.receipt["verdict"] = "repaired"
            run.note(message("install.replaced"))
        elif repaired:
            run.note(message("install.replaced_kept"))
    else:
        remove_tree(final)
        stage.rename(final)
    fsync_folder(run.prefix.releases)


def _place_tuning(prefix: Prefix, stage: Path) -> None:
    """Move the tuning of the staged release to its final place.

    Without one, an earlier tuning stays unless it is damaged: the release would not start with it.
    """
    staged = prefix.tuning_file(stage)
    placed = prefix.tuning_file(prefix.releases / stage.name)
    if staged.is_file():
        for made in make_folder(prefix.tuning):
            fsync_folder(made.parent)
        staged.replace(placed)
        fsync_folder(prefix.tuning)
        return
    try:
        tuning.read(placed)
    except BundleInvalidError:
        remove_tree(placed)
        fsync_folder(prefix.tuning)


def _repair(final: Path, stage: Path, manifest: Manifest) -> bool:
    """Replace damaged files, each by one atomic rename, so that an active release never gets worse."""
    damage = verify.find_damage(final, manifest)
    for item in damage:
        if not item.listed:
            remove_tree(final / item.path)
    for item in damage:
        if item.listed:
            target = final / item.path
            if target.is_dir() and not target.is_symlink():
                remove_tree(target)
            make_folder(target.parent)
            (stage / item.path).replace(target)
            fsync_folder(target.parent)
    manifest_file = final / MANIFEST_NAME
    fresh = stage / MANIFEST_NAME
    same = holds(manifest_file, fresh.read_bytes())
    if not same:
        remove_tree(manifest_file)
        fresh.replace(manifest_file)
        fsync_folder(final)
    return bool(damage) or not same


def _replace_signature(final: Path, stage: Path) -> None:
    """Replace the release's signature if the bundle has another one."""
    signature = verify.read_signature(stage)
    if signature is not None and signature != verify.read_signature(final):
        (stage / SIGNATURE_NAME).replace(final / SIGNATURE_NAME)
        fsync_folder(final)


def clear_pending(run: Journal, before: State) -> None:
    """Remove the pending entry if nothing was switched. If that cannot be written, the next command reports it."""
    if run.prefix.current_id() != before.current:
        return  # the switch was not undone, and the entry is true
    try:
        write_state(run.prefix, dataclasses.replace(before, pending=None))
    except OSError as error:
        run.note(f"state.json still has this install as pending: {error.strerror or error}")


def restore(prefix: Prefix, before: State) -> None:
    """Switch back to the release that served before.

    Raises:
        EnvironmentUnfitError: it could not be switched to; or it is active again, and state.json could not be written.
    """
    failed = "the new release failed after the switch"
    with os_errors(f"{failed}, and the previous one could not be restored"):
        if before.current is None:
            remove_tree(prefix.current)
            fsync_folder(prefix.root)
        else:
            switch_link(prefix.current, f"releases/{before.current}")
    now = f"{before.current} is active again" if before.current else "nothing is installed again"
    with os_errors(f"{failed}; {now}, and state.json could not be written"):
        write_state(prefix, before)


def _state_after(run: Install, before: State) -> State:
    previous = before.previous if before.current == run.release else before.current
    return State(
        name=run.manifest.name,
        current=run.release,
        previous=previous,
        manifest_sha256=hashlib.sha256(run.raw).hexdigest(),
        sequence=run.manifest.sequence,
        bundle_bytes=run.receipt["bundle_bytes"],
        minimum_sequence=max_known(before.minimum_sequence, run.manifest.sequence),
    )
