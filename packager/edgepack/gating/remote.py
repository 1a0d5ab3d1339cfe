"""Gate of a bundle or an installed release on a device over SSH: sftp copies the file, and its own `gate` runs there.

The files are in one private folder on the device, which is always removed. Nothing of a new file runs before its digest
was compared and, if keys are trusted on the device, the installed release accepted its signature.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.errors import (
    BundleInvalidError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.gating.local import VerbOutput, failed, judged
from edgepack.gating.ssh import Connection, ConnectionLostError
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.util.progress import Log

ATTEMPTS: Final = 4  # to copy the file
PAUSE_S: Final = 1.0
_INSPECT_MINUTES: Final = 5.0  # for the device to respond
_CLEAN_UP_MINUTES: Final = 0.5
_FACT_CHARACTERS: Final = 200
_MOST_OF_A_TEXT: Final = 2000  # characters of what a device reports
_MOST_OF_A_PATH: Final = 4096  # PATH_MAX of Linux
_FACTS: Final = ("system", "machine", "libc", "cpu_model", "board")
# Checks of doctor that fail on another kind of device; the others concern its present state.
_OF_ANOTHER_KIND: Final = ("system", "libc", "python", "gpu", "tensorrt")
_FOLDER: Final = re.compile(r"/[^\x00-\x1f\x7f]{0,178}/edgepack-gate\.[A-Za-z0-9]{6}")  # sftp reads 2,047 bytes a line


@dataclass
class Copied:
    """A finished copy; `links` is the number of connections that it took."""

    sent_bytes: int = 0
    links: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class VerifiedBundle:
    """A verified bundle with size and digest of its file."""

    path: Path
    manifest: Manifest
    release_id: str
    size: int
    sha256: str


@dataclass(frozen=True)
class RemoteGate:
    """Exit code, receipt, facts of the device, and the copy of the bundle."""

    exit_code: int
    receipt: Mapping[str, Any]
    device: Mapping[str, str | None] = field(default_factory=dict)
    copied: Copied | None = None


def gate(
    bundle: VerifiedBundle, connection: Connection, remote_dir: str | None, rows: GoldenRowsOption, log: Log
) -> RemoteGate:
    """Copy the bundle, check it there, and run its gate.

    Args:
        remote_dir: folder for temporary files on the device.

    Raises:
        TargetUnreachableError: the device cannot be reached, is of another kind, or the connection broke.
        BundleInvalidError: the device does not trust the bundle.
        EnvironmentUnfitError, StageFailedError: as reported by the device.
    """
    machine = _require_machine(bundle.manifest, connection)
    interpreter = sum(entry.size for entry in bundle.manifest.files if entry.path.startswith(carried.folder(machine)))
    needed = bundle.size + bundle.manifest.bytes_for(machine) + interpreter  # which the file unpacks to start
    with _folder(connection, remote_dir, needed, log) as folder:
        file = f"{folder}/bundle.edgepack"  # a name of the user's choice could be that of another file
        copied = _copy(bundle, file, connection, log)
        _require_trusted(bundle, file, connection)
        doctor = connection.run(
            "run", folder, "sh", file, "doctor", "--json", "--prefix", folder, during="it was inspected"
        )
        device = _require_fit(bundle, doctor, connection)
        answer = _run_gate(["sh", file], rows, folder, connection, log)
        code, receipt = judged(f"{bundle.path.name} on {connection.address.name}", answer, bundle.release_id)
        return RemoteGate(code, receipt, device, copied)


def gate_installed(
    bundle: VerifiedBundle | None, connection: Connection, remote_dir: str | None, rows: GoldenRowsOption, log: Log
) -> RemoteGate:
    """Run the gate of the active release of the device, by its own launcher.

    Args:
        bundle: the bundle whose release must serve. Its name finds the prefix if none is named.

    Raises:
        As `gate`.
    """
    name, prefix = connection.address.name, connection.address.prefix
    if bundle is None and prefix is None:
        raise UsageError("which install is meant?", fix="name it: ssh://HOST/PREFIX, or give its bundle")
    found = connection.run(
        "installed",
        "" if bundle is None else bundle.manifest.name,
        prefix or "",
        during="it was inspected",
        minutes=_INSPECT_MINUTES,
    )
    install = _parsed(found)
    serving, launcher = (str(install.get(key, "")) for key in ("release", "launcher"))
    if max(len(serving), len(launcher)) > _MOST_OF_A_PATH:
        raise TargetUnreachableError(f"{name} names an install that no path can lead to", fix="look at the device")
    if not serving or not launcher:
        raise TargetUnreachableError(
            f"nothing is installed in {str(install.get('prefix', ''))[:_MOST_OF_A_TEXT]}",
            why=found.stderr_tail,
            fix="install it there, or name its folder: ssh://HOST/PREFIX",
        )
    if bundle is not None and serving != bundle.release_id:
        raise TargetUnreachableError(
            f"{serving[:_MOST_OF_A_TEXT]} is active on {name}",
            why=f"{bundle.release_id} is requested",
            fix="install it first, or omit --installed to gate it beside the active release",
        )
    log(f"{serving[:_MOST_OF_A_TEXT]} is active")
    with _folder(connection, remote_dir, 0, log) as folder:
        doctor = connection.run("run", folder, launcher, "doctor", "--json", during="it was inspected")
        answer = _run_gate([launcher], rows, folder, connection, log)
    code, receipt = judged(f"the installed release on {name}", answer, serving)
    return RemoteGate(code, receipt, _facts(_parsed(doctor)))


def _require_machine(manifest: Manifest, connection: Connection) -> str:
    """The device's machine. This needs no copy."""
    name, target = connection.address.name, manifest.target
    found = _parsed(connection.look)
    system, machine = (str(found.get(key, ""))[:_FACT_CHARACTERS] for key in ("system", "machine"))
    if system != "Linux" or machine not in target.machines:
        raise TargetUnreachableError(
            f"{name} is not of target {target.profile}: this is {system} {machine}",
            why=f"the bundle is for Linux {' or '.join(target.machines)}",
            fix="build the bundle for this kind of device",
        )
    return machine


