"""Gates bundles on several targets: this machine, and devices over SSH, each with lines and a result of its own.

What one target does changes nothing for the others. A gate on this machine runs by itself, before all others: what
copies and waits for devices meanwhile would disturb its times. Receipts are kept as soon as they are there.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edgepack.errors import BundleInvalidError, EdgepackError, TargetUnreachableError, UsageError
from edgepack.gating import remote
from edgepack.gating.local import gate_here
from edgepack.gating.receipts import ReceiptStore
from edgepack.gating.remote import Parcel, Place
from edgepack.gating.results import Result, readable
from edgepack.gating.rows import Rows
from edgepack.gating.ssh import FORM, LOCAL, Address, Client, Connection
from edgepack.progress import Progress, Task
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.manifest import Manifest, release_id
from edgepack_runtime.bundle.verify import verify_file

RECEIPTS: Final = "receipts"
TIMEOUT_MINUTES: Final = 240
_STOP_S: Final = 45.0  # for what clears up on devices


@dataclass(frozen=True)
class Asked:
    """What to gate, where, and how it is reached. Without bundles, what serves on each device is gated.

    Args:
        jobs: how many devices at once; 0: all.
        receipts: folder for receipts; None: beside each bundle for devices, and none of this machine.
        remote_python: the Python on the device, in place of one found on the PATH.
        remote_dir: the folder for temporary files on the device.
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
    remote_dir: str | None = None
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
    reporters = {name: PrefixedProgress(progress, name if len(names) > 1 else "", speaking) for name in names}
    bundles: list[_Opened | None] = [_opened(bundle) for bundle in asked.bundles]
    for bundle in bundles:
        if bundle is not None and bundle.manifest is not None:
            asked.rows.require_of(bundle.path.name, bundle.manifest)
    for name, target in zip(names, asked.targets, strict=True):
        for bundle in bundles or [None]:
            store = _store(bundle, name, target, asked)
            if store is not None:
                store.require_writable()  # before minutes are spent on a verdict that could not be kept
    results: dict[str, list[Result]] = {name: [] for name in names}
    devices: queue.SimpleQueue[tuple[str, Address]] = queue.SimpleQueue()
    for name, target in zip(names, asked.targets, strict=True):
        if target is None:
            results[name] += [_here(bundle, asked, reporters[name]) for bundle in bundles if bundle]
        else:
            devices.put((name, target))
    connections = _Connections(asked)

    def work(ended: threading.Event) -> None:
        while True:
            try:
                name, target = devices.get(block=False)
            except queue.Empty:
                ended.set()
                return
            for bundle in bundles or [None]:
                try:
                    found = _there(bundle, name, target, asked, connections, reporters[name])
                except BaseException as error:  # noqa: BLE001 - nobody sees the end of a thread
                    found = _failed(bundle, name, _unexpected(error))
                results[name].append(found)

    count = devices.qsize()
    # Events, for a `join` that was interrupted takes its thread for one that has ended.
    ends = [threading.Event() for _ in range(min(asked.jobs or count, count))]
    try:
        for number, ended in enumerate(ends):
            threading.Thread(target=work, args=(ended,), name=f"gate {number}", daemon=True).start()
        for ended in ends:
            ended.wait()
    except BaseException:
        for reporter in reporters.values():
            reporter.silence()
        connections.stop()
        for ended in ends:
            ended.wait(_STOP_S)
        raise
    return [result for name in names for result in results[name]]


def _names(asked: Asked) -> list[str]:
    if not asked.targets:
        raise UsageError("there is no target", fix=f"--target {FORM}")
    names = [LOCAL if target is None else target.name for target in asked.targets]
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


def _here(bundle: _Opened, asked: Asked, reporter: PrefixedProgress) -> Result:
    def measure() -> Result:
        code, receipt = gate_here(bundle.path, reporter, asked.pythons, asked.rows)
        result = Result(LOCAL, *_about(bundle), code, readable(receipt))
        return _kept(result, _store(bundle, LOCAL, None, asked))

    return _settled(bundle, measure, reporter, LOCAL)


