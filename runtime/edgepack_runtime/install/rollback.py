"""Switch an install back to the previous release, which was kept.

    hash from disk -> self-test -> switch -> read back

The switch is the same atomic rename of `current` as in an install. The release that served becomes the kept one, so
that rolling back twice returns to the newer release. A damaged release, or one that fails its self-test, is never
switched to. The minimum sequence of installs does not apply: the previous release was installed and tested here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    UsageError,
)
from edgepack_runtime.install import activate, receipts, recovery, release_process, trust
from edgepack_runtime.install.prefix import Prefix, State, lock, require_install, write_state
from edgepack_runtime.install.receipts import Journal, read_receipts
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.util.fs import os_errors, read_regular, switch_link
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.texts import NOTHING


def rollback(root: Path, name: Optional[str], *, log: Log, allow_revoked: bool = False) -> Dict[str, Any]:
    """Switch the install in the prefix `root` to the previous release; return the receipt, which is also stored there.

    Args:
        name: the expected bundle; None accepts any.
        allow_revoked: also to a release that a revoked key signed. Only root may.

    Raises:
        UsageError: the prefix holds no install, or one of another bundle; `allow_revoked`, and this user is not root.
        EnvironmentUnfitError: there is no previous release, keys or signatures cannot be read or checked, or the prefix
            cannot be written. Nothing was switched.
        BundleInvalidError: the previous release is damaged, or signed by a revoked key. Nothing was switched.
        StageFailedError: its self-test failed. If that was after the switch, the switch was undone.
    """
    if allow_revoked and os.geteuid() != 0:
        raise UsageError(message("rollback.root"), fix=message("rollback.as_root"))
    prefix = Prefix(root.absolute())
    owner = require_install(prefix, name)
    run = Journal(prefix, owner, log, receipts.new_receipt("rollback", "rolled back"))
    run.receipt["bundle"] = {"name": owner, "release_id": None}
    log(f"rolling back {owner} in {prefix.root}")
    with lock(prefix), run.recorded("not rolled back"):
        _rollback_locked(run, allow_revoked=allow_revoked)
    return run.receipt


def _rollback_locked(run: Journal, *, allow_revoked: bool) -> None:
    prefix = run.prefix
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        before = recovery.recover(run)
    run.receipt["previous"] = before.current
    release = _kept(prefix, before)
    run.receipt["bundle"]["release_id"] = release
    with run.step("re-hash"):
        manifest, raw = _intact(prefix, release, before)
    run.receipt["bundle"] = to_json(receipts.bundle_facts(manifest, raw))
    _check_signature(run, release, raw, allow_revoked=allow_revoked)
    python = _interpreter(run, release)
    with run.step("self-test"):
        line = release_process.command(prefix.releases / release, ["selftest", "--json"], python=python)
        run.receipt["selftest"] = release_process.run_selftest(line)
    # A key may have been revoked meanwhile.
    _check_signature(run, release, raw, allow_revoked=allow_revoked, again=True)
    try:
        with run.step("switch"), os_errors(f"{release} cannot be switched to in {prefix.root}"):
            write_state(prefix, dataclasses.replace(before, pending=release))
            activate.write_launcher(prefix, run.name, release, interpreter=python)
            switch_link(prefix.current, f"releases/{release}")
        with run.step("read back"):
            with os_errors(f"{prefix.state_file} cannot be written"):
                write_state(
                    prefix,
                    dataclasses.replace(
                        before,
                        current=release,
                        previous=before.current,
                        pending=None,
                        manifest_sha256=hashlib.sha256(raw).hexdigest(),
                        sequence=manifest.sequence,
                        bundle_bytes=_bundle_bytes(prefix, release),
                    ),
                )
            run.receipt["selftest"] = activate.read_back(prefix, run.name, release, raw)
    except Exception as error:  # after any error: a release that was not read back must not stay active
        if prefix.current_id() == before.current:
            activate.clear_pending(run, before)
            raise
        activate.restore(prefix, before)
        if not isinstance(error, EdgepackError):
            raise
        raise StageFailedError(
            message("rollback.failed", release=release, what=error.what),
            why=joined(error.why, message("install.active_again", release=_named(before.current))),
            fix=error.fix,
        ) from error


def _named(release: Optional[str]) -> str:
    return release or message("install.no_release")


def _kept(prefix: Prefix, before: State) -> str:
    """The id of the previous release."""
    release = before.previous
    if release is not None and (prefix.releases / release).is_dir():
        return release
    raise EnvironmentUnfitError(
        message("rollback.nothing"),
        why=message(
            "rollback.gone" if release else "rollback.no_other", active=_named(before.current), release=release or ""
        ),
        fix=message("rollback.install"),
    )


def _intact(prefix: Prefix, release: str, before: State) -> Tuple[Manifest, bytes]:
    try:
        return verify.verify_folder(prefix.releases / release)
    except BundleInvalidError as error:
        raise BundleInvalidError(
            joined(
                message("rollback.damaged", release=release), message("install.stays", release=_named(before.current))
            ),
            why=joined(error.what, error.why),
            fix=message("rollback.intact"),
        ) from error


def _check_signature(run: Journal, release: str, raw: bytes, *, allow_revoked: bool, again: bool = False) -> None:
    """Refuse a release that a revoked key signed. One by an untrusted key was accepted when installed: only noted.

    `again`: it was noted before.
    """
    folder = run.prefix.releases / release
    try:
        trusted = trust.read_trusted_keys(run.prefix.root)
        run.receipt["signature"] = trust.check_release(trusted, folder).as_json()
        trust.require(trusted, release, raw, verify.read_signature(folder))
    except trust.RevokedKeyError as error:
        if not allow_revoked:
            error.fix = message("rollback.allow")
            raise
        note = message("rollback.allowed", what=error.what)
    except BundleInvalidError as error:
        note = message("list.colon", parts=[error.what, error.why])
    else:
        return
    if not again:
        run.note(note)


def _interpreter(run: Journal, release: str) -> str:
    """The Python that runs `release`: its own, else that of its install, or ours if that is gone."""
    if carried := release_process.carried_interpreter(run.prefix.releases / release):
        return carried
    try:
        python = os.fsdecode(read_regular(run.prefix.interpreters / release)).rstrip("\n")
    except OSError:
        python = ""
    if os.access(python, os.X_OK):
        return python
    ours = release_process.interpreter()
    run.note(message("rollback.python_gone", release=release, python=python or NOTHING, ours=ours))
    return ours


def _bundle_bytes(prefix: Prefix, release: str) -> Optional[int]:
    """Size of the bundle file that `release` was installed from, from the receipt of that install."""
    for receipt in read_receipts(prefix, "install"):
        bundle = receipt.get("bundle")
        size = receipt.get("bundle_bytes")
        if isinstance(bundle, dict) and bundle.get("release_id") == release and isinstance(size, int):
            return size
    return None
