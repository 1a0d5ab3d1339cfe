"""Answers requests on a device that a gate is run on over SSH (sent there; standard library, Python >= 3.8).

One JSON object a line on standard input, with the bytes that it announces behind it; answers are JSON objects, a line
each, on standard output. A request ends with `{"ok": {...}}` or `{"error": {...}}`; between come `{"line": "..."}`, for
people, and `{"got": N}`, bytes that arrived. Both ends say now and then that they are there: `{"alive": true}`, and an
empty line from whoever waits for an answer. When the input ends, or nothing comes for too long because the network is
gone, whatever runs is ended, and so is this.

Nothing of a bundle runs before its manifest was accepted by whom this device trusts, the device was found to fit, and
every byte of the release was hashed against that manifest.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgepack.targets import remote_run
from edgepack.targets.remote_input import GoneError, Input
from edgepack.targets.remote_store import Store
from edgepack_runtime import alone, device, doctor, isolated, trust
from edgepack_runtime import manifest as contract
from edgepack_runtime.durable import unfit
from edgepack_runtime.errors import EdgepackError, ExitCode, UsageError
from edgepack_runtime.state import Prefix, default_prefix, read_state

MAX_ROWS_BYTES = 256 * 1024 * 1024
ALIVE_EVERY_S = 10.0  # whoever waits for us hears something
_PIECE_BYTES = 1 << 16
_TOLD_EVERY_S = 0.25
# Of doctor's checks, those that say that it is another kind of device; the rest is about the state it is in.
OF_ANOTHER_KIND = ("system", "libc", "python", "gpu")


class MismatchedError(EdgepackError):
    """This is not the device, or not the release, that was asked for."""

    exit_code = ExitCode.TARGET_UNREACHABLE


class Conversation:
    """One connection's requests: `look`, `put` for each missing file, `check`, `gate`, `tidy`; or `installed` alone."""

    def __init__(self, source: Input, sink: BinaryIO) -> None:
        self._source, self._sink = source, sink
        self._sending = threading.Lock()
        self._store: Optional[Store] = None
        self._held = contextlib.ExitStack()
        source.before_end = self._held.close
        self._got = 0
        self._told_at = 0.0

    def run(self) -> None:
        """Answer until standard input ends, or something fails."""
        verbs: Dict[str, Callable[[Mapping[str, Any]], Dict[str, Any]]] = {
            "look": self._look,
            "put": self._put,
            "check": self._check,
            "gate": self._gate,
            "tidy": self._tidy,
            "installed": self._installed,
        }
        with self._held, contextlib.suppress(GoneError):
            for line in filter(bytes.strip, iter(self._source.readline, b"")):
                request = json.loads(line.decode("utf-8"))
                try:
                    answer = verbs[request["do"]](request)
                except EdgepackError as error:
                    return self._fail(error)  # what may follow on the input is not read
                except OSError as error:
                    where = "" if self._store is None else f" at what is kept in {self._store.prefix.root}"
                    return self._fail(unfit(f"the device failed{where}", error))
                if request["do"] != "put":
                    self.send({"ok": answer})
        return None

    def say_alive(self) -> None:
        """Say now and then that this program runs, whatever else it does, until nobody hears it."""
        with contextlib.suppress(GoneError):
            while True:
                time.sleep(ALIVE_EVERY_S)
                self.send({"alive": True})

    def send(self, answer: Mapping[str, Any]) -> None:
        """One line to whoever asked.

        Raises:
            GoneError: nobody reads it.
        """
        with self._sending:
            try:
                self._sink.write(json.dumps(answer).encode("ascii") + b"\n")
                self._sink.flush()
            except OSError as error:
                raise GoneError(str(error)) from error

    def _fail(self, error: EdgepackError) -> None:
        told = {"exit_code": int(error.exit_code), "what": error.what, "why": error.why, "fix": error.fix}
        self.send({"error": told})

    def _look(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """Whether the bundle may run here, where it will lie, and which of its files are missing there."""
        packed = self._payload(request["manifest_bytes"], contract.MAX_MANIFEST_BYTES)
        raw = zlib.decompressobj().decompress(packed, contract.MAX_MANIFEST_BYTES + 1)  # too much of it is no manifest
        signed = request["signature_bytes"]
        signature = None if signed is None else self._payload(signed, contract.MAX_SIGNATURE_BYTES)
        root = _prefix(request["prefix"]) or _default_prefix(request["name"])
        proof = trust.require(trust.read_pins(root), request["bundle"], raw, signature)
        manifest = contract.parse(raw)  # not before it is known from whom it is
        if manifest.name != request["name"]:
            raise UsageError(f"the bundle's name is {manifest.name}, and not {request['name']}")
        _require_fit(manifest)
        others = [] if root is None else [Prefix(root).releases]
        waiting = self._waiting()
        self._alone(waiting)
        self._store = Store.open(request["cache"], manifest, raw, signature, others)
        self._held.enter_context(self._store.locked(lambda: waiting("")))
        # However this ends: gates that are always interrupted would fill the disk.
        self._held.callback(self._sweep, everything=request["clean"])
        missing = self._store.stage(others)
        if self._store.removed:
            self.send({"line": f"removed there, for room: {', '.join(self._store.removed)}"})
        return {
            "device": _facts(),
            "place": str(self._store.prefix.root),
            "signature": proof.as_json(),
            "missing": missing,
            "begun": [[number, *part] for number, part in self._store.begun(missing).items()],
        }

    def _put(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._opened().receive(
            request["put"], request["method"], request["size"], request["offset"], self._source.read, self._arrived
        )
        return {}

    def _check(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        return {"missing": self._opened().check()}

    def _gate(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        options, rows = self._rows(request)
        verb = ["gate", "--json", "--bundle-bytes", str(request["bundle_bytes"]), *options]
        return self._ran(isolated.command(self._opened().release, verb), rows)

    def _ran(self, line: Sequence[str], rows: Optional[bytes]) -> Dict[str, Any]:
        return remote_run.run(line, rows, self._source, lambda text: self.send({"line": text}))

    def _rows(self, request: Mapping[str, Any]) -> Tuple[List[str], Optional[bytes]]:
        """Options of `gate` about golden rows that stay at home, and those rows: its standard input, and no file."""
        if request["rows_bytes"] is None:
            return ["--without-rows"] if request["without_rows"] else [], None
        return ["--rows", "/dev/stdin"], self._payload(request["rows_bytes"], MAX_ROWS_BYTES)

    def _tidy(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        self._opened().tidy(everything=request["everything"])
        return {}

    def _installed(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """Gate the release that serves, by its own launcher. It is the one that was named, if one was."""
        options, rows = self._rows(request)
        root = _prefix(request["prefix"]) or (default_prefix(request["name"]) if request["name"] else None)
        if root is None:
            raise UsageError("which install is meant?", fix="name it: ssh://HOST/PREFIX, or give its bundle")
        prefix = Prefix(root)
        serving, state = prefix.current_id(), read_state(prefix)
        if serving is None or state is None:
            raise MismatchedError(f"nothing is installed in {root}", fix="install it there, or name another folder")
        if request["release_id"] not in (None, serving):
            raise MismatchedError(
                f"{serving} serves in {root}",
                why=f"{request['release_id']} was asked for",
                fix="install that one first, or leave --installed away to gate it beside the one that serves",
            )
        self.send({"line": f"{serving} serves in {root}"})
        self._alone(self._waiting())
        if prefix.current_id() != serving:
            raise MismatchedError(f"{root} was changed while another gate was waited for", fix="try again")
        return {**self._ran([str(prefix.bin / state.name), "gate", "--json", *options], rows), "device": _facts()}

    def _sweep(self, *, everything: bool) -> None:
        """Remove what is old, with the lock still held. What is to be said of a disk that fails was said before."""
        with contextlib.suppress(OSError):
            self._opened().tidy(everything=everything)

    def _opened(self) -> Store:
        if self._store is None:
            raise UsageError("it was not looked first")
        return self._store

    def _payload(self, count: int, most: int) -> bytes:
        if not 0 <= count <= most:
            raise UsageError(f"{count} bytes are more than is read")
        data = bytearray()
        while len(data) < count:  # piece by piece: whoever sends much over a slow link is not silent
            piece = self._source.read(min(_PIECE_BYTES, count - len(data)))
            if not piece:
                raise GoneError("the other end closed")
            data += piece
        return bytes(data)

    def _arrived(self, count: int) -> None:
        self._got += count
        if time.monotonic() - self._told_at >= _TOLD_EVERY_S:
            self._told_at = time.monotonic()
            self.send({"got": self._got})

    def _alone(self, waiting: alone.Waiting) -> None:
        """Be the only gate on this device from here on, as far as one can be that is no more than a user of it."""
        found = self._held.enter_context(alone.held(waiting))
        if found.unfit and not found.folders:
            why = "; ".join(found.unfit)
            self.send({"line": f"note: gates of other users here are not waited for, and disturb times: {why}"})

    def _waiting(self) -> alone.Waiting:
        """Ends with whoever asked."""

        def pause() -> None:
            if self._source.is_over(remote_run.LOOK_S):
                raise GoneError("the other end closed")

        return alone.patience(lambda text: self.send({"line": text}), pause)


def _require_fit(manifest: contract.Manifest) -> None:
    """Raise MismatchedError on another kind of device, EnvironmentUnfitError on one that lacks something."""
    failed = [check for check in doctor.check_device(manifest) if not check.ok]
    other = [check for check in failed if check.check in OF_ANOTHER_KIND]
    if other:
        fixes = [check.fix for check in other if check.fix]
        if any(check.check == "python" for check in other):
            fixes.append(f"or name its Python {manifest.target.python} with --remote-python")
        raise MismatchedError(
            f"the device is not of target {manifest.target.profile}: {'; '.join(check.what for check in other)}",
            why="; ".join(dict.fromkeys(check.why for check in other if check.why)),
            fix="; ".join(dict.fromkeys(fixes)),
        )
    doctor.require(failed)


def _prefix(folder: Optional[str]) -> Optional[Path]:
    """The folder as it is called here: `~/` is this user's."""
    return Path(os.path.expanduser(folder)).absolute() if folder else None  # noqa: PTH111 - the other one raises


def _default_prefix(name: str) -> Optional[Path]:
    try:
        return default_prefix(name)
    except UsageError:  # no HOME: nothing is installed where an install would go by itself
        return None


def _facts() -> Dict[str, Any]:
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": "{} {}".format(*device.libc()).strip(),
        "python": platform.python_version(),
        "cpu_model": device.cpu_model(),
        "board": device.board(),
    }


def main(nonce: str, silent_s: float) -> int:
    """Say `nonce`, then answer requests. Whatever else writes to standard output here writes to standard error.

    Args:
        silent_s: seconds after which somebody who says nothing is gone.
    """
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sink.write(f"\n{nonce}\n".encode("ascii"))
    sink.flush()
    conversation = Conversation(Input(sys.stdin.buffer, silent_s), sink)
    threading.Thread(target=conversation.say_alive, daemon=True).start()
    try:
        conversation.run()
    except Exception as error:  # noqa: BLE001 - nobody is there to see a traceback
        with contextlib.suppress(GoneError):
            why = f"{type(error).__name__}: {error}"
            conversation.send({"error": {"exit_code": 1, "what": "the program on the device broke down", "why": why}})
        return 1
    return 0
