"""The receipt of a verb that changes an install: steps and notes are told as they happen (standard library only)."""

from __future__ import annotations

import contextlib
import hashlib
import time
from typing import Any, Callable, Dict, Iterator, Optional

from edgepack_runtime.errors import DeviceError
from edgepack_runtime.isolated import interpreter
from edgepack_runtime.manifest import Manifest, release_id
from edgepack_runtime.state import Prefix, os_errors, write_receipt

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


def fail(receipt: Dict[str, Any], verdict: str, error: DeviceError) -> None:
    """Put into the receipt that the verb failed, and why."""
    receipt.update(verdict=verdict, exit_code=int(error.exit_code), error=str(error))


def leave(prefix: Prefix, receipt: Dict[str, Any], say: Say, *, best_effort: bool) -> Optional[DeviceError]:
    """Write the receipt into the prefix. What serves now goes into it.

    Args:
        best_effort: a failure is told and returned instead of raised.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    receipt["serving"] = prefix.current_id()
    try:
        with os_errors(f"the receipt cannot be written; the verdict is: {receipt['verdict']}"):
            path = write_receipt(prefix, receipt["verb"], receipt)
    except DeviceError as error:
        if not best_effort:  # what was done is done, but nothing may look complete that is not
            raise
        say(f"  note  {error.what}: {error.why}")
        return error
    say(f"  receipt {path}")
    return None
