"""Gates a bundle on a device over SSH: what the device lacks is sent, and the bundle's own gate runs there."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.progress import Progress, Task
from edgepack.targets.local import Answer
from edgepack.targets.rows import Rows
from edgepack.targets.ssh import Link, LostError
from edgepack_runtime import manifest as contract
from edgepack_runtime.archive import Archive, Member
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.manifest import Manifest

ATTEMPTS: Final = 4  # connections for one copy
ROUNDS: Final = 3  # of sending what is missing: what lay there damaged is found when it is hashed, and sent then
PAUSE_S: Final = 1.0
_PLACE_BYTES: Final = 1 << 20  # of progress
_FACT_CHARACTERS: Final = 200
_LINE_CHARACTERS: Final = 2000
_TEXT_CHARACTERS: Final = 8000
_KINDS: Final[Mapping[int, type[EdgepackError]]] = {
    ExitCode.USAGE: UsageError,
    ExitCode.ENVIRONMENT_UNFIT: EnvironmentUnfitError,
    ExitCode.BUNDLE_INVALID: BundleInvalidError,
    ExitCode.TARGET_UNREACHABLE: TargetUnreachableError,
}
_COPYING: Final = "the bundle was copied"
Connect = Callable[[], Link]


@dataclass(frozen=True)
class Place:
    """Where on the device: the prefix of an install, a folder for what is copied, whether nothing is to stay there."""

    prefix: str | None = None
    cache: str | None = None
    clean: bool = False


@dataclass
class Copied:
    """What a copy took: bytes on the link (packed, with the program itself), files sent of all, seconds."""

    sent_bytes: int = 0
    files: int = 0
    of_files: int = 0
    links: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Gated:
    """What a device answered, what it says it is, and what was copied for it."""

    answer: Answer
    device: Mapping[str, str | None]
    copied: Copied = field(default_factory=Copied)


@dataclass(frozen=True)
class Parcel:
    """An open bundle that was verified, with its manifest, the manifest's bytes and its signature."""

    archive: Archive
    manifest: Manifest
    raw: bytes
    signature: bytes | None

    @property
    def release_id(self) -> str:
        return contract.release_id(self.manifest, self.raw)


def gate(parcel: Parcel, connect: Connect, place: Place, rows: Rows, progress: Progress) -> Gated:
    """Copy what is missing, have every byte checked there, run the gate. `rows` are given to it, and not kept there.

    A link that breaks while something is copied is made again as long as that helps.

    Raises:
        TargetUnreachableError: the device cannot be reached, is of another kind, or the link broke.
        EnvironmentUnfitError, BundleInvalidError, StageFailedError: as the device says.
    """
    copied = Copied(of_files=len(parcel.manifest.files))
    begin = time.monotonic()
    while True:
        copied.links += 1
        with connect() as link, _understood(link):
            doing = "it was looked at"
            try:
                device = _look(link, parcel, place, progress)
                facts, doing = _facts(device), _COPYING
                _copy(link, parcel, device, copied, progress)
                copied.seconds = time.monotonic() - begin
                doing = "the gate ran"
                request, data = _about(rows)
                request |= {"do": "gate", "bundle_bytes": parcel.archive.size}
                answer = _ask(link, request, progress, data)
                _tidy(link, place, progress)
                return Gated(_answer(answer), facts, copied)
            except LostError as lost:
                _last_words(link, progress)
                error = link.why_lost(doing)
                goes_on = doing == _COPYING or (copied.links > 1 and not link.greeted)
                if copied.links == ATTEMPTS or not goes_on or link.given_up:
                    raise error from lost
                progress.line(f"{error.what}; connecting again")
            finally:
                copied.sent_bytes += link.sent_bytes
        time.sleep(PAUSE_S * copied.links)


