"""Gates bundles on several targets: this machine, and devices over SSH, each with lines and a result of its own.

What one target does changes nothing for the others. A gate on this machine runs by itself, before all others: what
copies and waits for devices meanwhile would disturb its times. Receipts are kept as soon as they are there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edgepack.errors import BundleInvalidError, EdgepackError, TargetUnreachableError, UsageError
from edgepack.gates import Result, readable
from edgepack.kept import folder_name, keep, try_folder
from edgepack.progress import Progress
from edgepack.stages import gate
from edgepack.targets import address, sent
from edgepack.targets.address import Address
from edgepack.targets.distant import Connect, Parcel, Place
from edgepack.targets.rows import Rows
from edgepack.targets.ssh import Client, Limit, Link
from edgepack.voices import Voice
from edgepack_runtime import manifest as contract
from edgepack_runtime import verify
from edgepack_runtime.archive import Archive
from edgepack_runtime.manifest import Manifest
from edgepack_runtime.verify import verify_file

RECEIPTS: Final = "receipts"
TIMEOUT_MINUTES: Final = 240
_STOP_S: Final = 15.0


@dataclass(frozen=True)
class Asked:
    """What to gate, where, and how it is reached. Without bundles, what serves on each device is gated.

    Args:
        jobs: how many devices at once; 0: all.
        receipts: folder for receipts; None: beside each bundle for devices, and none of this machine.
        remote_python: the Python to run with there, in place of one found on the PATH.
        timeout_minutes: how long one bundle may take on one device, with all that belongs to it.
        rows: what is said of the golden rows of the bundle, where it does not carry them.
    """

    bundles: tuple[Path, ...]
    targets: tuple[Address | None, ...]
    client: Client = field(default_factory=Client)
    installed: bool = False
    jobs: int = 0
    receipts: Path | None = None
    pythons: tuple[Path, ...] = ()
    remote_python: str | None = None
    cache: str | None = None
    clean: bool = False
    timeout_minutes: float = TIMEOUT_MINUTES
    rows: Rows = field(default_factory=Rows)


def run(asked: Asked, progress: Progress) -> list[Result]:
    """Gate every bundle on every target; results by target, as they were given.

    Raises:
        UsageError: what is asked for makes no sense.
        EnvironmentUnfitError: receipts could not be kept.
        KeyboardInterrupt: what ran on devices was ended.
    """
    names = _names(asked)
    speaking = threading.Lock()
    voices = {name: Voice(progress, name if len(names) > 1 else "", speaking) for name in names}
    bundles: list[_Opened | None] = [_opened(bundle) for bundle in asked.bundles]
    for bundle in bundles:
        if bundle is not None and bundle.manifest is not None:
            asked.rows.require_of(bundle.path.name, bundle.manifest)
    for folder in dict.fromkeys(
        folder
        for name, target in zip(names, asked.targets, strict=True)
        for bundle in bundles or [None]
        if (folder := _folder(bundle, name, target, asked)) is not None
    ):
        try_folder(folder)  # before a verdict of minutes is there, and nowhere to keep it
    results: dict[str, list[Result]] = {name: [] for name in names}
    devices: queue.SimpleQueue[tuple[str, Address]] = queue.SimpleQueue()
    for name, target in zip(names, asked.targets, strict=True):
        if target is None:
            results[name] += [_here(bundle, asked, voices[name]) for bundle in bundles if bundle]
        else:
            devices.put((name, target))
    links = _Links(asked)

    def work() -> None:
        while True:
            try:
                name, target = devices.get(block=False)
            except queue.Empty:
                return
            for bundle in bundles or [None]:
                try:
                    found = _there(bundle, name, target, asked, links, voices[name])
                except BaseException as error:  # noqa: BLE001 - nobody sees the end of a thread
                    found = _failed(bundle, name, _unexpected(error))
                results[name].append(found)

    count = devices.qsize()
    workers = [
        threading.Thread(target=work, name=f"gate {number}", daemon=True)
        for number in range(min(asked.jobs or count, count))
    ]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    except BaseException:
        for voice in voices.values():
            voice.silence()
        links.stop()
        for worker in workers:
            worker.join(_STOP_S)
        raise
    return [result for name in names for result in results[name]]


def _names(asked: Asked) -> list[str]:
    if not asked.targets:
        raise UsageError("there is no target", fix=f"--target {address.FORM}")
    names = [address.LOCAL if target is None else target.name for target in asked.targets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{', '.join(twice)} is named twice", fix="name each target once")
    if asked.installed and None in asked.targets:
        raise UsageError(
            "--installed is about devices that are reached over SSH",
            fix="here, gate what is installed with PREFIX/bin/NAME gate; or name a --target ssh://HOST",
        )
    if not asked.bundles and not asked.installed:
        raise UsageError("which bundle is to be gated?", fix="edgepack gate FILE.edgepack --target ssh://HOST")
    return names


@dataclass(frozen=True)
class _Opened:
    """A bundle that was looked at once: its manifest, or why it is none."""

    path: Path
    manifest: Manifest | None = None
    error: EdgepackError | None = None


def _opened(path: Path) -> _Opened:
    try:
        return _Opened(path, verify_file(path)[0])
    except EdgepackError as error:
        return _Opened(path, error=error)


def _here(bundle: _Opened, asked: Asked, voice: Voice) -> Result:
    def measure() -> Result:
        code, receipt = gate.gate_here(bundle.path, voice, asked.pythons, asked.rows)
        result = Result(address.LOCAL, *_about(bundle), code, readable(receipt))
        return _kept(result, _folder(bundle, address.LOCAL, None, asked))

    return _settled(bundle, measure, voice, address.LOCAL)


def _there(bundle: _Opened | None, name: str, target: Address, asked: Asked, links: _Links, voice: Voice) -> Result:
    def measure() -> Result:
        place = Place(target.prefix, asked.cache, asked.clean)
        with contextlib.ExitStack() as stack:
            parcel = None if bundle is None else stack.enter_context(_parcel(bundle))
            connect = links.to(target, parcel)
            if asked.installed or parcel is None:
                code, receipt, gated = gate.gate_installed(parcel, connect, place, asked.rows, voice)
            else:
                code, receipt, gated = gate.gate_there(parcel, connect, place, asked.rows, voice)
        copied = None if asked.installed else gated.copied
        result = Result(name, *_about(bundle), code, readable(receipt), device=gated.device, copied=copied)
        result = _kept(result, _folder(bundle, name, target, asked))
        if result.kept is not None:
            voice.line(f"receipt {result.kept}")
        return result

    return _settled(bundle, measure, voice, name)


def _folder(bundle: _Opened | None, name: str, target: Address | None, asked: Asked) -> Path | None:
    """Where receipts of the target called `name` are kept; None: nowhere."""
    if asked.receipts is not None:
        return asked.receipts / folder_name(name)
    beside = Path() if bundle is None else bundle.path.parent
    return None if target is None else beside / RECEIPTS / folder_name(name)


def _kept(result: Result, folder: Path | None) -> Result:
    """`result` with where its receipt lies, or why it lies nowhere: a verdict that is known is not lost for that."""
    if folder is None or result.receipt is None:
        return result
    try:
        return replace(result, kept=keep(folder, result.receipt))
    except EdgepackError as error:
        return replace(result, unkept=error)


def _settled(bundle: _Opened | None, measure: Callable[[], Result], voice: Voice, name: str) -> Result:
    """What `measure` returns, or the error that it ended with: it is told in full beside the results of the others."""
    begin = time.monotonic()
    try:
        if bundle is not None and bundle.error is not None:
            raise bundle.error
        return replace(measure(), seconds=_since(begin))
    except EdgepackError as error:
        failed = error
    except Exception as error:  # noqa: BLE001 - one target must not hide what the others found
        failed = _unexpected(error)
    if voice.name:  # others may go on for minutes
        voice.line(f"not measured: {failed.what}")
    return replace(_failed(bundle, name, failed), seconds=_since(begin))


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 3)


def _unexpected(error: BaseException) -> EdgepackError:
    failed = EdgepackError(f"unexpected {type(error).__name__}: {error}", fix="run again with -v and report it")
    failed.__cause__ = error
    return failed


def _failed(bundle: _Opened | None, name: str, failed: EdgepackError) -> Result:
    return Result(name, *_about(bundle), int(failed.exit_code), error=failed)


def _about(bundle: _Opened | None) -> tuple[str | None, Manifest | None]:
    """File name and manifest, where a result is of a bundle rather than of what serves on a device."""
    return (None, None) if bundle is None else (bundle.path.name, bundle.manifest)


@contextmanager
def _parcel(bundle: _Opened) -> Iterator[Parcel]:
    """The bundle, opened once more for one device, which reads at its own pace."""
    with Archive(bundle.path) as archive:
        raw, signature = verify.read_sealed(archive)
        manifest = contract.parse(raw)
        if manifest != bundle.manifest:
            raise BundleInvalidError(f"{bundle.path.name} is another file than a moment ago", fix="try again")
        yield Parcel(archive, manifest, raw, signature)


class _Links:
    """Makes connections, and ends all of them when the command is interrupted."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._open: list[Link] = []
        self._lock = threading.Lock()
        self._stopped = False

    def to(self, target: Address, parcel: Parcel | None) -> Connect:
        """What makes connections to `target`, with a Python there that `parcel` can run on, from now on for so long."""
        limit = Limit.of(self._asked.timeout_minutes)
        named = self._asked.remote_python
        wanted = sent.PYTHONS if parcel is None else sent.pythons_for(parcel.manifest.target.python)
        pythons = wanted if named is None else (named,)

        def connect() -> Link:
            with self._lock:
                if self._stopped:
                    raise TargetUnreachableError(f"{target.name}: interrupted")
                link = Link(self._asked.client, target, pythons, limit)
                self._open.append(link)
                return link

        return connect

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for link in self._open:
                link.stop()
