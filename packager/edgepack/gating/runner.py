"""Gates of bundles on several targets: this machine, and devices over SSH at the same time.

A failure of one target does not affect the others. A gate on this machine runs alone and first, because copies and
connections would disturb its timings. Each receipt is stored as soon as it arrives.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from edgepack.errors import BundleInvalidError, EdgepackError, TargetUnreachableError, UsageError
from edgepack.gating import remote
from edgepack.gating.address import FORM, LOCAL, Address
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.gating.local import gate_file
from edgepack.gating.receipts import ReceiptStore
from edgepack.gating.remote import VerifiedBundle
from edgepack.gating.results import GateResult, readable
from edgepack.gating.ssh import Client, Connection
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.manifest import Manifest, release_id
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.util.progress import Log

RECEIPTS: Final = "receipts"
TIMEOUT_MINUTES: Final = 240


@dataclass(frozen=True)
class GateRequest:
    """Bundles, targets and options of `edgepack gate`. Without bundles the active release of each device is gated.

    Args:
        jobs: number of devices at the same time; 0: all.
        receipts: folder for receipts; None: beside each bundle for devices, and none for this machine.
        remote_dir: folder for temporary files on the devices.
        timeout_minutes: limit for one bundle on one device, copying included.
        rows: golden rows of bundles that do not carry them.
    """

    bundles: tuple[Path, ...]
    targets: tuple[Address | None, ...]
    client: Client = field(default_factory=Client)
    installed: bool = False
    jobs: int = 0
    receipts: Path | None = None
    remote_dir: str | None = None
    timeout_minutes: float = TIMEOUT_MINUTES
    rows: GoldenRowsOption = field(default_factory=GoldenRowsOption)

    def names(self) -> list[str]:
        """Names of the targets.

        Raises:
            UsageError: a target is named twice, or options exclude each other.
        """
        if not self.targets:
            raise UsageError("no target is named", fix=f"--target {FORM}")
        names = [LOCAL if target is None else target.name for target in self.targets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"named more than once: {', '.join(twice)}")
        if self.installed and None in self.targets:
            raise UsageError(
                "--installed needs devices over SSH",
                fix="on this machine, gate an install with PREFIX/bin/NAME gate; or name a --target ssh://HOST",
            )
        if not self.bundles and not self.installed:
            raise UsageError("no bundle is named", fix="edgepack gate FILE.edgepack --target ssh://HOST")
        return names


@dataclass(frozen=True)
class _Opened:
    """A bundle with its manifest, or with the error that verification found."""

    path: Path
    manifest: Manifest | None = None
    error: EdgepackError | None = None


def run(request: GateRequest, log: Log) -> list[GateResult]:
    """Gate every bundle on every target; results are in the order of the targets.

    Raises:
        UsageError: the request is invalid.
        EnvironmentUnfitError: receipts cannot be stored.
        KeyboardInterrupt: gates on devices were ended.
    """
    names = request.names()
    output = _SharedLog(log, several=len(names) > 1)
    bundles: list[_Opened | None] = [_open(bundle) for bundle in request.bundles]
    for bundle in bundles:
        if bundle is not None and bundle.manifest is not None:
            request.rows.require_of(bundle.path.name, bundle.manifest)
    targets = list(zip(names, request.targets, strict=True))
    for name, target in targets:
        for bundle in bundles or [None]:
            store = _store(bundle, name, target, request)
            if store is not None:
                store.require_writable()  # before a gate of minutes whose receipt would be lost
    results: dict[str, list[GateResult]] = {
        name: [
            _result_of(partial(_gate_here, bundle, request, output), bundle, name, output)
            for bundle in bundles
            if bundle
        ]
        for name, target in targets
        if target is None
    }
    devices = [(name, target) for name, target in targets if target is not None]
    connections = _Connections(request)

    def gate_device(name: str, target: Address) -> list[GateResult]:
        return [
            _result_of(partial(_gate_device, bundle, name, target, request, connections, output), bundle, name, output)
            for bundle in bundles or [None]
        ]

    if devices:
        with ThreadPoolExecutor(request.jobs or len(devices), "gate") as pool:
            futures = {name: pool.submit(gate_device, name, target) for name, target in devices}
            try:
                results.update((name, future.result()) for name, future in futures.items())
            except BaseException:
                output.silence()
                connections.stop()
                raise  # the pool waits until the devices are cleaned up
    return [result for name in names for result in results[name]]


def _open(path: Path) -> _Opened:
    try:
        return _Opened(path, verify_file(path)[0])
    except EdgepackError as error:
        return _Opened(path, error=error)


def _gate_here(bundle: _Opened, request: GateRequest, output: _SharedLog) -> GateResult:
    code, found = gate_file(bundle.path, output.of(LOCAL), request.rows)
    receipt = readable(found, manifest=bundle.manifest, without_rows=request.rows.without)
    result = GateResult(LOCAL, bundle.path.name, bundle.manifest, code, receipt)
    return _stored(result, _store(bundle, LOCAL, None, request))


def _gate_device(
    bundle: _Opened | None,
    name: str,
    target: Address,
    request: GateRequest,
    connections: _Connections,
    output: _SharedLog,
) -> GateResult:
    verified = None if bundle is None else _verify_again(bundle)
    log = output.of(name)
    with connections.to(target) as connection:
        if request.installed or verified is None:
            found = remote.gate_installed(verified, connection, request.remote_dir, request.rows, log)
        else:
            found = remote.gate(verified, connection, request.remote_dir, request.rows, log)
    file_name, manifest = _described(bundle)
    receipt = readable(found.receipt, manifest=manifest, without_rows=request.rows.without)
    result = GateResult(name, file_name, manifest, found.exit_code, receipt, device=found.device, copied=found.copied)
    result = _stored(result, _store(bundle, name, target, request))
    if result.kept is not None:
        log(f"receipt {result.kept}")
    return result


def _store(bundle: _Opened | None, name: str, target: Address | None, request: GateRequest) -> ReceiptStore | None:
    """The receipt store of a target; None if receipts are not stored."""
    if request.receipts is not None:
        return ReceiptStore.of_target(request.receipts.resolve(), name)  # a link that the user names is followed
    beside = Path() if bundle is None else bundle.path.parent
    return None if target is None else ReceiptStore.of_target(beside / RECEIPTS, name)


def _stored(result: GateResult, store: ReceiptStore | None) -> GateResult:
    """`result` with the path of its receipt, or with the reason why the receipt could not be written."""
    if store is None or result.receipt is None:
        return result
    try:
        return replace(result, kept=store.keep(result.receipt))
    except EdgepackError as error:
        return replace(result, unkept=error)


def _result_of(measure: Callable[[], GateResult], bundle: _Opened | None, name: str, output: _SharedLog) -> GateResult:
    """The result of `measure`, or a result with its error, so that one target cannot hide the results of others."""
    begin = time.monotonic()
    try:
        if bundle is not None and bundle.error is not None:
            raise bundle.error
        result = measure()
    except EdgepackError as error:
        result = _failure(error, bundle, name, output)
    except Exception as error:  # noqa: BLE001 - see above
        unexpected = EdgepackError(f"unexpected {type(error).__name__}: {error}", fix="run it with -v, and report it")
        unexpected.__cause__ = error
        result = _failure(unexpected, bundle, name, output)
    return replace(result, seconds=round(time.monotonic() - begin, 3))


def _failure(error: EdgepackError, bundle: _Opened | None, name: str, output: _SharedLog) -> GateResult:
    if output.several:  # others may run for minutes; the full error follows with the results
        output.of(name)(f"not measured: {error.what}")
    return GateResult(name, *_described(bundle), int(error.exit_code), error=error)


def _described(bundle: _Opened | None) -> tuple[str | None, Manifest | None]:
    """File name and manifest of a bundle; None for the active release of a device."""
    return (None, None) if bundle is None else (bundle.path.name, bundle.manifest)


def _verify_again(bundle: _Opened) -> VerifiedBundle:
    """Verify the file that is copied, and return its digest."""
    digest = sha256_file(bundle.path)
    manifest, raw = verify_file(bundle.path)
    if manifest != bundle.manifest:
        raise BundleInvalidError(f"{bundle.path.name} has changed since this command started", fix="run it again")
    return VerifiedBundle(bundle.path, manifest, release_id(manifest, raw), bundle.path.stat().st_size, digest)


class _Connections:
    """The open connections. `stop` ends all of them when the command is interrupted."""

    def __init__(self, request: GateRequest) -> None:
        self._request = request
        self._open: list[Connection] = []
        self._lock = threading.Lock()
        self._stopped = False

    def to(self, target: Address) -> Connection:
        with self._lock:
            if self._stopped:
                raise TargetUnreachableError(f"{target.name}: interrupted")
            connection = Connection(self._request.client, target, self._request.timeout_minutes)
            self._open.append(connection)
            return connection

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for connection in self._open:
                connection.stop()


class _SharedLog:
    """Lines of several threads, each with its target's name if there are several targets."""

    def __init__(self, log: Log, *, several: bool) -> None:
        self._log, self.several = log, several
        self._lock = threading.Lock()
        self._silent = False

    def silence(self) -> None:
        """Print nothing more: after an interruption the lines would report its consequences as failures."""
        with self._lock:
            self._silent = True

    def of(self, name: str) -> Log:
        """Printer of lines about one target."""

        def log(text: str) -> None:
            with self._lock, contextlib.suppress(OSError):  # a closed stderr must not cost a verdict
                if not self._silent:
                    self._log(f"{name}: {text}" if self.several else text)

        return log
