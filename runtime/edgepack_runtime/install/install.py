"""Install a bundle so that the device is on a known-good release at every instant.

    trust -> verify -> doctor -> stage -> fsync -> re-hash from disk -> self-test -> wait -> tune -> gate -> commit
    -> read back

The commit is one atomic rename of the symlink `current`. Until then the old release stays active, and a failure
leaves only a receipt. A failure of the read-back switches back. After a kill or a power cut, the next install
reports what happened and removes the leftovers, which nothing points to.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from edgepack_runtime.bundle import extract, verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import BUNDLED, MANIFEST_NAME, Manifest, release_id
from edgepack_runtime.device import doctor, interference, tuning
from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    ExitCode,
    GateFailedError,
    GateInconclusiveError,
    StageFailedError,
    UsageError,
)
from edgepack_runtime.install import activate, receipts, recovery, release_process, trust
from edgepack_runtime.install.prefix import Prefix, State, check_owner, lock, write_state
from edgepack_runtime.install.receipts import Journal
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, declared, is_of_time
from edgepack_runtime.schema.receipt import GateReceipt
from edgepack_runtime.stats import intervals
from edgepack_runtime.util import gate_lock
from edgepack_runtime.util.fs import fsync_folder, holds, make_folder, os_errors
from edgepack_runtime.util.progress import Log


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the user chooses for an install.

    Attributes:
        tune: whether to search for the fastest settings on this device before the gate.
        wait_s: longest time to wait for other programs to leave the processor, before anything is timed; 0 measures at
            once.
        refuse_doubt: whether an inconclusive gate refuses; None leaves that to the recipe.
    """

    tune: bool = True
    wait_s: float = 0.0
    refuse_doubt: Optional[bool] = None


@dataclasses.dataclass
class Install(Journal):
    """One run of `install`."""

    bundle: Path
    manifest: Manifest
    raw: bytes  # bytes of the manifest
    signature: Optional[bytes]  # bytes of its signature
    choices: Choices

    @property
    def release(self) -> str:
        return release_id(self.manifest, self.raw)


def install(
    bundle: Path,
    root: Path,
    *,
    log: Log,
    choices: Choices = Choices(),
    check: Optional[Callable[[Manifest], None]] = None,
) -> Dict[str, Any]:
    """Install `bundle` into the prefix `root`; return the receipt, which is also stored in `<root>/receipts`.

    The receipt's `verdict` is `installed`, `repaired` (damaged files of the active release were replaced) or
    `already installed` (the active release is intact and passed its self-test).

    Args:
        check: called with the verified manifest; raises to refuse the bundle.

    Raises:
        UsageError: the bundle file does not exist, or the prefix holds something else.
        EnvironmentUnfitError: this device cannot run the bundle, or the prefix cannot be written.
        StageFailedError: staging, self-test or gate failed to run.
        GateFailedError, GateInconclusiveError: the gate refuses (`GateReceipt.refusal`). The old release stays active.
        BundleInvalidError: the bundle or its staged files are damaged, it is not signed by a trusted key, or a newer
            one was installed before.
        RolledBackError: the new release failed right after the switch; the previous one is active again.
    """
    prefix = Prefix(root.absolute())
    log(f"installing {bundle.name} into {prefix.root}")
    with Archive(bundle) as archive:
        # The signature is checked before anything is parsed, unpacked or run. The manifest is read once: a disk may
        # return other bytes on a second read.
        raw, signature = verify.read_signed_manifest(archive)
        proof = trust.require(trust.read_trusted_keys(prefix.root), bundle.name, raw, signature)
        if proof.proven:
            log(f"  ok    signature  by {proof.principals}, {proof.fingerprint}")
        manifest, _ = verify.verify_archive(archive, raw)
        log("  ok    verify     every byte is as it was built")
        _check_name(prefix, manifest)
        check_owner(prefix, manifest.name)
        if check is not None:
            check(manifest)
        receipt = {
            **receipts.new_receipt("install", "installed"),
            "bundle": to_json(receipts.bundle_facts(manifest, raw)),
            "bundle_bytes": archive.size,
            "signature": proof.as_json(),
            "doctor": [],
            "selftest": None,
            "waited_s": None,
            "tuning": None,
            "gate": None,
            "inconclusive_accepted": False,
        }
        run = Install(prefix, manifest.name, log, receipt, bundle, manifest, raw, signature, choices)
        if proof.note:
            run.note(proof.note)
        with run.step("doctor"):
            _doctor(run)
        with os_errors(f"the prefix {prefix.root} cannot be made"):
            for made in make_folder(prefix.root):
                fsync_folder(made.parent)
        with lock(prefix), run.recorded("not installed"):
            _install_locked(run, archive)
    return receipt


