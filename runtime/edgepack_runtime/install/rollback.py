"""Back to the release before, which was kept (standard library only).

    hash from disk -> self-test -> switch -> read back

The same rename of `current` as an install's makes the kept release the serving one, and what served becomes the one
that is kept: a second rollback goes forth again. Nothing is switched to that is damaged or fails its self-test. The
sequence floor of installs does not hold it back: what it goes to was installed and proven here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, ExitCode, StageFailedError
from edgepack_runtime.install import activate, receipts, recovery, release_process, trust
from edgepack_runtime.install.prefix import Prefix, State, lock, require_install, write_state
from edgepack_runtime.install.receipts import receipts_of
from edgepack_runtime.util.fs import os_errors, switch_link


@dataclasses.dataclass
class Rollback(receipts.Journal):
    """One run of `rollback`: what it works on, and the receipt it fills."""

    prefix: Prefix
    name: str
    say: receipts.Say
    receipt: Dict[str, Any]


def rollback(root: Path, name: Optional[str], *, say: receipts.Say) -> Dict[str, Any]:
    """Switch the install in the prefix `root` to the release before; return the receipt, which also lies there.

    Args:
        name: the bundle that is meant; None for whichever is installed there.

    Raises:
        UsageError: the prefix holds no install, or that of another bundle.
        EnvironmentUnfitError: there is no release before, or the prefix cannot be written. Nothing was switched.
        BundleInvalidError: the release before is damaged. Nothing was switched.
        StageFailedError: it failed its self-test, before the switch or right after it: then it was undone.
    """
    prefix = Prefix(root.absolute())
    owner = require_install(prefix, name)
    run = Rollback(prefix, owner, say, receipts.begin("rollback", "rolled back"))
    run.receipt["bundle"] = {"name": owner, "release_id": None}
    say(f"rolling back {owner} in {prefix.root}")
    with activate.readable_by_all(), lock(prefix):
        try:
            _rollback_locked(run)
        except EdgepackError as error:
            receipts.fail(run.receipt, "not rolled back", error)
            receipts.leave(prefix, run.receipt, say, best_effort=True)
            raise
        receipts.leave(prefix, run.receipt, say, best_effort=False)
    return run.receipt


def _rollback_locked(run: Rollback) -> None:
    prefix = run.prefix
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        before, notes = recovery.recover(prefix, run.name)
    for note in notes:
        run.note(note)
    run.receipt["previous"] = before.current
    release = _kept(prefix, before)
    run.receipt["bundle"]["release_id"] = release
    with run.step("re-hash"):
        manifest, raw = _intact(prefix, release, before)
    run.receipt["bundle"] = receipts.facts(manifest, raw)
    _tell_who_signed(run, release, raw)
    python, line = _line(run, release)
    with run.step("self-test"):
        _, run.receipt["selftest"] = release_process.run_json(
            line, "self-test", accepted=[ExitCode.OK], timeout_s=release_process.SELFTEST_TIMEOUT_S
        )
    try:
        with run.step("switch"), os_errors(f"{release} cannot be switched to in {prefix.root}"):
            write_state(prefix, dataclasses.replace(before, pending=release))
            activate.write_entry(prefix, run.name, release, interpreter=python)
            switch_link(prefix.current, f"releases/{release}")
        with run.step("read back"):
            with os_errors(f"{prefix.state_file} cannot be written"):
                write_state(prefix, _state_after(prefix, before, manifest, raw, release))
            run.receipt["selftest"] = activate.read_back(prefix, run.name, release, raw)
    except Exception as error:  # whatever it was: what was not read back must not serve
        if prefix.current_id() == before.current:
            activate.give_up(run, before)
            raise
        activate.put_back(prefix, before)
        if not isinstance(error, EdgepackError):
            raise
        raise StageFailedError(
            f"{release} failed right after the switch: {error.what}",
            why=f"{error.why}; {before.current or 'nothing'} serves again".lstrip("; "),
            fix=error.fix,
        ) from error


def _kept(prefix: Prefix, before: State) -> str:
    """The id of the release to go back to."""
    release = before.previous
    if release is not None and (prefix.releases / release).is_dir():
        return release
    raise EnvironmentUnfitError(
        "there is no release to go back to",
        why=f"{before.current or 'nothing'} serves, and {f'{release} is gone' if release else 'no other was kept'}",
        fix="install the bundle you want: an install keeps the release that it replaces",
    )


def _intact(prefix: Prefix, release: str, before: State) -> Tuple[Manifest, bytes]:
    try:
        return verify.verify_folder(prefix.releases / release)
    except BundleInvalidError as error:
        raise BundleInvalidError(
            f"the kept release {release} is damaged, and nothing was switched to it",
            why="; ".join(part for part in (error.what, error.why) if part),
            fix=f"{before.current or 'nothing'} serves as before; install a bundle that is intact",
        ) from error


def _tell_who_signed(run: Rollback, release: str, raw: bytes) -> None:
    """Note where it is not proven who made `release`. It was accepted when it was installed, and is gone back to."""
    folder = run.prefix.releases / release
    try:
        pins = trust.read_pins(run.prefix.root)
        proof = trust.of_release(pins, folder, raw, verify.read_signature(folder))
    except EdgepackError as error:
        run.note(f"{error.what}: {error.why}")
        return
    run.receipt["signature"] = proof.as_json()
    if pins and not proof.proven:
        run.note(f"{release} is not proven to come from whom this device trusts: {proof.note}")


def _line(run: Rollback, release: str) -> Tuple[str, List[str]]:
    """The Python to run `release` with (the one it was installed with, if it is there), and its self-test's command."""
    try:
        python = os.fsdecode((run.prefix.interpreters / release).read_bytes()).rstrip("\n")
    except OSError:
        python = ""
    if not os.access(python, os.X_OK):
        ours = release_process.interpreter()
        run.note(f"the Python that {release} was installed with is gone ({python or 'not told'}); {ours} runs it")
        python = ours
    return python, release_process.command(run.prefix.releases / release, ["selftest", "--json"], python=python)


def _state_after(prefix: Prefix, before: State, manifest: Manifest, raw: bytes, release: str) -> State:
    return dataclasses.replace(
        before,
        current=release,
        previous=before.current,
        pending=None,
        manifest_sha256=hashlib.sha256(raw).hexdigest(),
        sequence=manifest.sequence,
        bundle_bytes=_bundle_bytes(prefix, release),
    )


def _bundle_bytes(prefix: Prefix, release: str) -> Optional[int]:
    """How large the file was that `release` was installed from, as the receipt of that tells."""
    for receipt in receipts_of(prefix, "install"):
        bundle = receipt.get("bundle")
        size = receipt.get("bundle_bytes")
        if isinstance(bundle, dict) and bundle.get("release_id") == release and isinstance(size, int):
            return size
    return None
