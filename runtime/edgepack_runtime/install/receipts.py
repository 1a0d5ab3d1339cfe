"""Receipts: the record of each verb that changes or measures an install, signed if the device has a key for it.

Receipts are files `<prefix>/receipts/NNNNNN-VERB.json`. They are numbered because a device's clock may be wrong; the
number is part of what is signed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterator, Mapping, Optional, Tuple

from edgepack_runtime.bundle.manifest import Manifest, release_id
from edgepack_runtime.errors import EdgepackError, ExitCode, printable
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.messages import message
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.schema.receipt import BundleFacts, Receipt
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors, read_regular, write_atomic
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.signals import exit_code

NAMESPACE = "edgepack-receipt"
KEY_NAME = "receipt_key"
SUFFIX = ".sig"
RECEIPT = re.compile(r"([0-9]{6,12})-.*\.json(?:\.sig)?\Z")  # file name of a receipt or of its signature
_MOST_NUMBER = 10**9  # a receipt with a higher number was not made here; RECEIPT has room for all that follow
CHANGES = ("install", "rollback", "uninstall")  # verbs that may change which release is active
_TIMEOUT_S = 60.0
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 20, 0.1


@dataclasses.dataclass
class Journal:
    """One run of a verb on an install: logs its steps and notes, and keeps them in `receipt`."""

    prefix: Prefix
    name: str  # of the bundle
    log: Log
    receipt: Dict[str, Any]  # from `new_receipt`

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        begin = time.perf_counter()
        word = "STOP"  # an interrupt
        try:
            yield
            word = "ok"
        except Exception:
            word = "FAIL"
            raise
        finally:
            seconds = time.perf_counter() - begin
            self.receipt["steps"].append({"step": name, "ok": word == "ok", "ms": round(seconds * 1000, 1)})
            self.log(f"  {word:<4}  {name:<10} {seconds:7.1f} s")

    def note(self, text: str) -> None:
        """Report something unusual that is not an error."""
        self.receipt["notes"].append(text)
        self.log(message("install.note", text=text))

    @contextlib.contextmanager
    def recorded(self, failed: str) -> Iterator[None]:
        """Store the receipt after the block; its verdict is `failed` after any error, `interrupted` after a signal."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as end:
            code = end.code if isinstance(end, SystemExit) else exit_code(signal.SIGINT)
            self.receipt.update(verdict="interrupted", exit_code=code)
            self.try_to_store()
            raise
        except Exception as error:
            code = error.exit_code if isinstance(error, EdgepackError) else _code_of(error)
            text = str(error) if isinstance(error, EdgepackError) else printable(f"{type(error).__name__}: {error}")
            self.receipt.update(verdict=failed, exit_code=int(code), error=text)
            self.try_to_store()
            raise
        self.store()

    def store(self) -> None:
        """Write the receipt into the prefix.

        Raises:
            EnvironmentUnfitError: it cannot be written.
        """
        self.receipt["serving"] = self.prefix.current_id()
        with os_errors(f"the receipt cannot be written; the verdict is: {self.receipt['verdict']}"):
            path = write_receipt(self.prefix, self.receipt["verb"], self.receipt, self.log)
        self.log(f"  receipt {path}")

    def try_to_store(self) -> bool:
        """`store`, where a failure is logged and returned as False."""
        try:
            self.store()
        except EdgepackError as error:
            self.log(f"  note  {error.what}: {error.why}")
            return False
        return True


def _code_of(error: Exception) -> ExitCode:
    """The exit code of an error that nobody raised on purpose, as `cli.main` gives it."""
    is_of_machine = isinstance(error, (OSError, MemoryError, ImportError))
    return ExitCode.ENVIRONMENT_UNFIT if is_of_machine else ExitCode.UNEXPECTED


def new_receipt(verb: str, verdict: str) -> Dict[str, Any]:
    """The fields that all receipts share. The verb replaces `verdict` if it ends otherwise."""
    from edgepack_runtime.install.release_process import interpreter  # slow to import, and `gate` does not need it

    made = Receipt(verb, verdict, interpreter=interpreter(), device_clock_unix_s=int(time.time()))
    receipt: Dict[str, Any] = to_json(made)
    return receipt


