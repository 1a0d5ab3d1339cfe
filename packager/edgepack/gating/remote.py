"""Gate of a bundle or an installed release on a device over SSH: sftp copies the file, and its own `gate` runs there.

The files are in one private folder on the device, which is always removed. Nothing of a new file runs before its digest
was compared and, if keys are pinned on the device, the installed release accepted its signature.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.bundle.stub import SAFE_FOLDER
from edgepack.errors import (
    BundleInvalidError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.gating.local import VerbOutput, failed, judged
from edgepack.gating.rows import GoldenRowsOption
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
_LONGEST_PATH: Final = 4096
_MOST_OF_A_TEXT: Final = 2000  # characters of what a device reports
_FACTS: Final = ("system", "machine", "libc", "cpu_model", "board")
# Checks of doctor that fail on another kind of device; the others concern its present state.
_OF_ANOTHER_KIND: Final = ("system", "libc", "python", "gpu", "tensorrt")
_BUNDLE: Final = "bundle.edgepack"  # its name there; a name of the user's choice could be that of another file
_FOLDER: Final = re.compile(r"/[^\x00-\x1f\x7f]{0,178}/edgepack-gate\.[A-Za-z0-9]{6}")  # sftp reads 2,047 bytes a line
_MACHINE_KEYS: Final = "/etc/edgepack"
_NO_RELEASE: Final = "no release is installed"


@dataclass(frozen=True)
class RemotePaths:
    """Paths on the device: prefix of an install, folder for temporary files."""

    prefix: str | None = None
    folder: str | None = None


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
    bundle: VerifiedBundle, connection: Connection, paths: RemotePaths, rows: GoldenRowsOption, log: Log
) -> RemoteGate:
    """Copy the bundle, check it there, and run its gate.

    Raises:
        TargetUnreachableError: the device cannot be reached, is of another kind, or the connection broke.
        BundleInvalidError: the device does not trust the bundle.
        EnvironmentUnfitError, StageFailedError: as reported by the device.
    """
    name = connection.address.name
    machine = _require_machine(bundle.manifest, connection)
    interpreter = sum(entry.size for entry in bundle.manifest.files if entry.path.startswith(carried.folder(machine)))
    needed = bundle.size + bundle.manifest.bytes_for(machine) + interpreter  # which the file unpacks to start
    with _reported(), _folder(connection, paths, needed, log) as (folder, run_gate):
        file = f"{folder}/{_BUNDLE}"
        copied = _copy(bundle, file, connection, log)
        _require_trusted(bundle, file, connection, paths)
        start = f"sh {shlex.quote(file)}"
        device = _require_fit(bundle, f"{start} doctor --json --prefix {shlex.quote(folder)}", connection)
        answer = run_gate(f"exec {start} gate --json {_options(rows, folder, connection)}")
        code, receipt = judged(f"{bundle.path.name} on {name}", answer, bundle.release_id)
        return RemoteGate(code, receipt, device, copied)


def gate_installed(
    bundle: VerifiedBundle | None, connection: Connection, paths: RemotePaths, rows: GoldenRowsOption, log: Log
) -> RemoteGate:
    """Run the gate of the active release of the device, by its own launcher.

    Args:
        bundle: the bundle whose release must serve. Its name finds the prefix if none is named.

    Raises:
        As `gate`.
    """
    name = connection.address.name
    if bundle is None and paths.prefix is None:
        raise UsageError("which install is meant?", fix="name it: ssh://HOST/PREFIX, or give its bundle")
    with _reported():
        found = connection.run(
            f"{_prefix(bundle, paths)}\n"
            'printf "%s\\n" "$prefix"; readlink "$prefix/current"\n'
            'for file in "$prefix"/bin/*; do if [ -x "$file" ]; then printf "%s\\n" "$file"; break; fi; done',
            during="it was inspected",
            minutes=_INSPECT_MINUTES,
        )
        lines = [line[:_LONGEST_PATH] for line in found.stdout.splitlines()]
        if len(lines) != 3:
            raise TargetUnreachableError(
                f"nothing is installed in {''.join(lines[:1])}",
                why=found.stderr_tail,
                fix="install it there, or name its folder: ssh://HOST/PREFIX",
            )
        serving, launcher = lines[1].rpartition("/")[2], shlex.quote(lines[2])
        if bundle is not None and serving != bundle.release_id:
            raise TargetUnreachableError(
                f"{serving} is active on {name}",
                why=f"{bundle.release_id} is requested",
                fix="install it first, or omit --installed to gate it beside the active release",
            )
        log(f"{serving} is active")
        doctor = connection.run(f"{launcher} doctor --json </dev/null", during="it was inspected")
        with _folder(connection, paths, 0, log) as (folder, run_gate):
            answer = run_gate(f"exec {launcher} gate --json {_options(rows, folder, connection)}")
        code, receipt = judged(f"the installed release on {name}", answer, serving)
        return RemoteGate(code, receipt, _facts(_parsed(doctor)))


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Convert a broken connection to an error with its reason."""
    try:
        yield
    except ConnectionLostError as lost:
        raise lost.error from lost


