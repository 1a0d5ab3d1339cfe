"""Tuning: the fastest session settings on this device, measured by `tune` and stored beside the release.

`model.json` holds settings for any device; a tuning holds threads, graph optimizers and spinning for this one.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from edgepack_runtime.errors import BundleInvalidError, StageFailedError
from edgepack_runtime.messages import message
from edgepack_runtime.schema import fields
from edgepack_runtime.schema.fields import Exact, field
from edgepack_runtime.schema.maxima import MAX_THREADS
from edgepack_runtime.util.fs import fsync_folder, make_folder, read_regular, write_atomic

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Tuning(Exact):
    """Settings of a session. The defaults apply without a measurement."""

    threads: int = field(default=1, ge=1, le=MAX_THREADS)
    spinning: bool = False  # idle threads wait in a loop: faster, but each keeps a core busy
    disabled_optimizers: Optional[Tuple[str, ...]] = None  # ONNX Runtime's; None: as `model.json` says


def dump(tuning: Tuning, measured: Mapping[str, Any]) -> bytes:
    """Bytes of a tuning file with `tuning` and, for readers, what was `measured`."""
    document = {"tuning_format": FORMAT, **dataclasses.asdict(tuning), "measured": measured}
    return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode("utf-8")


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the output of the verb `tune` durably into the file `path`.

    Raises:
        StageFailedError: `result` is not a tuning.
        OSError: it cannot be written.
    """
    try:
        raw = dump(fields.parse(Tuning, result["tuning"]), result["measured"])
    except (KeyError, TypeError, ValueError) as error:
        raise StageFailedError(
            "the verb `tune` did not print a tuning", why=f"{type(error).__name__}: {error}"
        ) from error
    for made in make_folder(path.parent):
        fsync_folder(made.parent)
    write_atomic(path, raw)


def describe(tuning: Mapping[str, Any]) -> str:
    """The fields of a `Tuning` in one line."""
    disabled = tuning["disabled_optimizers"]
    used = message("tuned.all_but", names=list(disabled)) if disabled else message("tuned.all")
    used = message("tuned.as_set") if disabled is None else used
    how = message("tuned.spinning" if tuning["spinning"] else "tuned.threads", n=tuning["threads"])
    return message("tuned.is", threads=how, used=used)


def read(path: Path) -> Optional[Tuning]:
    """The tuning in the file `path`; None if the file does not exist.

    Raises:
        BundleInvalidError: it is damaged or cannot be read.
    """
    try:
        return _parse(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BundleInvalidError(
            f"{path} is damaged", why=f"{type(error).__name__}: {error}", fix="run `tune` again"
        ) from error


def _parse(raw: bytes) -> Tuning:
    document: Dict[str, Any] = json.loads(raw.decode("utf-8"))
    if document["tuning_format"] != FORMAT:
        raise ValueError("it was written by another version")
    return fields.parse(Tuning, document)
