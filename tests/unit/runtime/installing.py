"""What tests of installs share: the fixtures' types, a log that nobody reads, and what an install left behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from edgepack_runtime.bundle.manifest import release_id
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.install import receipts
from edgepack_runtime.install.prefix import Prefix, State, read_state

Device = Callable[..., "subprocess.CompletedProcess[str]"]
MakeBundle = Callable[..., Path]


def silent(text: str) -> None:
    """Nobody listens."""


def full_disk(*args: object) -> NoReturn:
    """Stands in for a call that writes."""
    raise OSError(28, "No space left on device")


def id_of(bundle: Path) -> str:
    """What the release that a bundle holds is called on a device."""
    return release_id(*verify_file(bundle))


def state_of(prefix: Prefix) -> State:
    """The state of a prefix that has one."""
    found = read_state(prefix)
    assert found is not None
    return found


def last_receipt(prefix: Prefix, verb: str) -> dict[str, Any]:
    """The newest receipt of a verb, of which there is one."""
    found = receipts.last_receipt(prefix, verb)
    assert found is not None
    return found