def _require_machine(manifest: Manifest, connection: Connection) -> str:
    """The device's machine. This needs no copy."""
    name, target = connection.address.name, manifest.target
    with _reported():
        found = connection.run("uname -s; uname -m", during="it was inspected", minutes=_INSPECT_MINUTES)
    system, machine = (line[:_FACT_CHARACTERS] for line in (*found.stdout.splitlines(), "", "")[:2])
    if system != "Linux" or machine not in target.machines:
        raise TargetUnreachableError(
            f"{name} is not of target {target.profile}: this is {system} {machine}",
            why=f"the bundle is for Linux {' or '.join(target.machines)}",
            fix="build the bundle for this kind of device",
        )
    return machine


@contextlib.contextmanager
def _folder(
    connection: Connection, paths: RemotePaths, needed_bytes: int, log: Log
) -> Iterator[tuple[str, Callable[[str], VerbOutput]]]:
    """A private folder on the device, and the command prefix for gates in it.

    At the end it is removed, and its processes are ended.
    """
    bases = '"$TMPDIR" /var/tmp /tmp' if paths.folder is None else _path(paths.folder)
    needed_kib = -(-needed_bytes // 1024)
    found = connection.run(
        f"{SAFE_FOLDER}umask 077\nfor base in {bases}; do\n"
        'if [ -z "$base" ]; then continue; fi\n'
        'base=$(cd "$base" && pwd -P) || continue\n'
        'safe "$base" || { echo "another user may rename what lies in $base" >&2; continue; }\n'
        'folder=$(mktemp -d "$base/edgepack-gate.XXXXXX") || continue\n'
        'free=$(df -Pk "$folder" | { read -r _; read -r _ _ _ free _; echo "$free"; })\n'
        f'if [ "$free" -ge {needed_kib} ]; then echo "$folder"; exit 0; fi\n'
        f'echo "$base has $((free / 1024)) MiB of the {-(-needed_kib // 1024)} MiB that are needed" >&2\n'
        'rmdir "$folder"\ndone\nexit 1',
        during="it was inspected",
        minutes=_INSPECT_MINUTES,
    )
    folder = found.stdout.strip()
    if found.exit_code or not _FOLDER.fullmatch(folder):
        raise EnvironmentUnfitError(
            f"there is no place on {connection.address.name} for the bundle",
            why="; ".join(found.stderr_tail.splitlines()) or "no folder with a name of at most 200 characters was made",
            fix="free some space there, or name a folder with --remote-dir",
        )
    quoted = shlex.quote(folder)
    running = False

    def run_gate(command: str) -> VerbOutput:
        nonlocal running
        running = True
        script = f"echo $$ > {quoted}/pid && export TMPDIR={quoted} && {command} </dev/null"
        answer = connection.run(script, log, during="the gate ran")
        running = False
        return answer

    try:
        yield folder, run_gate
    finally:
        end = (
            f"if read -r process < {quoted}/pid; then kill $process; seconds=0\n"
            "while kill -0 $process && [ $seconds -lt 10 ]; do sleep 1; seconds=$((seconds + 1)); done\n"
            "kill -9 $process; fi 2>/dev/null\n"
        )
        try:
            removed = connection.run(
                f"{end if running else ''}rm -rf {quoted}",
                during="its files were removed",
                minutes=_CLEAN_UP_MINUTES,
                after_stop=True,
            ).exit_code
        except (ConnectionLostError, TargetUnreachableError, StageFailedError):
            removed = 1
        if removed:
            log(
                f"note: {folder} was left on {connection.address.name}; to remove it: "
                f"{connection.address.ssh_command} {shlex.quote(f'rm -rf {quoted}')}"
            )


def _copy(bundle: VerifiedBundle, file: str, connection: Connection, log: Log) -> Copied:
    """Copy the bundle. After a broken connection it reconnects and resumes the copy."""
    copied, begin = Copied(bundle.size), time.monotonic()
    log(f"copying {bundle.size / 2**20:.1f} MiB")
    quoted = shlex.quote(file)
    while True:
        copied.links += 1
        try:
            connection.run(f"umask 077; : >> {quoted}", during="the bundle was copied")
            connection.put(bundle.path, file, during="the bundle was copied")
            break
        except ConnectionLostError as lost:
            if copied.links == ATTEMPTS:
                raise
            log(f"{lost}; connecting again")
            time.sleep(PAUSE_S * copied.links)
    answer = connection.run(f"sha256sum < {quoted}", during="the copy was compared")
    if answer.stdout.split()[:1] != [bundle.sha256]:
        raise StageFailedError(
            f"{bundle.path.name} did not arrive on {connection.address.name} as it was sent",
            why=answer.stderr_tail or "its sha256 differs",
            fix="run the command again; if it fails again, check the disk and the memory of the device",
        )
    copied.seconds = round(time.monotonic() - begin, 3)
    return copied


def _require_trusted(bundle: VerifiedBundle, file: str, connection: Connection, paths: RemotePaths) -> None:
    """Let the installed release verify the file with the keys that are pinned on the device."""
    answer = connection.run(
        f"{_prefix(bundle, paths)}\n"
        'if [ -L "$prefix/current" ]; then for release in "$prefix"/bin/*; do\n'
        f'if [ -x "$release" ]; then exec "$release" verify --json {shlex.quote(file)} </dev/null; fi; done; fi\n'
        f'for folder in {_MACHINE_KEYS} "$prefix"; do for keys in trusted_signers revoked_keys; do\n'
        'case $(LC_ALL=C ls -d "$folder/$keys" 2>&1) in *"No such file or directory" | *"Not a directory") ;;\n'
        '*) echo "$folder has $keys, and no release in $prefix can check them" >&2; exit 8;; esac; done; done\n'
        f"echo {_NO_RELEASE}",
        during="the signature was verified",
    )
    what = f"{connection.address.name} does not take {bundle.path.name}"
    if answer.exit_code == ExitCode.BUNDLE_INVALID and not answer.stdout:
        fix = "check its signature, then install a first release there (docs/explanation/security.md)"
        raise BundleInvalidError(what, why=answer.stderr_tail, fix=fix)
    nothing_installed = answer.stdout.strip() == _NO_RELEASE
    if answer.exit_code or not (nothing_installed or _parsed(answer).get("release_id") == bundle.release_id):
        raise failed(what, answer)


def _require_fit(bundle: VerifiedBundle, doctor: str, connection: Connection) -> Mapping[str, str | None]:
    """Facts of the device, by the bundle's `doctor`."""
    answer = connection.run(f"{doctor} </dev/null", during="it was inspected")
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


def _options(rows: GoldenRowsOption, folder: str, connection: Connection) -> str:
    """Options of `gate` for golden rows that the bundle does not carry. A file of rows is copied."""
    if rows.file is None:
        return "--without-rows" if rows.without else ""
    file = f"{folder}/rows.jsonl"
    connection.run(f"umask 077; : > {shlex.quote(file)}", during="the rows were copied")
    connection.put(rows.file, file, during="the rows were copied")
    return f"--rows {shlex.quote(file)}"


def _prefix(bundle: VerifiedBundle | None, paths: RemotePaths) -> str:
    """Shell lines that set `prefix`: the named folder, or the default of `install`."""
    if paths.prefix is not None:
        return f"prefix={_path(paths.prefix)}"
    assert bundle is not None
    name = bundle.manifest.name
    return f'prefix=/opt/{name}\nif [ "$(id -u)" != 0 ]; then prefix=$HOME/.local/share/edgepack/{name}; fi'


def _path(folder: str) -> str:
    """A path as a shell word; `~/` is the home of the user on the device."""
    home, slash, rest = folder.partition("/")
    return f'"$HOME"{slash}{shlex.quote(rest)}' if home == "~" else shlex.quote(folder)