def bundle_facts(manifest: Manifest, raw: bytes) -> BundleFacts:
    """The field `bundle` of a receipt. `raw` are the bytes of the manifest."""
    return BundleFacts(
        manifest.name,
        manifest.version,
        manifest.target.profile,
        release_id(manifest, raw),
        hashlib.sha256(raw).hexdigest(),
        manifest.sequence,
    )


def write_receipt(prefix: Prefix, verb: str, receipt: Mapping[str, Any], log: Log) -> Path:
    """Store a receipt with the next free number, signed if this device has a key; return its path.

    Raises:
        OSError: it cannot be written.
    """
    made = make_folder(prefix.receipts)
    if made:
        fsync_folder(prefix.root)
    with _locked(prefix.receipts):  # an install and a gate may end at the same time
        numbers = {int(m.group(1)) for m in map(RECEIPT.match, os.listdir(prefix.receipts)) if m}  # noqa: PTH208
        number = next_number(numbers)
        path = prefix.receipts / f"{number:06d}-{verb}.json"
        text = json.dumps({**receipt, "number": number}, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        raw = text.encode("utf-8", "replace")  # file names need not be UTF-8
        write_atomic(path, raw)
    why = _sign(path, raw)
    if why is not None:
        log(f"  note  {path.name} is not signed: {why}")
    return path


def next_number(taken: AbstractSet[int]) -> int:
    """The number of a new receipt: a free one after those that were counted up to."""
    number = max((number for number in taken if number < _MOST_NUMBER), default=0) + 1
    while number in taken:
        number += 1
    return number


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, or go on without it after two seconds.

    Whoever may read a folder can lock it, and must not hold up an install. Without the lock, two receipts of the same
    moment may have one number, which `edgepack receipts` remarks.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_LOCK_ATTEMPTS):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _sign(path: Path, raw: bytes) -> Optional[str]:
    """Write the signature of the receipt at `path`, which holds `raw`, beside it.

    Returns:
        Why it could not be signed; None on success, and if this device has no key.
    """
    key = trust.MACHINE_FOLDER / KEY_NAME
    try:
        trust.read_key_file(key)  # a named pipe would block every verb
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{key}: {error.strerror or error}"
    try:
        done = subprocess.run(
            [trust.find_ssh_keygen(), "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE],
            input=raw,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,  # without a terminal, a key with a passphrase is an error and not a prompt
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0 or not done.stdout:
            return " ".join(done.stderr.decode("utf-8", "replace").split())[:200] or "ssh-keygen gave no signature"
        write_atomic(path.with_name(path.name + SUFFIX), done.stdout)
    except EdgepackError as error:
        return error.what
    except subprocess.TimeoutExpired:
        return f"ssh-keygen did not end within {_TIMEOUT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return None


def read_receipts(prefix: Prefix, *verbs: str) -> Iterator[Dict[str, Any]]:
    """The receipts of `verbs`, newest first. Unreadable ones are skipped."""
    found = [path for verb in verbs for path in prefix.receipts.glob(f"*-{verb}.json") if RECEIPT.match(path.name)]
    for path in sorted(found, key=order, reverse=True):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            document = json.loads(read_regular(path).decode("utf-8"))
            if isinstance(document, dict):
                yield document


def order(path: Path) -> Tuple[int, str]:
    """The order of receipts: by number, then by verb."""
    return int(path.name.partition("-")[0]), path.name


def last_receipt(prefix: Prefix, *verbs: str) -> Optional[Dict[str, Any]]:
    """The newest receipt of any of `verbs`, or None."""
    return next(read_receipts(prefix, *verbs), None)


def highest_installed(prefix: Prefix) -> Optional[int]:
    """The highest sequence number among receipts of successful installs, or None."""
    committed = [receipt for receipt in read_receipts(prefix, "install") if receipt.get("exit_code") == 0]
    bundles = [receipt["bundle"] for receipt in committed if isinstance(receipt.get("bundle"), dict)]
    return max((b["sequence"] for b in bundles if type(b.get("sequence")) is int), default=None)
