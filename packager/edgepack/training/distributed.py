"""Data-parallel training: what each of several processes (ranks) does together with the others.

Every rank has the whole network, computes the gradients of its share of a step's rows, and takes the step with the sum
of all. Not `paddle.DataParallel`: that averages the ranks' gradients in the backward pass of every part of a step,
where each rank's share may have another number of rows, of tokens that count, and of parts (a rank that runs out of
memory runs more of them), and a rank without a row would wait for ever.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
import paddle
import paddle.distributed as dist
from pydantic import TypeAdapter

from edgepack.errors import StageFailedError
from edgepack.util.text import counted

T = TypeVar("T")
GONE: Final = "training: another of its processes has ended"
LIMIT_SECONDS: Final = 1800.0  # as long as NCCL waits, which carries what GPUs exchange
_LOST: Final = (RuntimeError, ValueError, OSError)  # what Paddle raises when a connection is lost
_ARRIVED, _LEFT, _FAILED = "edgepack/arrived", "edgepack/left", "edgepack/failed"  # counters in Paddle's store
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.001, 0.05  # between two reads of a counter: waits take milliseconds or minutes
_BACKEND_VARIABLE: Final = "PADDLE_DISTRI_BACKEND"
# Set by the launcher for each process.
_LOCAL_RANK_VARIABLE: Final = "PADDLE_LOCAL_RANK"
_GPU_VARIABLE: Final = "FLAGS_selected_gpus"
_CPU: Final = "cpu"
_MOST_BYTES: Final = 2**28  # sent at once: the counts of the libraries below are 32 bits wide


class Barrier:
    """Where ranks on CPUs wait for each other before each exchange.

    Gloo, which carries what CPUs exchange, gives up after 30 seconds, and Paddle has no setting for that. Scoring on
    rank 0 alone, or a checkpoint on a slow disk, may take longer. So each rank counts itself in the store that Paddle
    keeps on rank 0, and waits until all have.

    Args:
        store: Paddle's `TCPStore`: its `add` adds to a named counter and returns the sum.
        count: number of ranks.
        limit_seconds: longest wait for the others.
    """

    def __init__(self, store: Any, count: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._store, self._count, self._limit_seconds = store, count, limit_seconds
        self._due = 0

    def wait(self) -> None:
        """Return when every rank has called this as often as this one.

        Raises:
            StageFailedError: another rank has failed, or does not arrive.
        """
        self._due += self._count
        self._add(_ARRIVED, 1)
        self._wait_until(_ARRIVED, self._due)

    def leave(self, *, last: bool) -> None:
        """Announce that this rank takes part no longer. `last` (rank 0, which keeps the store): wait for all others."""
        self._add(_LEFT, 1)
        if last:
            self._wait_until(_LEFT, self._count)

    def fail(self) -> None:
        """Announce that this rank ends with an error."""
        self._add(_FAILED, 1)

    def _wait_until(self, counter: str, number: int) -> None:
        started, pause = time.monotonic(), _SHORTEST_SECONDS
        while self._add(counter, 0) < number:
            if self._add(_FAILED, 0):
                raise _gone("it ended with an error of its own")
            if time.monotonic() - started > self._limit_seconds:
                raise _gone(f"one of them was not heard of for {counted(self._limit_seconds / 60, 'minute')}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _add(self, counter: str, number: int) -> int:
        with _others_there():
            return int(self._store.add(counter, number))


class Ranks:
    """One of `count` processes that train together. Collective methods are called by each, in the same order.

    Args:
        rank: number of this process, from 0.
        count: of the processes on all machines.
        local: its number among those of its machine, from 0.
        barrier: where they wait for each other before each exchange; None where the exchange itself waits.
    """

    def __init__(self, rank: int = 0, count: int = 1, local: int = 0, barrier: Barrier | None = None) -> None:
        self.rank, self.count = rank, count
        self._barrier = barrier
        self.is_first = rank == 0
        self.is_first_here = local == 0

    def share(self, rows: Sequence[T]) -> list[T]:
        """Those of a step's rows that are this rank's; none where there are too few."""
        return list(rows[self.rank :: self.count])

    def shares(self, rows: Sequence[T]) -> list[Sequence[T]]:
        """The shares of all ranks that have one."""
        return [rows[rank :: self.count] for rank in range(min(self.count, len(rows)))]

    def sum(self, tensor: Any) -> None:
        """Make `tensor` the sum of all ranks' tensors, with the same bits on each. Collective."""
        if self.count > 1:
            self._wait()
            with _others_there():
                dist.all_reduce(tensor)

    def of_first(self, kind: Any, make: Callable[[], T]) -> T:
        """The result of `make`, which is called on rank 0 alone. Collective.

        Args:
            kind: type of the result, which pydantic can write as JSON.
        """
        if self.count == 1:
            return make()
        adapter: TypeAdapter[T] = TypeAdapter(kind)
        return adapter.validate_json(self.bytes_of(0, adapter.dump_json(make()) if self.is_first else b""))

    def bytes_of(self, source: int, data: bytes) -> bytes:
        """The `data` of rank `source`; that of the others is ignored. Collective."""
        if self.count == 1:
            return data
        self._wait()
        size = paddle.to_tensor([len(data)], dtype="int64")
        with _others_there():
            dist.broadcast(size, src=source)
        length = int(size)
        whole = np.frombuffer(data, dtype=np.uint8) if self.rank == source else np.zeros(length, dtype=np.uint8)
        parts = []
        for start in range(0, length, _MOST_BYTES):
            part = paddle.to_tensor(whole[start : start + _MOST_BYTES])
            with _others_there():
                dist.broadcast(part, src=source)
            parts.append(part.numpy().tobytes())
        return b"".join(parts)

    def all_bytes(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, in their order. Collective."""
        return [self.bytes_of(source, data) for source in range(self.count)]

    def leave(self) -> None:
        """Exchange nothing more: the process may end. The first rank waits for all others to call this."""
        if self._barrier is not None:
            self._barrier.leave(last=self.is_first)

    def fail(self) -> None:
        """Let the others know that this rank ends with an error."""
        if self._barrier is not None:
            self._barrier.fail()

    def _wait(self) -> None:
        if self._barrier is not None:
            self._barrier.wait()

    def farthest(self, value: int) -> tuple[int, int]:
        """The rank with the largest value, the lowest of those, and its value. Collective."""
        values = [int(text) for text in self.all_bytes(str(value).encode())]
        return values.index(max(values)), max(values)

    def copy_first(self, tensors: Sequence[Any]) -> None:
        """Give each tensor the value that it has on rank 0. Collective."""
        if self.count > 1:
            self._wait()
            with _others_there():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)


ALONE: Final = Ranks()


def _gone(why: str) -> StageFailedError:
    return StageFailedError(
        GONE,
        why=why,
        fix="read the errors of the builds on the other machines, and start the build again on all of them",
    )


@contextmanager
def _others_there() -> Iterator[None]:
    """An exchange that fails because another process has ended is reported as that."""
    try:
        yield
    except _LOST as error:
        # Paddle puts its own call stack before what went wrong, and hints in brackets behind it.
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("[")]
        raise _gone(lines[-1] if lines else type(error).__name__) from error


def local_rank() -> int:
    """Number of this process among those of its machine, as the launcher set it."""
    return int(os.environ[_LOCAL_RANK_VARIABLE])


def join(device: str) -> Ranks:
    """Join the other processes that `paddle.distributed.launch` started, and select this one's device.

    Args:
        device: as the recipe has it; the launcher has given each process one of the GPUs.
    """
    on_gpu = device.startswith("gpu")
    os.environ[_BACKEND_VARIABLE] = "nccl" if on_gpu else "gloo"
    barrier = None
    if not on_gpu:
        barrier = Barrier(paddle.base.core.create_or_get_global_tcp_store(), dist.get_world_size())
        barrier.wait()  # processes may start minutes apart
    dist.init_parallel_env()
    paddle.set_device(f"gpu:{os.environ[_GPU_VARIABLE]}" if on_gpu else _CPU)
    return Ranks(dist.get_rank(), dist.get_world_size(), local_rank(), barrier)


class GradientSum:
    """Sums the gradients of a step over the ranks, in one message with the loss.

    The parameters that have a gradient on any rank in the first step have one in all: a rank without a row has none
    of its own, and one that no rank knows must stay without, or the optimizer would decay it.
    """

    def __init__(self, ranks: Ranks, parameters: Sequence[Any]) -> None:
        self._ranks, self._parameters = ranks, list(parameters)
        self._sizes = [math.prod(parameter.shape) for parameter in self._parameters]
        self._used: list[bool] | None = None

    def pack(self, loss: Any) -> Any:
        """This rank's gradients and `loss`, to be handed to `spread`. Not collective, and may run out of memory."""
        if self._ranks.count == 1:
            return loss
        parts = [
            paddle.zeros([size]) if parameter.grad is None else parameter.grad.flatten()
            for parameter, size in zip(self._parameters, self._sizes, strict=True)
        ]
        return paddle.concat([*parts, loss.reshape([1])])  # (all parameters + 1,)

    def spread(self, packed: Any) -> Any:
        """Put the sums of what all ranks packed in place of the gradients; the sum of the losses. Collective."""
        if self._ranks.count == 1:
            return packed
        with paddle.no_grad():
            self._ranks.sum(packed)
            *parts, loss = paddle.split(packed, [*self._sizes, 1])
            for parameter, part, used in zip(self._parameters, parts, self._all_used(), strict=True):
                if used:
                    parameter.grad = part.reshape(parameter.shape)
        return loss.reshape([])

    def _all_used(self) -> list[bool]:
        if self._used is None:
            flags = paddle.to_tensor([float(parameter.grad is not None) for parameter in self._parameters])
            self._ranks.sum(flags)
            self._used = [bool(flag) for flag in flags.numpy() > 0]
        return self._used
