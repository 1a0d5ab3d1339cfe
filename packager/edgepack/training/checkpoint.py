"""How far a training came, on disk: enough to end with the same weights as one that was never interrupted.

One file, replaced atomically: every array under a name of its own, and one JSON text for the rest. No pickle, and
a name for each state of the optimizer that holds in another process too: Paddle's own names count the layers that
the process has made so far.
"""

from __future__ import annotations

import json
import math
import os
import time
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from edgepack.errors import EnvironmentUnfitError

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
FILE: Final = "checkpoint.npz"
_POSITION: Final = "position.json"
_SCHEDULE: Final = "LR_Scheduler"  # in the states of Paddle's optimizers
# Writing may take at most a twentieth of the time, however large the model and slow the disk.
_COST: Final = 20
SECONDS_VARIABLE: Final = "EDGEPACK_CHECKPOINT_SECONDS"
_DEFAULT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Position:
    """Where a training stands, between two steps.

    `random` is the state of the batch sampler when the epoch began, as NumPy's bit generator gives it; the
    batches of the epoch follow from it, and the first `done` of them are behind. `parts` are those of a step, and
    `scale` is what mixed precision keeps of the scale of its loss.
    """

    step: int
    epoch: int
    done: int
    random: dict[str, Any]
    best_score: float
    best_epoch: int
    seconds: float
    parts: int
    scale: dict[str, float]


@dataclass(frozen=True)
class State:
    """A position with the weights, the optimizer's state and the best weights so far."""

    position: Position
    network: Arrays
    optimizer: Arrays
    best: Arrays


def interval_seconds() -> float:
    """Seconds between two checkpoints, as `EDGEPACK_CHECKPOINT_SECONDS` or the default has them.

    Raises:
        EnvironmentUnfitError: when the variable holds anything but a number from 0 on.
    """
    text = os.environ.get(SECONDS_VARIABLE, "").strip() or str(_DEFAULT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise EnvironmentUnfitError(
            f"{SECONDS_VARIABLE} is {text!r}", why="it takes a number of seconds, 0 or more", fix="unset it for 60"
        )
    return seconds


class Checkpoint:
    """The checkpoint of one training, in `folder`.

    Args:
        folder: made when the first checkpoint is written.
        seconds: between two of them, at least; `EDGEPACK_CHECKPOINT_SECONDS` if None, else 60.
    """

    def __init__(self, folder: Path, seconds: float | None = None) -> None:
        self._file = folder / FILE
        self._seconds = interval_seconds() if seconds is None else seconds
        self._written = time.monotonic()
        self._took = 0.0

    def is_due(self) -> bool:
        """Whether enough time has passed since the last one."""
        return time.monotonic() - self._written >= max(self._seconds, _COST * self._took)

    def write(self, state: State) -> None:
        """Replace the checkpoint; a kill or a power cut leaves the one before or this one.

        Raises:
            OSError: it cannot be written.
        """
        started = time.monotonic()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".tmp")
        position = np.frombuffer(json.dumps(asdict(state.position)).encode(), dtype=np.uint8)
        parts = {"network": state.network, "optimizer": state.optimizer, "best": state.best}
        arrays = {f"{part}/{name}": array for part, members in parts.items() for name, array in members.items()}
        try:
            with temporary.open("wb") as out:
                _write(out, {_POSITION: position, **arrays})
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(self._file)
        finally:
            temporary.unlink(missing_ok=True)
        self._written = time.monotonic()
        self._took = self._written - started

    def is_there(self) -> bool:
        """Whether there is one, readable or not."""
        return self._file.exists()

    def read(self) -> State | None:
        """The last checkpoint; None when there is none, or none that can be read."""
        try:
            return parse(self._file)
        except OSError:
            return None

    def content(self) -> bytes:
        """The file, for another process to `parse`. Raises OSError when there is none."""
        return self._file.read_bytes()


def parse(source: Path | IO[bytes]) -> State | None:
    """What a checkpoint's file says; None when it is damaged."""
    try:
        with np.load(source, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}  # every array is checked against its CRC
        position = Position(**json.loads(arrays.pop(_POSITION).tobytes()))
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    parts: dict[str, Arrays] = {"network": {}, "optimizer": {}, "best": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array
    return State(position, **parts)


def _write(out: IO[bytes], arrays: Arrays) -> None:
    """What `np.savez` writes; that leaves its archive open when the disk is full, and complains once more later."""
    write_array: Any = np.lib.format.write_array  # numpy gives it no types
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array, allow_pickle=False)


def optimizer_arrays(optimizer: Any) -> Arrays:
    """The optimizer's tensors, each named `<index of its parameter>/<what it is>`."""
    found: Arrays = {}
    names = _names(optimizer)
    for key, value in optimizer.state_dict().items():
        if hasattr(value, "numpy"):
            found[_stable(key, names)] = value.numpy().copy()
    return found


def restore_optimizer(optimizer: Any, arrays: Mapping[str, Array], tensor: Any) -> None:
    """Put `optimizer_arrays` back, under the names that this process gives; `tensor` makes a Paddle tensor."""
    names = {index: name for name, index in _names(optimizer).items()}
    # Lane 2.6 does not take a state without that of the schedule, which follows from the step alone.
    state = {_SCHEDULE: optimizer.state_dict()[_SCHEDULE]}
    for key, value in arrays.items():
        index, _, rest = key.partition("/")
        made = tensor(value)
        made.name = f"{names[int(index)]}_{rest}"
        state[made.name] = made
    optimizer.set_state_dict(state)


def _names(optimizer: Any) -> dict[str, int]:
    return {parameter.name: index for index, parameter in enumerate(optimizer._parameter_list)}


def _stable(key: str, names: Mapping[str, int]) -> str:
    # `linear_1.w_0` begins `linear_1.w_0_moment1_0`, and `linear_1.w_01` must not: the longest one is meant.
    name = max((name for name in names if key.startswith(f"{name}_")), key=len)
    return f"{names[name]}/{key[len(name) + 1 :]}"