def _there(
    bundle: _Opened | None,
    name: str,
    target: Address,
    asked: Asked,
    connections: _Connections,
    reporter: PrefixedProgress,
) -> Result:
    def measure() -> Result:
        place = Place(target.prefix, asked.remote_dir, asked.remote_python)
        parcel = None if bundle is None else _parcel(bundle)
        with connections.to(target) as connection:
            if asked.installed or parcel is None:
                found = remote.gate_installed(parcel, connection, place, asked.rows, reporter)
            else:
                found = remote.gate(parcel, connection, place, asked.rows, reporter)
        receipt = readable(found.receipt)
        result = Result(name, *_about(bundle), found.exit_code, receipt, device=found.device, copied=found.copied)
        result = _kept(result, _store(bundle, name, target, asked))
        if result.kept is not None:
            reporter.line(f"receipt {result.kept}")
        return result

    return _settled(bundle, measure, reporter, name)


def _store(bundle: _Opened | None, name: str, target: Address | None, asked: Asked) -> ReceiptStore | None:
    """Where receipts of the target called `name` are kept; None: nowhere."""
    if asked.receipts is not None:
        return ReceiptStore.of_target(asked.receipts, name)
    beside = Path() if bundle is None else bundle.path.parent
    return None if target is None else ReceiptStore.of_target(beside / RECEIPTS, name)


def _kept(result: Result, store: ReceiptStore | None) -> Result:
    """`result` with the path of its receipt, or why it could not be written: the verdict is not lost for that."""
    if store is None or result.receipt is None:
        return result
    try:
        return replace(result, kept=store.keep(result.receipt))
    except EdgepackError as error:
        return replace(result, unkept=error)


def _settled(bundle: _Opened | None, measure: Callable[[], Result], reporter: PrefixedProgress, name: str) -> Result:
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
    if reporter.name:  # others may go on for minutes
        reporter.line(f"not measured: {failed.what}")
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


def _parcel(bundle: _Opened) -> Parcel:
    """The bundle that was opened; the digest is of the bytes that will arrive.

    Raises:
        BundleInvalidError: the file has changed since.
    """
    digest = sha256_file(bundle.path)
    manifest, raw = verify_file(bundle.path)
    if manifest != bundle.manifest:
        raise BundleInvalidError(f"{bundle.path.name} is another file than a moment ago", fix="try again")
    return Parcel(bundle.path, manifest, release_id(manifest, raw), bundle.path.stat().st_size, digest)


class _Connections:
    """Makes connections, and stops all of them when the command is interrupted."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._open: list[Connection] = []
        self._lock = threading.Lock()
        self._stopped = False

    def to(self, target: Address) -> Connection:
        with self._lock:
            if self._stopped:
                raise TargetUnreachableError(f"{target.name}: interrupted")
            connection = Connection(self._asked.client, target, self._asked.timeout_minutes)
            self._open.append(connection)
            return connection

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for connection in self._open:
                connection.stop()


class PrefixedProgress:
    """Progress that prefixes each line and bar with a target's name, if it has one; all targets share one `lock`."""

    def __init__(self, progress: Progress, name: str, lock: threading.Lock) -> None:
        self._progress, self._lock, self.name = progress, lock, name
        self._head = f"{name}: " if name else ""
        self._silent = False

    def silence(self) -> None:
        """Print no line from here on: after an interruption they would report its consequences as failures."""
        with self._lock:
            self._silent = True

    def line(self, text: str) -> None:
        with self._lock:
            if not self._silent:
                self._progress.line(self._head + text)

    def task(self, label: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        return self._task(label, total, done)

    @contextmanager
    def _task(self, label: str, total: int, done: int) -> Iterator[Task]:
        with self._lock:
            inner = self._progress.task(self._head + label, total, done)
            task = inner.__enter__()
        try:
            yield _SharedTask(task, self._lock)
        finally:
            with self._lock:
                inner.__exit__(None, None, None)


class _SharedTask:
    """A task that is drawn beside the tasks of other threads."""

    def __init__(self, task: Task, lock: threading.Lock) -> None:
        self._task, self._lock = task, lock

    def advance(self, steps: int = 1, note: str = "") -> None:
        with self._lock:
            self._task.advance(steps, note)
