"""What receipts that came back from many devices tell: what runs where, its gate figures, how they drift.

A folder that holds receipts (`NNNNNN-VERB.json`) is a device, and is called as the folder is: copy each device's
`<prefix>/receipts` into a folder with a name that you know it by. Receipts are ordered by their numbers, for the clocks
of devices are often wrong. They come from outside: what is no receipt is told, and never trusted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from edgepack.errors import UsageError
from edgepack.gating.receipts import RECEIPT
from edgepack.util.text import UNGATED, verdict
from edgepack_runtime.install.receipts import CHANGES

_MOST_BYTES: Final = 4 * 2**20  # a receipt of an install has some 20 KB
# Beyond these a figure is none, and would make the columns of all devices too wide to be read.
_MOST_MS: Final = 1e7
_MOST_THREADS: Final = 4096
_MOST: Final = 1e12
_FOLDER: Final = "receipts"
SignerOf = Callable[[Path, bytes], str]
P95: Final = "latency.p95_ms"


class _Part(BaseModel):
    """A part of a receipt: what is not named here is left out, for newer runtimes say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Score(_Part):
    """A metric on `n` labelled rows, from 0 to 1."""

    metric: str
    value: FiniteFloat = Field(ge=0, le=1)
    n: int = Field(ge=1)


class Check(_Part):
    """One gate of the recipe, as it was measured."""

    gate: str
    verdict: str
    value: FiniteFloat | None = Field(ge=-_MOST, le=_MOST)
    limit: FiniteFloat = Field(ge=-_MOST, le=_MOST)
    unit: str


class Unmeasured(_Part):
    """A gate whose rows stayed at home; `waived` where the others were to be judged alone."""

    gate: str
    waived: bool


class Latency(_Part):
    """Text in to label out."""

    p50_ms: FiniteFloat = Field(ge=0, le=_MOST_MS)
    p95_ms: FiniteFloat = Field(ge=0, le=_MOST_MS)
    threads: int = Field(ge=1, le=_MOST_THREADS)


class Conditions(_Part):
    """Where it was measured."""

    cpu_model: str = ""
    engine: str = ""
    emulated: bool = False


class Bundle(_Part):
    """Which release a receipt is about; none where there was none to go back to, or to remove."""

    name: str
    release_id: str | None


