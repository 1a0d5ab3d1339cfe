"""Receipts: the record of every verb that changes or measures an install, signed where the device has a key.

They lie in `<prefix>/receipts` as NNNNNN-VERB.json, numbered since a device's clock may be wrong. Steps and notes are
told as they happen, and kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

from edgepack_runtime.bundle.manifest import Manifest, release_id
from edgepack_runtime.errors import EdgepackError
from edgepack_runtime.install import trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors, write_atomic

NAMESPACE = "edgepack-receipt"
KEY_NAME = "receipt_key"
SUFFIX = ".sig"
_TIMEOUT_S = 60.0


def seal(receipt: Path, raw: bytes) -> Optional[str]:
    """Write the signature of the file `receipt`, whose bytes are `raw`, beside it.

    Returns:
        Why it could not be signed; None where it was, and where this device has no key.
    """
    key = trust.MACHINE / KEY_NAME
    try:
        trust.read_regular(key)  # a pipe would keep every verb waiting
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{key}: {error.strerror or error}"
    try:
        done = subprocess.run(
            [trust.tool(), "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE],
            input=raw,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,  # no terminal: a key with a passphrase is an error and no question
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0 or not done.stdout:
            return " ".join(done.stderr.decode("utf-8", "replace").split())[:200] or "ssh-keygen gave no signature"
        write_atomic(receipt.with_name(receipt.name + SUFFIX), done.stdout)
    except EdgepackError as error:
        return error.what
    except subprocess.TimeoutExpired:
        return f"ssh-keygen did not end within {_TIMEOUT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return None


RECEIPT = re.compile(r"([0-9]{6})-.*\.json(?:\.sig)?\Z")  # or its signature
CHANGES = ("install", "rollback", "uninstall")  # verbs after which something else may serve
Say = Callable[[str], None]


class Journal:
    """What one run does to `prefix`, told to `say` and kept in `receipt`, which has the keys `steps` and `notes`."""

    prefix: Prefix
    say: Say
    receipt: Dict[str, Any]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, tell it, and put it into the receipt."""
        begin = time.perf_counter()
        ok = False
        try:
            yield
            ok = True
        finally:
            seconds = time.perf_counter() - begin
            self.receipt["steps"].append({"step": name, "ok": ok, "ms": round(seconds * 1000, 1)})
            self.say(f"  {'ok  ' if ok else 'FAIL'}  {name:<10} {seconds:7.1f} s")

    def note(self, text: str) -> None:
        """Tell something that is worth knowing and no error, here and in the receipt."""
        self.receipt["notes"].append(text)
        self.say(f"  note  {text}")


def begin(verb: str, verdict: str) -> Dict[str, Any]:
    """What every receipt begins with: `verdict` is what it says unless the verb fails."""
    from edgepack_runtime.install.release_process import (
        interpreter,  # takes longer to load than all that a gate needs of this module
    )

    return {
        "receipt": 1,
        "verb": verb,
        "verdict": verdict,
        "exit_code": 0,
        "error": None,
        "previous": None,
        "serving": None,
        "interpreter": interpreter(),
        "device_clock_unix_s": int(time.time()),  # for the reader's orientation only: device clocks are often wrong
        "steps": [],
        "notes": [],
    }


def facts(manifest: Manifest, raw: bytes) -> Dict[str, Any]:
    """The `bundle` of a receipt: which one it is about. `raw` are the bytes of its manifest."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "target": manifest.target.profile,
        "release_id": release_id(manifest, raw),
        "manifest_sha256": hashlib.sha256(raw).hexdigest(),
        "sequence": manifest.sequence,
    }


def fail(receipt: Dict[str, Any], verdict: str, error: EdgepackError) -> None:
    """Put into the receipt that the verb failed, and why."""
    receipt.update(verdict=verdict, exit_code=int(error.exit_code), error=str(error))


def leave(prefix: Prefix, receipt: Dict[str, Any], say: Say, *, best_effort: bool) -> Optional[EdgepackError]:
    """Write the receipt into the prefix. What serves now goes into it.

    Args:
        best_effort: a failure is told and returned instead of raised.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    receipt["serving"] = prefix.current_id()
    try:
        with os_errors(f"the receipt cannot be written; the verdict is: {receipt['verdict']}"):
            path = write_receipt(prefix, receipt["verb"], receipt, say)
    except EdgepackError as error:
        if not best_effort:  # what was done is done, but nothing may look complete that is not
            raise
        say(f"  note  {error.what}: {error.why}")
        return error
    say(f"  receipt {path}")
    return None


def write_receipt(prefix: Prefix, verb: str, receipt: Mapping[str, Any], say: Say) -> Path:
    """Store a receipt under the next free number, signed if this device has a key for that, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    # what it needs would make every cold start longer

    text = json.dumps(receipt, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    raw = text.encode("utf-8", "replace")  # a file name need not be UTF-8, and many a stick's is not
    made = make_folder(prefix.receipts)
    if made:
        fsync_folder(prefix.root)
    with _locked(prefix.receipts):  # an install and a gate may end in the same moment
        number = max((int(m.group(1)) for m in map(RECEIPT.match, os.listdir(prefix.receipts)) if m), default=0)  # noqa: PTH208
        path = prefix.receipts / f"{number + 1:06d}-{verb}.json"
        write_atomic(path, raw)
    why = seal(path, raw)
    if why is not None:
        say(f"  note  {path.name} is not signed: {why}")
    return path


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from numbering receipts in `folder`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def receipts_of(prefix: Prefix, *verbs: str) -> Iterator[Dict[str, Any]]:
    """The receipts of `verbs`, the newest first; one that cannot be read counts as none."""
    found = [path for verb in verbs for path in prefix.receipts.glob(f"*-{verb}.json") if RECEIPT.match(path.name)]
    for path in sorted(found, reverse=True):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict):
                yield document


def last_receipt(prefix: Prefix, *verbs: str) -> Optional[Dict[str, Any]]:
    """The newest receipt of any of `verbs`, or None."""
    return next(receipts_of(prefix, *verbs), None)


def highest_installed(prefix: Prefix) -> Optional[int]:
    """The highest sequence number in the receipts of installs that were committed; None where there is none."""
    committed = [receipt for receipt in receipts_of(prefix, "install") if receipt.get("exit_code") == 0]
    bundles = [receipt["bundle"] for receipt in committed if isinstance(receipt.get("bundle"), dict)]
    return max((b["sequence"] for b in bundles if type(b.get("sequence")) is int), default=None)