def _check_name(prefix: Prefix, manifest: Manifest) -> None:
    """Refuse a prefix that the loader of a carried C library would split at `:` or `;`, or expand at `$`."""
    if manifest.target.interpreter == BUNDLED and set(str(prefix.root)).intersection(":;$"):
        raise UsageError(
            f"{prefix.root} cannot hold this release",
            why="the loader of the C library that it carries would split this name",
            fix="choose a prefix without `:`, `;` and `$`",
        )


def _install_locked(run: Install, archive: Archive) -> None:
    with os_errors(f"the prefix {run.prefix.root} cannot be written"):
        before = recovery.recover(run)
    run.receipt["previous"] = before.current
    # Again, since another process may have trusted or revoked a key, or installed another bundle, before the lock.
    check_owner(run.prefix, run.name)
    run.receipt["signature"] = trust.require(
        trust.read_trusted_keys(run.prefix.root), run.bundle.name, run.raw, run.signature
    ).as_json()
    _check_minimum_sequence(run, before)
    if before.current == run.release and _is_intact(run):
        run.receipt["verdict"] = "already installed"
        with os_errors("the launcher cannot be written"):
            activate.write_launcher(run.prefix, run.name, run.release)
        with run.step("self-test"):
            run.receipt["selftest"] = activate.read_back(run.prefix, run.name, run.release, run.raw)
        return
    _require_space(run)
    with os_errors(f"the prefix {run.prefix.root} cannot be written"):
        write_state(run.prefix, dataclasses.replace(before, pending=run.release))
    try:
        stage = _stage(run, archive)
        _prove(run, stage)
        # Again: a key may have been revoked for the machine while the self-test and the gate ran.
        trust.require(trust.read_trusted_keys(run.prefix.root), run.bundle.name, run.raw, run.signature)
        activate.commit(run, stage, before)
    except Exception:
        activate.clear_pending(run, before)
        raise
    finally:
        try:
            recovery.clear_staging(run.prefix)
        except OSError as error:  # not raised: it would hide the first error, and the next install clears again
            run.note(f"staged files are left over: {error.filename}: {error.strerror or error}")
    recovery.prune(run)
    _warn_of_closed_folders(run)


def _warn_of_closed_folders(run: Install) -> None:
    """Log what keeps other users from starting a release that root installed, and what to type."""
    if os.geteuid() != 0:
        return
    root = run.prefix.root
    commands = {root: f"sh FILE install --prefix /opt/{run.name}"}
    if release_process.carried_interpreter(run.prefix.releases / run.release) is None:
        commands[Path(release_process.interpreter())] = (
            f"/usr/bin/python3 FILE install --prefix {shlex.quote(str(root))}"
        )
    for path, fix in commands.items():
        closed = doctor.closed_to_others(path)
        if closed is not None:
            run.log(message("install.note", text=message("install.only_root", folder=str(closed))))
            run.log(message("install.choose_another", path=str(path), command=fix))


def _check_minimum_sequence(run: Install, before: State) -> None:
    """Refuse a lower sequence number than any installed before, except that of the active release itself."""
    sequence, current = run.manifest.sequence, before.current or message("install.no_release")
    if before.minimum_sequence is None or run.release == before.current:
        return
    if sequence < before.minimum_sequence:
        way_out = message("install.roll_back" if before.previous else "install.other_folder")
        raise BundleInvalidError(
            message("install.older", name=run.bundle.name),
            why=message(
                "install.sequences",
                sequence=sequence,
                version=run.manifest.version,
                minimum=before.minimum_sequence,
                active=current,
            ),
            fix=message("install.newer", way_out=way_out),
        )
    if sequence == before.sequence:
        run.note(message("install.same_sequence", sequence=sequence, active=current))


def _doctor(run: Install) -> None:
    """Check the device. In an existing prefix, free space is checked later: `recover` may free some."""
    checks = doctor.check_device(run.manifest, prefix=run.prefix.root)
    if run.prefix.state_file.exists():
        checks = [check for check in checks if check.check != doctor.DISK]
    run.receipt["doctor"] = [dataclasses.asdict(check) for check in checks]
    doctor.require(checks)


def _require_space(run: Install) -> None:
    """Require space for a whole copy of the release, after leftovers of a killed install were removed."""
    check = doctor.check_space(run.prefix.root, run.manifest.bytes_for(platform.machine()))
    others = [found for found in run.receipt["doctor"] if found["check"] != doctor.DISK]
    run.receipt["doctor"] = [*others, dataclasses.asdict(check)]
    doctor.require([check])


