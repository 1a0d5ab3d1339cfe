"""The verbs about bundles, releases and installs: options, calls and printed results."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any, List, Mapping

from edgepack_runtime.bundle import golden, model_config, verify
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.model_config import CUSTOM
from edgepack_runtime.cli.context import (
    bundle_name,
    bundle_or_release,
    delegate,
    find_prefix,
    log,
    print_result,
    read_bundle_manifest,
    report_damage,
    require_installed,
    require_prefix,
    running_prefix,
    verifying_prefix,
)
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.device import tuning
from edgepack_runtime.errors import BundleInvalidError, ExitCode, UsageError
from edgepack_runtime.install.prefix import Prefix, default_prefix, lock, read_state
from edgepack_runtime.messages import joined, local, message, printed
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.fs import os_errors, read_regular, write_atomic


def run_doctor(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.device import doctor, probe

    # Collected only on request: it starts a program and loads libraries.
    facts = probe.collect() if options.json or options.probe is not None else None
    if facts is not None and options.probe is not None:
        with os_errors(f"the probe {options.probe} cannot be written"):
            write_atomic(options.probe, probe.dump(facts))
        log(f"device facts written to {options.probe}")
    if context.release is not None:
        manifest, _ = verify.read_manifest(context.release)
        checks = doctor.check_device(manifest)
    else:
        manifest = read_bundle_manifest(context.bundle or options.bundle, own=context.bundle is not None)
        checks = doctor.check_device(manifest, prefix=options.prefix or default_prefix(manifest.name))
    good = all(check.ok for check in checks)
    result = {"ok": good, "checks": [dataclasses.asdict(check) for check in checks], "device": facts}
    verdict = message("doctor.can" if good else "doctor.cannot", name=manifest.name, version=manifest.version)
    print_result(options, result, f"{doctor.render(checks)}\n{local(verdict)}")
    return ExitCode.OK if good else ExitCode.ENVIRONMENT_UNFIT


def run_verify(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import trust

    path = bundle_or_release(options, context)
    # Not the prefix around `path`: keys beside a bundle prove nothing.
    prefix = verifying_prefix(options, context)
    trusted = trust.read_trusted_keys(prefix.root if prefix else None)
    if path.is_dir():
        raw = verify.read_manifest_bytes(path)
        proof = trust.require(trusted, path.name, raw, verify.read_signature(path))
        manifest, _ = verify.verify_folder(path, raw)
    else:
        with Archive(path) as archive:
            raw, signature = verify.read_signed_manifest(archive)
            proof = trust.require(trusted, path.name, raw, signature)
            manifest, _ = verify.verify_archive(archive, raw)
    release = contract.release_id(manifest, raw)
    result = {
        "ok": True,
        "name": manifest.name,
        "version": manifest.version,
        "target": manifest.target.profile,
        "release_id": release,
        "files": len(manifest.files) + 1,
        "signature": proof.as_json(),
    }
    signed = proof.note or message("verify.signed", by=proof.principals, key=proof.fingerprint)
    intact = message("verify.intact", name=manifest.name, release=release, n=len(manifest.files) + 1)
    print_result(options, result, f"{local(intact)}\n{local(signed)}")
    return ExitCode.OK


def run_readme(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    with os_errors(f"{contract.README_NAME} cannot be read"):
        if context.release is not None:
            raw = read_regular(context.release / contract.README_NAME, contract.MAX_README_BYTES)
        else:
            bundle = context.bundle or options.bundle
            # Where keys are trusted, one must have signed it.
            manifest = read_bundle_manifest(bundle, own=context.bundle is not None)
            with Archive(bundle) as archive:
                raw = archive.read(contract.README_NAME, contract.MAX_README_BYTES)
            listed = [one.sha256 for one in manifest.files if one.path == contract.README_NAME]
            if listed != [hashlib.sha256(raw).hexdigest()]:
                raise BundleInvalidError(f"{bundle.name} is damaged", why=f"{contract.README_NAME} is not as listed")
    sys.stdout.write(printed(raw.decode("utf-8", "replace").splitlines()) + "\n")
    return ExitCode.OK


def run_install(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import install as installer
    from edgepack_runtime.schema.receipt import GateReceipt

    bundle: Path = context.bundle or options.bundle
    own = running_prefix(context)
    root = options.prefix or (
        own.root if own else default_prefix(read_bundle_manifest(bundle, own=context.bundle is not None).name)
    )
    check = None
    if options.systemd:
        from edgepack_runtime.cli import serve_command

        check = serve_command.check_carried
    choices = installer.Choices(
        tune=not options.no_tune,
        wait_s=options.wait,
        refuse_doubt=True if options.strict else False if options.accept_inconclusive else None,
    )
    receipt = installer.install(bundle, root, log=log, choices=choices, check=check)
    release = receipt["bundle"]["release_id"]
    command = Path(root).absolute() / "bin" / receipt["bundle"]["name"]
    lines = {
        "installed": message("install.installed", release=release),
        "repaired": message("install.repaired", release=release),
        "already installed": message("install.already", release=release),
    }
    installed, _ = verify.read_manifest(Prefix(Path(root).absolute()).releases / release)  # the stick may be gone
    caveats = [] if receipt["gate"] is None else GateReceipt.parse(receipt["gate"]).not_shown
    if caveats and receipt["gate"]["verdict"] == intervals.INCONCLUSIVE:
        caveats = [message("install.in_doubt"), *(message("list.indented", part=line) for line in caveats)]
    what = "ITEM" if installed.task == CUSTOM else "TEXT"
    hints: List[str] = [*caveats, message("install.next", command=shlex.quote(str(command)), what=what)]
    if options.systemd:
        from edgepack_runtime.serve import systemd

        unit = systemd.write(Prefix(Path(root).absolute()), command.name)
        receipt = {**receipt, "systemd_unit": str(unit)}
        hints += [message("install.unit", unit=str(unit)), *map("  {}".format, systemd.commands(unit))]
        hints += [message("install.this_machine_only")]
    hints += _other_servers(Prefix(Path(root).absolute()), release)
    print_result(options, receipt, printed([lines[receipt["verdict"]], *hints]))
    return ExitCode.OK


def run_status(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import status as reporter

    found = reporter.status(require_prefix(options, context))
    print_result(options, found, reporter.render(found))
    if found["ok"]:
        return ExitCode.OK
    return ExitCode.BUNDLE_INVALID if reporter.holds_install(found) else ExitCode.ENVIRONMENT_UNFIT


def run_rollback(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import rollback

    prefix, _ = require_installed(options, context)
    receipt = rollback.rollback(prefix.root, context.name, log=log, allow_revoked=options.allow_revoked)
    lines = [message("rollback.done", release=receipt["serving"], previous=receipt["previous"])]
    print_result(options, receipt, printed([*lines, *_other_servers(prefix, receipt["serving"])]))
    return ExitCode.OK


def _other_servers(prefix: Prefix, active: str) -> List[str]:
    """A line for each server that goes on with another release than the active one."""
    from edgepack_runtime.install import release_process

    return [
        message("install.server_goes_on", process=process, release=release)
        for process, release in release_process.servers(prefix).items()
        if release != active
    ]


def run_uninstall(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import uninstall

    prefix = require_prefix(options, context)
    if not options.yes and sys.stdin.isatty():
        log(message("uninstall.purge" if options.purge else "uninstall.ask", prefix=str(prefix.root)))
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError(
                message("uninstall.nothing"), why=message("uninstall.no_y"), fix=message("uninstall.answer_y")
            )
    receipt = uninstall.uninstall(prefix.root, bundle_name(context), purge=options.purge, log=log)
    done = message("uninstall.done", name=receipt["bundle"]["name"])
    kept = "" if options.purge else message("uninstall.kept", folder=str(prefix.root))
    print_result(options, receipt, printed([joined(done, kept)]))
    return ExitCode.OK


def run_trust(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.cli import trust_command

    if options.action == "list":
        found = trust_command.list_keys(find_prefix(options, context))
    elif options.action == "add":
        found = trust_command.add(require_prefix(options, context), bundle_name(context), options.file)
    else:
        found = trust_command.remove(require_prefix(options, context), bundle_name(context), options.fingerprint)
    print_result(options, found, trust_command.render(found))
    return ExitCode.OK


def run_selftest(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return delegate(options, context, arguments)
    from edgepack_runtime.inference import selftest

    with report_damage(context.release):
        result = selftest.run(context.release)
    has_handler = model_config.load(context.release / golden.MODEL_FOLDER).handler is not None
    text = message(
        "selftest.scores" if has_handler else "selftest.logits",
        n=result["texts"],
        difference=result["max_difference"],
        tolerance=result["tolerance"],
    )
    print_result(options, result, local(text))
    return ExitCode.OK


def run_gate(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return delegate(options, context, arguments)
    from edgepack_runtime.gate import runner
    from edgepack_runtime.schema.gates import Limits
    from edgepack_runtime.util import gate_lock

    manifest, _ = verify.read_manifest(context.release)
    if options.turns:
        from edgepack_runtime.gate import turns

        turns.answer(runner.opened(context.release, Limits.parse(manifest.gates)), sys.stdin, sys.stdout)
        return ExitCode.OK
    prefix = running_prefix(context)
    size = options.bundle_bytes
    if size is None and prefix is not None:
        state = read_state(prefix)
        size = state.bundle_bytes if state and state.current == context.release.name else None
    elif size is None:  # a container image has no state, and names the size of its bundle
        named = os.environ.get(contract.BUNDLE_BYTES, "")
        size = int(named) if named.isdecimal() and named.isascii() else None
    with gate_lock.hold(lambda text: log(f"note: {text}")), report_damage(context.release):
        receipt = runner.run(
            context.release,
            manifest,
            bundle_bytes=size,
            progress=log,
            rows_file=options.rows,
            without_rows=options.without_rows,
            without_gates=options.without_gates,
            active=options.against,
        )
    print_result(options, receipt, runner.render(receipt))
    if prefix is not None:
        _keep_receipt(prefix, receipt)
    return int(runner.exit_code(receipt))


def _keep_receipt(prefix: Prefix, receipt: Mapping[str, Any]) -> None:
    from edgepack_runtime.install.receipts import write_receipt

    try:
        log(f"receipt {write_receipt(prefix, 'gate', receipt, log)}")
    except OSError as error:  # users without write access to the prefix may gate; the result is on stdout
        log(f"note: the receipt was not written to {prefix.receipts}: {error.strerror or error}")


def run_tune(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return delegate(options, context, arguments)
    from edgepack_runtime.inference import tune
    from edgepack_runtime.schema.gates import Limits
    from edgepack_runtime.util import gate_lock

    manifest, _ = verify.read_manifest(context.release)
    most = options.threads or Limits.parse(manifest.gates).latency.threads
    prefix = running_prefix(context)
    with contextlib.ExitStack() as held:
        if prefix is not None:  # before measuring: without write access this fails at once
            held.enter_context(lock(prefix))
        with gate_lock.hold(lambda text: log(f"note: {text}")), report_damage(context.release):
            result = tune.run(context.release, most_threads=most, progress=log)
        if prefix is not None:
            file = prefix.tuning_file(context.release)
            with os_errors(f"{file} cannot be written"):
                tuning.write(file, result)
            log(f"written to {file}")
    print_result(options, result, tune.render(result))
    return ExitCode.OK


def run_env(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.install import release_process

    _, release = require_installed(options, context)
    if ":" in str(release):
        raise UsageError(
            f"PYTHONPATH cannot hold {release}", why="it has a colon", fix="install it into another folder"
        )
    site = [release, release / platform.machine() / "site", release / "site"]
    found = {
        "EDGEPACK_PYTHON": release_process.carried_interpreter(release) or release_process.interpreter(),
        "PYTHONPATH": ":".join(map(str, site)),
        # Bytecode inside a release would be a file that its manifest does not list.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in found.items()]
    print_result(options, found, printed(lines))
    return ExitCode.OK