@contextlib.contextmanager
def _folder(connection: Connection, remote_dir: str | None, needed_bytes: int, log: Log) -> Iterator[str]:
    """A private folder on the device. At the end it is removed, and what runs in it is ended."""
    name = connection.address.name
    found = connection.run(
        "open",
        str(-(-needed_bytes // 1024)),
        *([] if remote_dir is None else [remote_dir]),
        during="it was inspected",
        minutes=_INSPECT_MINUTES,
    )
    folder = str(_parsed(found).get("folder", ""))
    if found.exit_code or not _FOLDER.fullmatch(folder):
        raise EnvironmentUnfitError(
            f"there is no place on {name} for the bundle",
            why="; ".join(found.stderr_tail.splitlines()) or "no folder with a name of at most 200 characters was made",
            fix="free some space there, or name a folder with --remote-dir",
        )
    try:
        yield folder
    finally:
        try:
            left = connection.run(
                "remove", folder, during="its files were removed", minutes=_CLEAN_UP_MINUTES, after_stop=True
            ).exit_code
        except (TargetUnreachableError, StageFailedError):
            left = 1
        if left:
            remove = shlex.quote(f"rm -rf {shlex.quote(folder)}")
            log(f"note: {folder} was left on {name}; to remove it: {connection.address.ssh_command} {remove}")


def _copy(bundle: VerifiedBundle, file: str, connection: Connection, log: Log) -> Copied:
    """Copy the bundle. After a broken connection it reconnects and resumes the copy."""
    copied, begin = Copied(bundle.size), time.monotonic()
    log(f"copying {bundle.size / 2**20:.1f} MiB")
    while True:
        copied.links += 1
        try:
            connection.put(bundle.path, file, during="the bundle was copied")
            break
        except ConnectionLostError as lost:
            if copied.links == ATTEMPTS:
                raise
            log(f"{lost.what}; connecting again")
            time.sleep(PAUSE_S * copied.links)
    answer = connection.run("digest", file, during="the copy was compared")
    if _parsed(answer).get("sha256") != bundle.sha256:
        raise StageFailedError(
            f"{bundle.path.name} did not arrive on {connection.address.name} as it was sent",
            why=answer.stderr_tail or "its sha256 differs",
            fix="run the command again; if it fails again, check the disk and the memory of the device",
        )
    copied.seconds = round(time.monotonic() - begin, 3)
    return copied


def _require_trusted(bundle: VerifiedBundle, file: str, connection: Connection) -> None:
    """Let the installed release verify the file with the trusted keys on the device."""
    prefix = connection.address.prefix or ""
    answer = connection.run("verify", file, bundle.manifest.name, prefix, during="the signature was verified")
    what = f"{connection.address.name} does not take {bundle.path.name}"
    if answer.exit_code == ExitCode.BUNDLE_INVALID and not answer.stdout:
        fix = "check its signature, then install a first release there (docs/explanation/security.md)"
        raise BundleInvalidError(what, why=answer.stderr_tail, fix=fix)
    found = _parsed(answer)
    nothing_installed = found == {"installed": False}
    if answer.exit_code or not (nothing_installed or found.get("release_id") == bundle.release_id):
        raise failed(what, answer)


def _require_fit(bundle: VerifiedBundle, answer: VerbOutput, connection: Connection) -> Mapping[str, str | None]:
    """Facts of the device, by the bundle's `doctor`."""
    document = _parsed(answer)
    checks = document.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        raise failed(f"doctor: {bundle.path.name} on {connection.address.name}", answer)
    wrong = [check for check in checks if not check.get("ok")]
    other = [check for check in wrong if check.get("check") in _OF_ANOTHER_KIND]
    if wrong:
        shown = other or wrong
        what, why, fix = (
            "; ".join(dict.fromkeys(str(check[key]) for check in shown if check.get(key)))[:_MOST_OF_A_TEXT]
            for key in ("what", "why", "fix")
        )
        if other:
            profile = bundle.manifest.target.profile
            raise TargetUnreachableError(
                f"{connection.address.name} is not of target {profile}: {what}", why=why, fix=fix
            )
        raise EnvironmentUnfitError(f"{connection.address.name} cannot run the bundle: {what}", why=why, fix=fix)
    return _facts(document)


def _parsed(answer: VerbOutput) -> dict[str, Any]:
    """The JSON object that a verb printed; empty if it printed none."""
    try:
        document = json.loads(answer.stdout)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _facts(document: Mapping[str, Any]) -> dict[str, str | None]:
    """The kind of device, as short texts."""
    device = document.get("device")
    if not isinstance(device, dict):
        return {}
    python = device.get("python")
    found = {key: device.get(key) for key in _FACTS}
    found["python"] = python.get("version") if isinstance(python, dict) else None
    return {key: text[:_FACT_CHARACTERS] if isinstance(text, str) else None for key, text in found.items()}


def _run_gate(
    start: Sequence[str], rows: GoldenRowsOption, folder: str, connection: Connection, log: Log
) -> VerbOutput:
    """Run the verb `gate`. A file of golden rows, which the bundle does not carry, is copied."""
    options = ["--without-rows"] if rows.without else []
    if rows.file is not None:
        file = f"{folder}/rows.jsonl"
        connection.put(rows.file, file, during="the rows were copied")
        options = ["--rows", file]
    return connection.run("run", folder, *start, "gate", "--json", *options, log=log, during="the gate ran")
