"""Report what is installed in a prefix and what happened there last. Reads only."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.device import tuning
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix, State, is_locked, read_state
from edgepack_runtime.install.receipts import CHANGES, last_receipt, read_receipts
from edgepack_runtime.install.release_process import servers
from edgepack_runtime.messages import joined, message, printed
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.receipt import VERDICTS, GateReceipt
from edgepack_runtime.util.fs import os_errors
from edgepack_runtime.util.texts import counted


def status(prefix: Prefix) -> Dict[str, Any]:
    """The state of `prefix` as plain JSON values.

    `ok`: a release is active, its manifest and state agree, and each file is there in its size. Files are not hashed;
    `verify` does that.
    `running`: an install or a tuning runs. `servers`: the processes of `serve`, which go on with the release that they
    were started with.
    `notes`: sentences on anything unusual, such as an interrupted install, a damaged file or a changed link.
    """
    notes: List[str] = []
    current = prefix.current_id()
    running = is_locked(prefix)
    state = _state(prefix, notes)
    version, intact = _release(prefix, current, notes)
    proof, trusted = _trust(prefix, current, notes)
    if state is None and current is not None:
        notes.append("state.json does not name the installed release; installing again rebuilds it")
    interruption = state.interruption(current) if state else None
    if running and state is not None:
        notes.append("an install or a tuning is running")
    elif interruption and running is None and state is not None and state.pending is not None:
        notes.append(f"an install of {state.pending} is running or was interrupted; run `status` as its user")
    elif interruption:
        notes.append(interruption)
    return {
        "ok": intact and state is not None and current in (state.current, state.pending),
        "prefix": str(prefix.root),
        "name": state.name if state else None,
        "version": version,
        "current": current,
        "previous": state.previous if state else None,
        "sequence": state.sequence if state else None,
        "minimum_sequence": state.minimum_sequence if state else None,
        "pending": state.pending if state else None,
        "running": running,
        "servers": [{"process": number, "release": release} for number, release in servers(prefix).items()],
        "tuning": _tuning(prefix, current, notes),
        "trusted": trusted,
        "signature": proof,
        "last_install": _summary(last_receipt(prefix, "install")),
        "last_change": _summary(last_receipt(prefix, *CHANGES)),
        "last_gate": _last_gate(prefix, current),
        "notes": notes,
    }


def holds_install(found: Mapping[str, Any]) -> bool:
    """Whether `found` (from `status`) describes an install, intact or not, rather than records of a removed one."""
    return found["current"] is not None or bool(found["notes"])


def render(found: Mapping[str, Any]) -> str:
    """`status` as lines for people."""
    what = "status.active" if found["current"] else "status.nothing"
    lines: List[str] = [message(what, name=found["name"], release=found["current"], prefix=found["prefix"])]
    if found["previous"]:
        lines.append(message("status.previous", release=found["previous"]))
    lines += [message("status.serves", release=one["release"], process=one["process"]) for one in found["servers"]]
    if found["tuning"]:
        lines.append(message("status.tuned", tuning=tuning.describe(found["tuning"])))
    for key in found["trusted"] or ():
        how = "status.revoked" if key["revoked"] else "status.trusts"
        lines.append(message(how, key=key["fingerprint"], by=key["principals"], source=key["source"]))
    if found["signature"]:
        lines.append(message("status.signed", signed=_signed(found["signature"])))
    for last in (found["last_change"], found["last_gate"]):
        if last:
            when = message("status.by_clock", moment=last["device_clock"]) if last["device_clock"] else ""
            release = joined(last["release_id"] or message("install.no_release"), when, by="list.comma")
            lines.append(message("status.last", verb=last["verb"], verdict=_verdict(last["verdict"]), release=release))
            below = [*(last["error"] or "").splitlines(), *last.get("not_shown", ())]
            lines += [message("status.below", line=line) for line in below]
    lines += [message("status.note", note=note) for note in found["notes"]]
    return printed(lines)


RESULTS = (
    "installed", "already installed", "repaired", "not installed", "rolled back", "not rolled back", "interrupted"
)  # of `CHANGES`  # fmt: skip


def _verdict(name: Any) -> Any:
    """The verdict of a gate, or the result of another verb, as a message; one of another version as it is."""
    if name in VERDICTS.values():
        return message(f"verdict.{name}")
    return message(f"done.{name.replace(' ', '_')}") if name in RESULTS else name


def _state(prefix: Prefix, notes: List[str]) -> Optional[State]:
    try:
        return read_state(prefix)
    except EdgepackError as error:
        notes.append(f"{error.what}: {error.why}")
        return None


def _release(prefix: Prefix, current: Optional[str], notes: List[str]) -> Tuple[Optional[str], bool]:
    """The version of the active release, None if it is unknown; and whether no file is missing or of another size."""
    if current is None:
        return None, False
    folder = prefix.releases / current
    try:
        manifest, _ = verify.read_manifest(folder)
        with os_errors(f"the release {folder} cannot be read"):
            damage = verify.find_damage(folder, manifest, hashed=False)
    except EdgepackError as error:
        notes.append(f"{error.what}; {error.why}")
        return None, False
    if damage:
        first, others = damage[0], len(damage) - 1
        more = f", and {counted(others, 'more file')}" if others else ""
        notes.append(f"the release is damaged: {first.path} {first.why}{more}; {verify.repair(prefix.root)}")
    return manifest.version, not damage


def _trust(
    prefix: Prefix, current: Optional[str], notes: List[str]
) -> Tuple[Optional[Dict[str, Any]], Optional[List[Dict[str, Any]]]]:
    """Signature of the active release's manifest, and the trusted keys: an empty list without any, None if unknown."""
    try:
        trusted = trust.read_trusted_keys(prefix.root)
    except EdgepackError as error:
        notes.append(f"{error.what}: {error.why}")
        return None, None
    if trusted and not trusted.keys:
        notes.append(f"no key is trusted, so nothing can be installed: {trusted.describe()}")
    proof = None
    if current is not None:
        try:
            proof = trust.check_release(trusted, prefix.releases / current)
        except EdgepackError as error:
            notes.append(f"{error.what}: {error.why}")
    if proof is not None and proof.refused:
        notes.append(f"{current} is not signed by a key that this device trusts: {proof.note}")
    return proof.as_json() if proof else None, trusted.as_json()