class Gate(_Part):
    """A run of the gate on a device. `promised`: what the same file scored on the same rows when it was built."""

    bundle: Bundle
    verdict: str
    accuracy: Score | None  # null where the rows stayed at home
    promised: Score | None = None
    latency: Latency
    conditions: Conditions = Conditions()
    checks: tuple[Check, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()

    @property
    def drift_points(self) -> float | None:
        """Percentage points above what was promised; None where nothing comparable was."""
        here, there = self.accuracy, self.promised
        if here is None or there is None or (there.metric, there.n) != (here.metric, here.n):
            return None
        return 100 * (here.value - there.value)

    @property
    def p95_limit_ms(self) -> float | None:
        return next((check.limit for check in self.checks if check.gate == P95), None)

    @property
    def judged(self) -> str:
        """The verdict; that nothing was asked, where it is one of a recipe without gates."""
        return verdict(self.model_dump())

    @property
    def missed(self) -> tuple[str, ...]:
        """Gates that did not pass, those that nothing was measured of among them."""
        if self.judged == UNGATED:
            return ()
        judged = tuple(f"{check.gate}: {check.verdict}" for check in self.checks if check.verdict != "pass")
        return judged + tuple(f"{one.gate}: not measured{', waived' * one.waived}" for one in self.unmeasured)


class Receipt(_Part):
    """One receipt; of a gate that ran by itself, `gate` is the whole of it. Not every verb is about a release."""

    verb: str
    verdict: str | None = None
    bundle: Bundle | None = None
    error: str | None = None
    serving: str | None = None
    notes: tuple[str, ...] = Field(default=(), max_length=1000)
    gate: Gate | None = None


@dataclass(frozen=True)
class Device:
    """What one device's receipts tell.

    `serving` is the release that serves after the newest of them, `last` what that did, and `error` why it failed;
    `gate` is the newest gate of that release there, `first_gate` the oldest; where no receipt tells what serves, of the
    release that was gated last. `unreadable` says which files are none, or were not signed as was asked for; `signers`
    has everybody who signed the others.
    """

    name: str
    bundle: str | None
    serving: str | None
    last: str | None
    error: str | None
    gate: Gate | None
    first_gate: Gate | None
    receipts: int
    unreadable: tuple[str, ...]
    signers: tuple[str, ...]

    @property
    def slower(self) -> float | None:
        """p95 of the newest gate as a multiple of the first one's, of the same release and threads."""
        if self.gate is None or self.first_gate is None or self.gate is self.first_gate:
            return None
        if self.gate.latency.threads != self.first_gate.latency.threads or not self.first_gate.latency.p95_ms:
            return None
        return self.gate.latency.p95_ms / self.first_gate.latency.p95_ms


@dataclass(frozen=True)
class Fleet:
    """All devices, by name, and how many of them each release serves on; None: nothing serves."""

    devices: tuple[Device, ...]
    releases: Mapping[tuple[str | None, str | None], int]


def summarize(folder: Path, signer: SignerOf | None = None) -> Fleet:
    """Read every receipt below `folder`.

    Args:
        signer: tells who signed a receipt, given its file and its bytes; a ValueError says why nobody did who counts.
            Such receipts are told, and left out. Without it signatures are not looked at.

    Raises:
        UsageError: it is no folder, or holds no receipt.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", fix="give the folder that holds the devices' receipts")
    found = [_device(name, files, signer) for name, files in _by_device(folder)]
    if not found:
        raise UsageError(
            f"{folder} holds no receipts",
            why="they are called NNNNNN-VERB.json and lie in PREFIX/receipts of a device",
            fix=f"copy them into a folder for each device: {folder}/DEVICE/000001-install.json",
        )
    # Of devices without a receipt nothing is known, and of those that were only gated not what serves.
    told = [device for device in found if device.receipts and (device.last or not device.gate)]
    return Fleet(tuple(found), Counter((device.bundle, device.serving) for device in told))


def as_json(found: Fleet) -> str:
    """All of it as one line of JSON."""
    devices = [
        {
            "device": device.name,
            "bundle": device.bundle,
            "serving": device.serving,
            "last": device.last,
            "error": device.error,
            "gate": device.gate and device.gate.model_dump(),
            "drift_points": device.gate and device.gate.drift_points,
            "p95_of_first_gate": device.slower,
            "receipts": device.receipts,
            "unreadable": list(device.unreadable),
            "signers": list(device.signers),
        }
        for device in found.devices
    ]
    releases = [{"bundle": name, "serving": release, "devices": n} for (name, release), n in found.releases.items()]
    return json.dumps({"devices": devices, "releases": releases}, ensure_ascii=False)


def _by_device(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Folders with receipts, by name, and their receipts in order."""
    folders = {path.parent for path in folder.rglob("*.json") if RECEIPT.match(path.name)}
    for one in sorted(folders):
        inside = one.relative_to(folder)
        named = inside.parent if inside.name == _FOLDER else inside
        name = named.as_posix() if named.parts else folder.resolve().name
        yield name, sorted(path for path in one.iterdir() if RECEIPT.match(path.name))


def _device(name: str, files: Sequence[Path], signer: SignerOf | None) -> Device:
    receipts: list[Receipt] = []
    unreadable: list[str] = []
    signers: set[str] = set()
    for file in files:
        try:
            raw = _raw(file)
            receipt = _parsed(raw)
            signers |= {signer(file, raw)} if signer is not None else set()
        except ValueError as error:
            unreadable.append(f"{file.name}: {error}")
        else:
            receipts.append(receipt)
    changes = [receipt for receipt in receipts if receipt.verb in CHANGES]
    last = changes[-1] if changes else None
    serving = last.serving if last else None
    gates = [receipt.gate for receipt in receipts if receipt.gate]
    # Where nothing tells what serves, as of a device that was gated over SSH alone: the release that was gated last.
    about = gates[-1].bundle.release_id if gates and not changes else serving
    gates = [gate for gate in gates if gate.bundle.release_id == about]
    return Device(
        name=name,
        bundle=next((receipt.bundle.name for receipt in reversed(receipts) if receipt.bundle), None),
        serving=serving,
        last=f"{last.verb}: {last.verdict}" if last else None,
        error=last.error if last else None,
        gate=gates[-1] if gates else None,
        first_gate=gates[0] if gates else None,
        receipts=len(receipts),
        unreadable=tuple(unreadable),
        signers=tuple(sorted(signers)),
    )


def _raw(file: Path) -> bytes:
    """The bytes of a receipt. Raises ValueError where it is no file, or a huge one."""
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"no file of at most {_MOST_BYTES} bytes")
        return file.read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


def _parsed(raw: bytes) -> Receipt:
    """The receipt that `raw` is. Raises ValueError where it is none."""
    try:
        receipt = Receipt.model_validate_json(raw)
        return receipt.model_copy(update={"gate": Gate.model_validate_json(raw)}) if receipt.verb == "gate" else receipt
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}") from error
