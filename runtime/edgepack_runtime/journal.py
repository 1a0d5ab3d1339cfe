"""What a run of `predict` notes down for the next: for whom it ran, how much is good (standard library only)."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, NamedTuple

from edgepack_runtime.rows import Position

_FORMAT = 1


class Done(NamedTuple):
    """How far a run is: rows, bad ones among them, and where the input goes on."""

    rows: int = 0
    bad: int = 0
    position: Position = Position()


class Journal(NamedTuple):
    """`finished`: nothing is left to do but to rename. `input_sha256` is of the input before `done.position`."""

    identity: Mapping[str, Any]
    done: Done
    output_bytes: int
    errors_bytes: int
    input_sha256: str
    finished: bool

    def dump(self) -> bytes:
        document = {"journal_format": _FORMAT, **self._asdict()}
        document["done"] = [self.done.rows, self.done.bad, *self.done.position]
        return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8")

    @classmethod
    def parse(cls, raw: bytes) -> Journal:
        """Raises ValueError, KeyError or TypeError where `raw` is not what `dump` wrote."""
        document: Dict[str, Any] = json.loads(raw.decode("utf-8"))
        if document.pop("journal_format") != _FORMAT:
            raise ValueError("it was written by another version")
        rows, bad, offset, line = document.pop("done")
        return cls(done=Done(rows, bad, Position(offset, line)), **document)