def gate_installed(
    name: str | None, release_id: str | None, connect: Connect, place: Place, rows: Rows, progress: Progress
) -> Gated:
    """Run the gate of the release that serves on the device.

    Args:
        name: the bundle's, by which its prefix is found where none is named.
        release_id: the one that has to serve; None: whichever does.

    Raises:
        As `gate`.
    """
    with connect() as link, _understood(link):
        try:
            request, data = _about(rows)
            request |= {"do": "installed", "prefix": place.prefix, "name": name, "release_id": release_id}
            found = _ask(link, request, progress, data)
        except LostError as lost:
            _last_words(link, progress)
            raise link.why_lost("the gate ran") from lost
        return Gated(_answer(found), _facts(found))


@contextlib.contextmanager
def _understood(link: Link) -> Iterator[None]:
    """What a device answers is foreign: where it makes no sense, that is the error."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise StageFailedError(
            f"{link.address.name} gives answers that make no sense", why=f"{type(error).__name__}: {error}"
        ) from error


def _about(rows: Rows) -> tuple[dict[str, Any], bytes]:
    """What the request for a gate says of golden rows, and their bytes, which follow it."""
    data = rows.data
    return {"rows_bytes": None if data is None else len(data), "without_rows": rows.without}, data or b""


def _answer(found: Mapping[str, Any]) -> Answer:
    return Answer(int(found["exit_code"]), str(found["stdout"]), str(found["tail"])[-_TEXT_CHARACTERS:])


def _facts(found: Mapping[str, Any]) -> Mapping[str, str | None]:
    """What the device says it is: names, and short texts or nothing."""
    facts = found["device"]
    if not isinstance(facts, dict) or not all(text is None or isinstance(text, str) for text in facts.values()):
        raise TypeError("what it says of itself is no list of texts")
    return {name: text and text[:_FACT_CHARACTERS] for name, text in facts.items()}


def _missing(found: Mapping[str, Any], parcel: Parcel) -> list[int]:
    """Numbers of files that the device asks for, each once: nobody is sent the same again and again."""
    numbers = [int(number) for number in found["missing"]]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(len(parcel.manifest.files))):
        raise ValueError("it asks for files that are none")
    return numbers


def _tidy(link: Link, place: Place, progress: Progress) -> None:
    """Have removed what is not worth its room there. A verdict that is known is not lost for that."""
    try:
        _ask(link, {"do": "tidy", "everything": place.clean}, progress)
    except (LostError, EdgepackError) as error:
        progress.line(f"note: what was copied was not tidied up there: {error}")


def _look(link: Link, parcel: Parcel, place: Place, progress: Progress) -> dict[str, Any]:
    signature, packed = parcel.signature, zlib.compress(parcel.raw, 9)
    request = {
        "do": "look",
        "bundle": parcel.archive.path.name,
        "name": parcel.manifest.name,
        "manifest_bytes": len(packed),
        "signature_bytes": None if signature is None else len(signature),
        "prefix": place.prefix,
        "cache": place.cache,
        "clean": place.clean,
    }
    return _ask(link, request, progress, packed, signature or b"")


def _copy(link: Link, parcel: Parcel, found: Mapping[str, Any], copied: Copied, progress: Progress) -> None:
    """Send what is missing, until every byte there is as the manifest lists it."""
    missing = _missing(found, parcel)
    begun = {int(number): (method, size, have) for number, method, size, have in found["begun"]}
    for _ in range(ROUNDS):
        if missing:
            _send(link, parcel, missing, begun, copied, progress)
        missing, begun = _missing(_ask(link, {"do": "check"}, progress), parcel), {}
        if not missing:
            return
    names = ", ".join(parcel.manifest.files[number].path for number in missing[:3])
    raise StageFailedError(
        f"the bundle does not arrive on {link.address.name} as it was sent",
        why=f"{names} came with another content {ROUNDS} times",
        fix="look at the disk and the memory of the device",
    )


def _send(
    link: Link,
    parcel: Parcel,
    missing: list[int],
    begun: Mapping[int, tuple[int, int, int]],
    copied: Copied,
    progress: Progress,
) -> None:
    files = [(number, parcel.archive.members[parcel.manifest.files[number].path]) for number in missing]
    offsets = {number: _offset(member, begun.get(number)) for number, member in files}
    total = sum(member.compressed_size - offsets[number] for number, member in files)
    progress.line(
        f"copying {len(files)} of {copied.of_files} files, {total / 2**20:.1f} MiB"
        + (f"; {sum(offsets.values()) / 2**20:.1f} MiB of them came before" if any(offsets.values()) else "")
    )
    with progress.task("MiB copied", max(1, -(-total // _PLACE_BYTES))) as task:
        bar = _Bar(task, total)
        for number, member in files:
            offset = offsets[number]
            head = {"do": "put", "put": number, "method": member.method, "size": member.compressed_size}
            packed = _from(parcel.archive.stored(member), offset)
            link.send({**head, "offset": offset}, _listening(packed, link, progress, bar))
            copied.files += 1
        bar.move(total)


def _offset(member: Member, begun: tuple[int, int, int] | None) -> int:
    """How much of the packed member is there already: nothing of one that was packed in another way."""
    if begun is None or begun[:2] != (member.method, member.compressed_size):
        return 0
    return min(begun[2], member.compressed_size)


def _from(pieces: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[offset:] if offset < len(piece) else b""
        offset = max(0, offset - len(piece))


def _listening(pieces: Iterator[bytes], link: Link, progress: Progress, bar: _Bar) -> Iterator[bytes]:
    """The pieces; between them it is heard what the device has to say, which may be that it cannot go on."""
    for piece in pieces:
        yield piece
        while (told := link.receive(wait=False)) is not None:
            _heard(told, progress, bar)


class _Bar:
    """Moves a task of whole MiB by bytes that arrived."""

    def __init__(self, task: Task, total: int) -> None:
        self._task, self._total, self._done = task, total, 0

    def move(self, got: int) -> None:
        done = -(-self._total // _PLACE_BYTES) if got >= self._total else got // _PLACE_BYTES
        if done > self._done:
            self._task.advance(done - self._done)
            self._done = done


def _ask(link: Link, request: Mapping[str, Any], progress: Progress, *payload: bytes) -> dict[str, Any]:
    """Send a request and wait for its answer, telling progress as it comes.

    Raises:
        LostError: the link ended first.
        EdgepackError: the device says so.
    """
    link.send(request, payload)
    while True:
        told = link.receive()
        assert told is not None
        if (found := _heard(told, progress)) is not None:
            return found


def _heard(told: Mapping[str, Any], progress: Progress, bar: _Bar | None = None) -> dict[str, Any] | None:
    """The answer in what was told, if it is one."""
    if isinstance(found := told.get("ok"), dict):
        return found
    if isinstance(error := told.get("error"), dict):
        _fail(error)
    if isinstance(line := told.get("line"), str):
        progress.line(_one_line(line))
    if bar is not None and isinstance(got := told.get("got"), int):
        bar.move(got)
    return None


def _one_line(text: str) -> str:
    """`text` without ends of lines: the next one would seem to be of somebody else."""
    return " ".join(text[:_LINE_CHARACTERS].splitlines())


def _last_words(link: Link, progress: Progress) -> None:
    """Raise the error that the device gave before the link ended, if it gave one."""
    with contextlib.suppress(LostError):
        while (told := link.receive()) is not None:
            _heard(told, progress)


def _fail(error: Mapping[str, Any]) -> NoReturn:
    kind = _KINDS.get(error.get("exit_code", 1), StageFailedError)
    what, why, fix = (str(error.get(key) or "")[:_TEXT_CHARACTERS] for key in ("what", "why", "fix"))
    raise kind(_one_line(what) or "the device failed, and did not say why", why=why, fix=fix)