def _signed(proof: Mapping[str, Any]) -> str:
    if proof["proven"]:
        return message("status.signed_by", key=proof["principals"], why=proof["fingerprint"])
    why = message("status.not_accepted" if proof["refused"] else "status.not_verified")
    by = message("status.signed_by", key=proof["fingerprint"], why=why)
    return by if proof["signed"] else message("status.not_signed")


def _tuning(prefix: Prefix, current: Optional[str], notes: List[str]) -> Optional[Dict[str, Any]]:
    try:
        found = tuning.read(prefix.tuning_file(prefix.releases / current)) if current else None
    except EdgepackError as error:
        notes.append(f"{error.what}: {error.why}")
        return None
    return dataclasses.asdict(found) if found else None


def _summary(receipt: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    if receipt is None:
        return None
    bundle, error = receipt.get("bundle"), receipt.get("error")
    return {
        "verb": str(receipt.get("verb")),
        "verdict": receipt.get("verdict"),
        "release_id": bundle.get("release_id") if isinstance(bundle, dict) else None,
        "error": error if isinstance(error, str) else None,  # a receipt may have been edited
        "device_clock": _clock(receipt),
    }


def _last_gate(prefix: Prefix, current: Optional[str]) -> Optional[Dict[str, Any]]:
    """The newest gate of the active release, its own or that of its install; None without one."""
    for receipt in read_receipts(prefix, "gate", "install"):
        gate = receipt if receipt.get("verb") == "gate" else receipt.get("gate")
        if not isinstance(gate, dict):
            continue
        found = _summary(gate)
        if found is not None and found["release_id"] == current:
            with contextlib.suppress(ValueError):  # a receipt may have been edited
                read = GateReceipt.parse(gate)
                found.update(not_shown=read.not_shown, verdict=read.judged)
            return found
    return None


def _clock(receipt: Mapping[str, Any]) -> Optional[str]:
    """The time of a receipt, as `2026-11-25 18:51 UTC`; None if it has none. That of a gate is in its conditions."""
    unix_s, clock_utc = receipt.get("device_clock_unix_s"), Conditions.of(receipt.get("conditions")).device_clock_utc
    try:
        if clock_utc is not None:
            moment = time.strptime(clock_utc, "%Y-%m-%dT%H:%M:%SZ")
        elif isinstance(unix_s, int):
            moment = time.gmtime(unix_s)
        else:
            return None
    except (OverflowError, OSError, ValueError):
        return None
    return time.strftime("%Y-%m-%d %H:%M UTC", moment)
