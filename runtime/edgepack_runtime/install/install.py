"""Installs a bundle so that the device is on a known-good release at every instant (standard library only).

    trust -> verify -> doctor -> stage -> fsync -> re-hash from disk -> self-test -> tune -> gate -> commit -> read back

Until the commit, one atomic rename of the symlink `current`, the old release serves. Whatever fails before
it leaves the old release serving and nothing of the new one but a receipt. What fails in the read-back right
after it switches back. A kill or power cut leaves at most things that nothing points to; the next
install tells what happened and removes them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from edgepack_runtime.bundle import extract, verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, Manifest, release_id
from edgepack_runtime.device import doctor, tuning
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, ExitCode, GateFailedError, GateInconclusiveError
from edgepack_runtime.install import activate, receipts, recovery, release_process, trust
from edgepack_runtime.install.prefix import Prefix, State, check_is_ours, lock, write_state
from edgepack_runtime.install.receipts import Journal, Say
from edgepack_runtime.stats import checks as gate_checks
from edgepack_runtime.util import gate_lock
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors


@dataclasses.dataclass
class Install(Journal):
    """One run of `install`: what it works on, and the receipt it fills."""

    bundle: Path
    prefix: Prefix
    manifest: Manifest
    raw: bytes  # bytes of the manifest
    signature: Optional[bytes]  # bytes of its signature
    say: Say
    tune: bool
    receipt: Dict[str, Any]

    @property
    def release(self) -> str:
        return release_id(self.manifest, self.raw)


def install(
    bundle: Path, root: Path, *, say: Say, tune: bool = True, check: Optional[Callable[[Manifest], None]] = None
) -> Dict[str, Any]:
    """Install `bundle` into the prefix `root`; return the receipt, which also lies in `<root>/receipts`.

    The receipt's `verdict` is `installed`, `already installed` (the same release serves and is intact: it was
    self-tested, and nothing had to be changed) or `repaired` (its damaged files were replaced).

    Args:
        tune: whether to measure how this device runs the model fastest, before the gate.
        check: what else the bundle must be; called with its manifest when that is known to be right.

    Raises:
        UsageError: no bundle file there, or the prefix holds something else.
        EnvironmentUnfitError: this device cannot run it, or the prefix cannot be written.
        StageFailedError: staging, self-test or gate broke down.
        GateFailedError, GateInconclusiveError: the gate did not pass. Nothing was switched.
        BundleInvalidError: the bundle is damaged, or the staged files are; keys are pinned, and none of them signed
            it; or something newer was installed before.
        RolledBackError: the new release failed right after the switch; the one before serves again.
    """
    prefix = Prefix(root.absolute())
    say(f"installing {bundle.name} into {prefix.root}")
    with activate.readable_by_all():
        return _install(bundle, prefix, say, tune, check or _anything)


def _anything(manifest: Manifest) -> None:
    """Whatever the bundle is, is fine."""


def _install(bundle: Path, prefix: Prefix, say: Say, tune: bool, check: Callable[[Manifest], None]) -> Dict[str, Any]:
    with Archive(bundle) as archive:
        # Who made it comes first: nothing of it is parsed, unpacked or run before. And it is read once: what was
        # checked is what is used, whatever a stick answers when it is asked again.
        raw, signature = verify.read_sealed(archive)
        proof = trust.require(trust.read_pins(prefix.root), bundle.name, raw, signature)
        if proof.proven:
            say(f"  ok    signature  by {proof.principals}, {proof.fingerprint}")
        manifest, _ = verify.verify_archive(archive, raw)
        say("  ok    verify     every byte is as it was built")
        check_is_ours(prefix, manifest.name)
        check(manifest)
        run = Install(bundle, prefix, manifest, raw, signature, say, tune, _new_receipt(manifest, raw))
        run.receipt["bundle_bytes"] = archive.size
        run.receipt["signature"] = proof.as_json()
        if proof.note:
            run.note(proof.note)
        with run.step("doctor"):
            _doctor(run)
        with os_errors(f"the prefix {prefix.root} cannot be made"):
            for made in make_folder(prefix.root):
                fsync_folder(made.parent)
        with lock(prefix):
            try:
                _install_locked(run, archive)
            except EdgepackError as error:
                receipts.fail(run.receipt, "not installed", error)
                receipts.leave(prefix, run.receipt, say, best_effort=True)
                raise
            receipts.leave(prefix, run.receipt, say, best_effort=False)
    return run.receipt


def _install_locked(run: Install, archive: Archive) -> None:
    with os_errors(f"the prefix {run.prefix.root} cannot be written"):
        before, notes = recovery.recover(run.prefix, run.manifest.name)
        for note in notes:
            run.note(note)
    run.receipt["previous"] = before.current
    _check_floor(run, before)
    if before.current == run.release and _is_intact(run):
        run.receipt["verdict"] = "already installed"
        with os_errors("the launcher cannot be written"):
            activate.write_entry(run.prefix, run.manifest.name, run.release)
        with run.step("self-test"):
            run.receipt["selftest"] = activate.read_back(run.prefix, run.manifest.name, run.release, run.raw)
        return
    _require_room(run)
    pending = dataclasses.replace(before, pending=run.release)
    with os_errors(f"the prefix {run.prefix.root} cannot be written"):
        write_state(run.prefix, pending)
    try:
        stage = _stage(run, archive)
        _prove(run, stage)
        activate.commit(run, stage, before)
    except EdgepackError:
        activate.give_up(run, before)
        raise
    finally:
        _clear_staging(run)
    recovery.prune(run)


def _check_floor(run: Install, before: State) -> None:
    """Refuse to go below what was installed before. The release that serves may always be installed once more."""
    sequence, current = run.manifest.sequence, before.current or "nothing"
    version = run.manifest.version
    if before.floor is None or run.release == before.current:
        return
    if sequence < before.floor:
        raise BundleInvalidError(
            f"{run.bundle.name} is older than what was installed here before",
            why=f"its sequence is {sequence} ({version}), and {before.floor} was installed; {current} serves",
            fix="install a newer bundle; the way back to the release before is the verb `rollback`",
        )
    if sequence == before.sequence:
        run.note(f"its sequence, {sequence}, was installed before with other content; {current} serves until now")


def _clear_staging(run: Install) -> None:
    try:
        recovery.clear_staging(run.prefix)
    except OSError as error:  # not raised: it would hide the error that brought us here; the next install retries
        run.note(f"staged files are left over: {error.filename}: {error.strerror or error}")


def _doctor(run: Install) -> None:
    """Look at the device; at the room on its disk only where nothing is there that `recover` might clear."""
    checks = doctor.check_device(run.manifest, prefix=run.prefix.root)
    if run.prefix.state_file.exists():
        checks = [check for check in checks if check.check != doctor.DISK]
    run.receipt["doctor"] = [dataclasses.asdict(check) for check in checks]
    doctor.require(checks)


def _require_room(run: Install) -> None:
    """Whether a whole copy of the release finds room: asked again when what a killed install left is gone."""
    check = doctor.check_space(run.prefix.root, run.manifest.total_bytes)
    others = [found for found in run.receipt["doctor"] if found["check"] != doctor.DISK]
    run.receipt["doctor"] = [*others, dataclasses.asdict(check)]
    doctor.require([check])


def _is_intact(run: Install) -> bool:
    folder = run.prefix.releases / run.release
    with os_errors(f"the release {folder} cannot be read"):
        manifest_file = folder / MANIFEST_NAME
        if not manifest_file.is_file() or manifest_file.read_bytes() != run.raw:
            return False
        damage = verify.find_damage(folder, run.manifest)
    if not damage and run.signature not in (None, verify.read_signature(folder)):
        run.note("the installed release has another signature than the bundle; it gets that of the bundle")
        return False
    for item in damage[:5]:
        run.note(f"the installed release is damaged: {item.path} {item.why}")
    return not damage and _tuning_is_readable(run, folder)


def _tuning_is_readable(run: Install, release: Path) -> bool:
    try:
        tuning.read(run.prefix.tuning_of(release))
    except EdgepackError as error:
        run.note(f"{error.what} ({error.why}); it is measured anew")
        return False
    return True


def _stage(run: Install, archive: Archive) -> Path:
    stage = run.prefix.staging / run.release
    with run.step("stage"), os_errors(f"{run.bundle.name} cannot be unpacked into {run.prefix.root}"):
        made = make_folder(run.prefix.staging)
        extract.extract(archive, run.manifest, stage, raw=run.raw, signature=run.signature, durable=True)
        for folder in [run.prefix.staging, *(path.parent for path in made)]:
            fsync_folder(folder)
    with run.step("re-hash"):
        verify.verify_staged(stage, run.manifest, run.raw, run.signature)
    return stage


def _prove(run: Install, stage: Path) -> None:
    with run.step("self-test"):
        _, run.receipt["selftest"] = release_process.run_json(
            release_process.command(stage, ["selftest", "--json"]),
            "self-test",
            accepted=[ExitCode.OK],
            timeout_s=release_process.SELFTEST_TIMEOUT_S,
        )
    with gate_lock.hold(run.note):
        _measure(run, stage)


def _measure(run: Install, stage: Path) -> None:
    if run.tune:
        with run.step("tune"):
            _tune(run, stage)
    with run.step("gate"):
        size = str(run.receipt["bundle_bytes"])
        code, run.receipt["gate"] = release_process.run_json(
            release_process.command(
                stage, ["gate", "--json", "--without-rows", "--without-gates", "--bundle-bytes", size]
            ),
            "gate",
            accepted=[ExitCode.OK, ExitCode.GATE_FAILED, ExitCode.GATE_INCONCLUSIVE],
        )
        _require_gate(run, code)


def _tune(run: Install, stage: Path) -> None:
    line = release_process.command(stage, ["tune", "--json"])
    _, found = release_process.run_json(
        line, "tuning", accepted=[ExitCode.OK], timeout_s=release_process.SELFTEST_TIMEOUT_S
    )
    file = run.prefix.tuning_of(stage)
    with os_errors(f"{file} cannot be written"):
        tuning.keep(file, found)
    run.receipt["tuning"] = {"tuning": found["tuning"], "measured": found["measured"]}


def _require_gate(run: Install, code: ExitCode) -> None:
    if code == ExitCode.OK:
        for one in run.receipt["gate"].get("unmeasured", []):
            run.note("{gate}: not measured: {why}".format(**one))
        return
    checks = run.receipt["gate"].get("checks", [])
    missed = [gate_checks.missed(check) for check in checks if check.get("verdict") != "pass"]
    serving = run.receipt["previous"] or "nothing"
    why = "; ".join(missed) + f"; nothing was switched: {serving} serves as before"
    if code == ExitCode.GATE_FAILED:
        raise GateFailedError(
            f"{run.bundle.name} missed its gate on this device", why=why, fix="send the receipt to who built it"
        )
    raise GateInconclusiveError(
        f"the gate of {run.bundle.name} could not be decided on this device",
        why=why,
        fix="stop what else runs here and install again",
    )


def _new_receipt(manifest: Manifest, raw: bytes) -> Dict[str, Any]:
    return {
        **receipts.begin("install", "installed"),
        "bundle": receipts.facts(manifest, raw),
        "signature": None,
        "doctor": [],
        "selftest": None,
        "tuning": None,
        "gate": None,
    }
