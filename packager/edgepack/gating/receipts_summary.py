"""Summary of the receipts of many devices: release of each device, gate figures, drift.

A folder with receipts (`NNNNNN-VERB.json`) is a device: copy `<prefix>/receipts` of each device into a folder with its
name. Receipts are ordered by number, because clocks of devices are often wrong. They come from outside: an invalid
receipt, or one under another name than its own, is reported and ignored; missing and repeated numbers are remarked.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack.gating.receipts import RECEIPT
from edgepack.util.text import counted
from edgepack_runtime.install.receipts import CHANGES, order
from edgepack_runtime.schema.receipt import UNGATED, GateReceipt, Receipt, Score
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.fs import os_errors, read_regular, walk

_MOST_BYTES: Final = 4 * 2**20  # a receipt of an install has about 20 KB
_FOLDER: Final = "receipts"
SignerOf = Callable[[Path, bytes], str]


@dataclass(frozen=True)
class DeviceSummary:
    """Summary of the receipts of one device.

    Attributes:
        serving: the release after the newest receipt.
        last: the verb of the newest receipt; `error` is why it failed.
        gate: the newest gate of the active release (else of the release gated last); `first_gate` is the oldest.
        unreadable: invalid files, files without the required signature, and files with the name of another receipt.
        remarks: numbers that are missing or repeated.
        signers: signers of the other receipts.
    """

    name: str
    bundle: str | None
    serving: str | None
    last: str | None
    error: str | None
    gate: GateReceipt | None
    first_gate: GateReceipt | None
    receipts: int
    unreadable: tuple[str, ...]
    remarks: tuple[str, ...]
    signers: tuple[str, ...]

    @property
    def gated_release(self) -> str | None:
        """The release of the newest gate."""
        return None if self.gate is None else _release(self.gate)

    @property
    def drift_points(self) -> float | None:
        """Points of the newest gate above the promised score; None if they are not comparable, or no fractions."""
        here, there = (None, None) if self.gate is None else (self.gate.accuracy, self.gate.promised)
        if here is None or there is None or (there.metric, there.n, here.unit) != (here.metric, here.n, "fraction"):
            return None
        return 100 * (here.value - there.value)

    @property
    def p95_limit_ms(self) -> float | None:
        """The limit of p95 of the newest gate; None without one."""
        checks = () if self.gate is None else self.gate.checks
        return next((check.limit for check in checks if check.gate == "latency.p95_ms"), None)

    @property
    def missed(self) -> tuple[str, ...]:
        """Gates that did not pass, including those that were not measured."""
        if self.gate is None or self.gate.judged == UNGATED:
            return ()
        judged = tuple(
            f"{check.gate}: {check.verdict}" for check in self.gate.checks if check.verdict != intervals.PASS
        )
        return judged + tuple(f"{one.gate}: not measured{', waived' * one.waived}" for one in self.gate.unmeasured)

    @property
    def slower(self) -> float | None:
        """p95 of the newest gate divided by that of the first one, with the same release and threads."""
        if self.gate is None or self.first_gate is None or self.gate is self.first_gate:
            return None
        newest, first = self.gate.latency, self.first_gate.latency
        if newest is None or first is None or newest.threads != first.threads:
            return None
        return newest.p95_ms / first.p95_ms if newest.p95_ms is not None and first.p95_ms else None


@dataclass(frozen=True)
class Fleet:
    """All devices by name, and the number of devices of each release; None: no release."""

    devices: tuple[DeviceSummary, ...]
    releases: Mapping[tuple[str | None, str | None], int]


def summarize(folder: Path, signer: SignerOf | None = None) -> Fleet:
    """Read every receipt below `folder`.

    Args:
        signer: returns the signer of a receipt, given file and bytes, or raises ValueError with a reason. Such receipts
            are reported and ignored. Without it signatures are not checked.

    Raises:
        UsageError: it is not a folder, or holds no receipt.
        EnvironmentUnfitError: a folder in it cannot be read, or a file was changed meanwhile.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", fix="give the folder that holds the devices' receipts")
    with os_errors(f"{folder} cannot be read"):
        seen: dict[tuple[int, int], Path] = {}
        found = [_device(name, files, signer, seen) for name, files in _by_device(folder)]
    if not found:
        raise UsageError(
            f"{folder} holds no receipts",
            why="they are called NNNNNN-VERB.json and lie in PREFIX/receipts of a device",
            fix=f"copy them into a folder for each device: {folder}/DEVICE/000001-install.json",
        )
    # A device that was only gated has no active release.
    known = [device for device in found if device.receipts and (device.last or not device.gate)]
    return Fleet(tuple(found), Counter((device.bundle, device.serving) for device in known))


def document(found: Fleet) -> dict[str, Any]:
    """All of it in JSON types."""
    devices = [
        {
            "device": device.name,
            "bundle": device.bundle,
            "serving": device.serving,
            "last": device.last,
            "error": device.error,
            "gate": device.gate and _figures(device.gate),
            "drift_points": device.drift_points,
            "p95_of_first_gate": device.slower,
            "receipts": device.receipts,
            "unreadable": list(device.unreadable),
            "remarks": list(device.remarks),
            "signers": list(device.signers),
        }
        for device in found.devices
    ]
    releases = [{"bundle": name, "serving": release, "devices": n} for (name, release), n in found.releases.items()]
    return {"devices": devices, "releases": releases}


