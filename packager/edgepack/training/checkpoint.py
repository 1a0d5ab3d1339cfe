"""Checkpoint of a training. A resumed training ends with the same weights as an uninterrupted one.

A checkpoint is one file, replaced atomically: the arrays, and the position as JSON. It holds no pickle. Optimizer
states are named by the index of their parameter, because Paddle's names count the layers of a process.
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
from edgepack.training.scalars import Series

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
FILE: Final = "checkpoint.npz"
_POSITION: Final = "position.json"
_SCHEDULE: Final = "LR_Scheduler"  # in the states of Paddle's optimizers
_COST: Final = 20  # writing takes at most 1/20 of the time, on any disk
SECONDS_VARIABLE: Final = "EDGEPACK_CHECKPOINT_SECONDS"
_DEFAULT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Position:
    """Position of a training between two steps.

    Attributes:
        done: finished steps of the epoch.
        random: state of the batch sampler at the start of the epoch (NumPy's bit generator).
        parts: parts in which a step is run.
        scale: state of the loss scale of mixed precision.
        scalars: the series of figures so far.
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
    scalars: Series


@dataclass(frozen=True)
class State:
    """A position with the weights, the optimizer's state and the best weights so far."""

    position: Position
    network: Arrays
    optimizer: Arrays
    best: Arrays


def interval_seconds() -> float:
    """Seconds between two checkpoints: `EDGEPACK_CHECKPOINT_SECONDS`, or 60.

    Raises:
        EnvironmentUnfitError: the variable is not a number of 0 or more.
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
        folder: created with the first checkpoint.
        seconds: least time between two checkpoints; `interval_seconds()` if None.
    """

    def __init__(self, folder: Path, seconds: float | None = None) -> None:
        self._file = folder / FILE
        self._seconds = interval_seconds() if seconds is None else seconds
        self._written = time.monotonic()
        self._took = 0.0

    def is_due(self) -> bool:
        """Whether it is time to write a checkpoint."""
        return time.monotonic() - self._written >= max(self._seconds, _COST * self._took)

    def write(self, state: State) -> None:
        """Replace the checkpoint. A kill or power cut leaves the old or the new one.

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
        """Whether a checkpoint exists, readable or not."""
        return self._file.exists()

    def read(self) -> State | None:
        """The last checkpoint; None if there is none, or it cannot be read."""
        try:
            return parse(self._file)
        except OSError:
            return None

    def content(self) -> bytes:
        """The bytes of the file, for `parse` in another process. Raises OSError if there is none."""
        return self._file.read_bytes()


def parse(source: Path | IO[bytes]) -> State | None:
    """The state in a checkpoint file; None if it is damaged."""
    try:
        with np.load(source, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}  # checks the CRC of every array
        position = Position(**json.loads(arrays.pop(_POSITION).tobytes()))
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    parts: dict[str, Arrays] = {"network": {}, "optimizer": {}, "best": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = array
    return State(position, **parts)


def _write(out: IO[bytes], arrays: Arrays) -> None:
    """Write an npz file. `np.savez` leaves its archive open on a full disk, and raises a second error later."""
    write_array: Any = np.lib.format.write_array  # NumPy does not type it
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array, allow_pickle=False)


def optimizer_arrays(optimizer: Any) -> Arrays:
    """The optimizer's tensors, named `<index of the parameter>/<state>`."""
    found: Arrays = {}
    names = _names(optimizer)
    for key, value in optimizer.state_dict().items():
        if hasattr(value, "numpy"):
            found[_stable(key, names)] = value.numpy().copy()
    return found


def restore_optimizer(optimizer: Any, arrays: Mapping[str, Array], tensor: Any) -> None:
    """Restore `optimizer_arrays` under the names of this process. `tensor` converts an array to a Paddle tensor."""
    names = {index: name for name, index in _names(optimizer).items()}
    # Paddle 2.6 requires the state of the schedule, which depends on the step only.
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
    # The longest prefix: `linear_1.w_0` is a prefix of `linear_1.w_0_moment1_0`.
    name = max((name for name in names if key.startswith(f"{name}_")), key=len)
    return f"{names[name]}/{key[len(name) + 1 :]}"