def _is_intact(run: Install) -> bool:
    folder = run.prefix.releases / run.release
    with os_errors(f"the release {folder} cannot be read"):
        manifest_file = folder / MANIFEST_NAME
        if not holds(manifest_file, run.raw):
            return False
        damage = verify.find_damage(folder, run.manifest)
    if not damage and run.signature not in (None, verify.read_signature(folder)):
        run.note(message("install.other_signature"))
        return False
    for item in damage[:5]:
        run.note(message("install.damaged", file=item.path, why=item.why))
    try:
        tuning.read(run.prefix.tuning_file(folder))
    except EdgepackError as error:
        run.note(f"{error.what} ({error.why}); measuring again")
        return False
    return not damage


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
    """Self-test, tune and gate the staged release, each in a process of the release."""
    with run.step("self-test"):
        run.receipt["selftest"] = release_process.run_selftest(release_process.command(stage, ["selftest", "--json"]))
    with gate_lock.hold(run.note):
        if run.choices.wait_s > 0 and _limits_time(run.manifest.gates):
            with run.step("wait"):
                run.receipt["waited_s"] = round(interference.wait_for_quiet(run.choices.wait_s, run.log), 1)
        if run.choices.tune:
            with run.step("tune"):
                _tune(run, stage)
        with run.step("gate"):
            size = str(run.receipt["bundle_bytes"])
            options = ["gate", "--json", "--without-rows", "--without-gates", "--bundle-bytes", size]
            active = run.receipt["previous"]
            if active is not None and active != run.release:
                options += ["--against", str(run.prefix.releases / active)]
            _, run.receipt["gate"] = release_process.run_json(
                release_process.command(stage, options),
                "gate",
                accepted=[ExitCode.OK, ExitCode.GATE_FAILED, ExitCode.GATE_INCONCLUSIVE],
            )
            _require_gate(run)


def _limits_time(gates: Mapping[str, Any]) -> bool:
    """Whether a gate is on time: other programs disturb no other figure."""
    keys = [gate.split(".") for gate in declared() if is_of_time(gate)]
    return any((gates.get(section) or {}).get(key) for section, key, *_ in keys)


def _tune(run: Install, stage: Path) -> None:
    line = release_process.command(stage, ["tune", "--json"])
    _, found = release_process.run_json(
        line, "tuning", accepted=[ExitCode.OK], timeout_s=release_process.SELFTEST_TIMEOUT_S
    )
    file = run.prefix.tuning_file(stage)
    with os_errors(f"{file} cannot be written"):
        tuning.write(file, found)
    run.receipt["tuning"] = {"tuning": found["tuning"], "measured": found["measured"]}


def _require_gate(run: Install) -> None:
    """Refuse a release that its gate refuses; note what was not shown of one that goes on."""
    try:
        gate = GateReceipt.parse(run.receipt["gate"])
    except ValueError as error:
        raise StageFailedError("the verb `gate` did not print a receipt", why=str(error)) from error
    doubt = run.choices.refuse_doubt
    refused, caveats = gate.refusal(refuse_doubt=doubt), gate.not_shown
    if refused is None:
        run.receipt["inconclusive_accepted"] = doubt is False and gate.refusal() is not None
        for line in caveats:
            run.note(line)
        return
    serving = run.receipt["previous"] or message("install.no_release")
    why = joined(*caveats, message("install.stays", release=serving))
    limits = [check.gate for check in gate.checks if check.verdict != intervals.PASS]
    fixes: List[str] = []
    if limits and limits[0] != ABOVE_MAJORITY:
        fixes = [message("install.change_limit", gate=limits[0])]
    if refused == intervals.FAIL:
        raise GateFailedError(
            message("install.gate_failed", name=run.bundle.name),
            why=why,
            fix=joined(message("install.send_receipt"), *fixes, by="list.or"),
        )
    if ABOVE_MAJORITY in limits:
        fixes = [message("install.better_model")]
    else:
        accept = message("install.accept")
        if doubt and gate.refusal() is None:
            accept = message("install.omit_strict")
        fixes = [accept, *fixes]
        if any(is_of_time(gate) for gate in limits):
            longer = 10 * max(60, round(run.choices.wait_s))
            fixes = [message("install.wait_longer", seconds=longer), *fixes]
    raise GateInconclusiveError(
        message("install.gate_inconclusive", name=run.bundle.name), why=why, fix=joined(*fixes, by="list.or")
    )