def _figures(gate: GateReceipt) -> dict[str, Any]:
    """What is compared of a gate, in JSON types."""

    def score(found: Score | None) -> dict[str, Any] | None:
        return None if found is None else {"metric": found.metric, "value": found.value, "n": found.n}

    bundle, latency, where = gate.bundle, gate.latency, gate.where
    return {
        "bundle": bundle and {"name": bundle.name, "release_id": bundle.release_id},
        "verdict": gate.verdict,
        "accuracy": score(gate.accuracy),
        "promised": score(gate.promised),
        "latency": latency and {key: getattr(latency, key) for key in ("p50_ms", "p95_ms", "threads")},
        "conditions": {
            "cpu_model": where.cpu_model or "",
            "engine": where.engine or "",
            "emulated": bool(where.emulated),
        },
        "checks": [
            {key: getattr(check, key) for key in ("gate", "verdict", "value", "limit", "unit")} for check in gate.checks
        ],
        "unmeasured": [{"gate": one.gate, "waived": one.waived} for one in gate.unmeasured],
    }


def _by_device(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Folders with receipts by name, and their receipts in order."""
    files = [folder / path for path, kind in walk(folder) if kind != "folder"]
    folders = {file.parent for file in files if RECEIPT.match(file.name)}
    for one in sorted(folders):
        inside = one.relative_to(folder)
        named = inside.parent if inside.name == _FOLDER else inside
        name = named.as_posix() if named.parts else folder.resolve().name
        yield name, sorted((path for path in one.iterdir() if RECEIPT.match(path.name)), key=order)


def _require_own_name(file: Path, receipt: Receipt) -> None:
    """Refuse a receipt that was copied to the name of another one."""
    number, _ = order(file)
    if receipt.number not in (None, number):
        raise ValueError(f"it is receipt {receipt.number} under another name")
    if receipt.number is not None and file.stem != f"{file.stem.partition('-')[0]}-{receipt.verb}":
        raise ValueError(f"it is a receipt of {receipt.verb} under another name")


def _remarks(files: Sequence[Path]) -> Iterator[str]:
    """Missing and repeated numbers between the first and the last."""
    numbers = Counter(order(file)[0] for file in files)
    missing = sum(after - before - 1 for before, after in itertools.pairwise(sorted(numbers)))
    if missing:
        ends = f"{min(numbers)} and {max(numbers)}"
        yield f"{counted(missing, 'receipt')} between {ends} {'is' if missing == 1 else 'are'} missing"
    for number in sorted(number for number, count in numbers.items() if count > 1):
        yield f"{numbers[number]} receipts have the number {number}"


def _device(
    name: str, files: Sequence[Path], signer: SignerOf | None, seen: dict[tuple[int, int], Path]
) -> DeviceSummary:
    """The summary of a device; `seen` has the files that were read already.

    A receipt may have 4 MiB, which take 100 as objects, and a stick any number of them: none is kept but the gates
    that are shown, which are read again.
    """
    bundle = serving = verdict = why = None
    count = 0
    gated: dict[str | None, list[tuple[Path, bytes]]] = {}  # the first and the newest gate of each release
    latest: str | None = None
    unreadable: list[str] = []
    signers: set[str] = set()
    for file in files:
        try:
            _require_new(file, seen)
            raw = _raw(file)
            receipt = _parsed(raw)
            _require_own_name(file, receipt)
            signers |= {signer(file, raw)} if signer is not None else set()
        except ValueError as error:
            unreadable.append(f"{file.name}: {error}")
            continue
        count += 1
        if receipt.bundle:
            bundle = receipt.bundle.name
        if receipt.verb in CHANGES:
            serving, verdict, why = receipt.serving, f"{receipt.verb}: {receipt.verdict}", receipt.error
        if receipt.gate:
            latest = _release(receipt.gate)
            gated[latest] = [*gated.get(latest, [])[:1], (file, hashlib.sha256(raw).digest())]
    # Without an active release, as on a device that was only gated over SSH: the release gated last.
    gates = [_gate_again(*one) for one in gated.get(serving if verdict else latest, [])]
    return DeviceSummary(
        name=name,
        bundle=bundle,
        serving=serving,
        last=verdict,
        error=why,
        gate=gates[-1] if gates else None,
        first_gate=gates[0] if gates else None,
        receipts=count,
        unreadable=tuple(unreadable),
        remarks=tuple(_remarks(files)),
        signers=tuple(sorted(signers)),
    )


def _gate_again(file: Path, digest: bytes) -> GateReceipt | None:
    """The gate of a receipt that was read before.

    Raises:
        EnvironmentUnfitError: the file was changed in between.
    """
    try:
        raw = _raw(file)
    except ValueError:
        raw = b""
    if hashlib.sha256(raw).digest() != digest:
        raise EnvironmentUnfitError(f"{file} was changed while it was read", fix="run it again on a copy of the folder")
    return _parsed(raw).gate


def _require_new(file: Path, seen: dict[tuple[int, int], Path]) -> None:
    """Refuse a further link to a receipt. Raises ValueError."""
    try:
        known = file.stat()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    first = seen.setdefault((known.st_dev, known.st_ino), file)
    if first is not file:
        raise ValueError(f"it is the same file as {first.name}")


def _release(gate: GateReceipt) -> str | None:
    return None if gate.bundle is None else gate.bundle.release_id


def _raw(file: Path) -> bytes:
    """The bytes of a receipt. Raises ValueError if it is not a file, or too large."""
    try:
        return read_regular(file, _MOST_BYTES)
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _parsed(raw: bytes) -> Receipt:
    """The receipt in `raw`. Raises ValueError if it is invalid."""
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not valid JSON: {error}") from error
    return Receipt.parse(document)
