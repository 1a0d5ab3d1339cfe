"""Data-parallel training: collective operations of several processes (ranks), and the sum of their gradients.

Every rank holds the whole network, computes the gradients of its share of a step's rows, and steps with the sum of all.
`paddle.DataParallel` is not used: it averages gradients in each backward pass, but shares differ in rows, counted
tokens and parts (a rank that runs out of memory runs more parts), and a rank without a row would wait forever.
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
LIMIT_SECONDS: Final = 1800.0  # the timeout of NCCL, which connects GPUs
_LOST: Final = (RuntimeError, ValueError, OSError)  # Paddle's errors for a lost connection
_ARRIVED, _LEFT, _FAILED = "edgepack/arrived", "edgepack/left", "edgepack/failed"  # counters in Paddle's store
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.001, 0.05  # between two reads of a counter
_BACKEND_VARIABLE: Final = "PADDLE_DISTRI_BACKEND"
# Set by the launcher for each process.
_LOCAL_RANK_VARIABLE: Final = "PADDLE_LOCAL_RANK"
_GPU_VARIABLE: Final = "FLAGS_selected_gpus"
_CPU: Final = "cpu"
_MOST_BYTES: Final = 2**28  # per message: Gloo and NCCL count in 32 bits


class Barrier:
    """Barrier of CPU ranks before each collective operation.

    Gloo times out after 30 seconds, and Paddle has no setting for it. Scoring on rank 0, or a checkpoint on a slow
    disk, may take longer. So each rank increments a counter in Paddle's store on rank 0, and waits until all have.

    Args:
        store: Paddle's `TCPStore`: its `add` adds to a named counter and returns the sum.
        count: number of ranks.
        limit_seconds: longest wait for the others.
    """

    def __init__(self, store: Any, count: int, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._store, self._count, self._limit_seconds = store, count, limit_seconds
        self._due = 0

    def wait(self) -> None:
        """Return when every rank has called this as often as this rank.

        Raises:
            StageFailedError: another rank failed, or did not arrive in time.
        """
        self._due += self._count
        self._add(_ARRIVED, 1)
        self._wait_until(_ARRIVED, self._due)

    def leave(self, *, last: bool) -> None:
        """Announce that this rank has finished. With `last` (rank 0, which holds the store), wait for all others."""
        self._add(_LEFT, 1)
        if last:
            self._wait_until(_LEFT, self._count)

    def fail(self) -> None:
        """Announce that this rank failed."""
        self._add(_FAILED, 1)

    def _wait_until(self, counter: str, number: int) -> None:
        started, pause = time.monotonic(), _SHORTEST_SECONDS
        while self._add(counter, 0) < number:
            if self._add(_FAILED, 0):
                raise _gone("it ended with its own error")
            if time.monotonic() - started > self._limit_seconds:
                raise _gone(f"a process did not respond for {counted(self._limit_seconds / 60, 'minute')}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

    def _add(self, counter: str, number: int) -> int:
        with _lost_connections():
            return int(self._store.add(counter, number))


class Ranks:
    """One of `count` processes that train together. Every rank calls the collective methods in the same order.

    Args:
        rank: number of this process, from 0.
        count: number of processes on all machines.
        local: number of this process on its machine, from 0.
        barrier: barrier before each collective operation; None if the operation itself waits.
    """

    def __init__(self, rank: int = 0, count: int = 1, local: int = 0, barrier: Barrier | None = None) -> None:
        self.rank, self.count = rank, count
        self._barrier = barrier
        self.is_first = rank == 0
        self.is_first_here = local == 0

    def share(self, rows: Sequence[T]) -> list[T]:
        """This rank's share of a step's rows; empty if there are fewer rows than ranks."""
        return list(rows[self.rank :: self.count])

    def shares(self, rows: Sequence[T]) -> list[Sequence[T]]:
        """The shares of all ranks that have rows."""
        return [rows[rank :: self.count] for rank in range(min(self.count, len(rows)))]

    def sum(self, tensor: Any) -> None:
        """Replace `tensor` by the sum over all ranks, with the same bits on each. Collective."""
        if self.count > 1:
            self._wait()
            with _lost_connections():
                dist.all_reduce(tensor)

    def of_first(self, kind: Any, make: Callable[[], T]) -> T:
        """The result of `make`, which only rank 0 calls. Collective.

        Args:
            kind: type of the result, for pydantic's JSON.
        """
        if self.count == 1:
            return make()
        handler: TypeAdapter[T] = TypeAdapter(kind)
        return handler.validate_json(self.bytes_of(0, handler.dump_json(make()) if self.is_first else b""))

    def bytes_of(self, source: int, data: bytes) -> bytes:
        """The `data` of rank `source`. Collective."""
        if self.count == 1:
            return data
        self._wait()
        size = paddle.to_tensor([len(data)], dtype="int64")
        with _lost_connections():
            dist.broadcast(size, src=source)
        length = int(size)
        whole = np.frombuffer(data, dtype=np.uint8) if self.rank == source else np.zeros(length, dtype=np.uint8)
        parts = []
        for start in range(0, length, _MOST_BYTES):
            part = paddle.to_tensor(whole[start : start + _MOST_BYTES])
            with _lost_connections():
                dist.broadcast(part, src=source)
            parts.append(part.numpy().tobytes())
        return b"".join(parts)

    def all_bytes(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, in order. Collective."""
        return [self.bytes_of(source, data) for source in range(self.count)]

    def leave(self) -> None:
        """End the collective operations. The first rank waits until all others have called this."""
        if self._barrier is not None:
            self._barrier.leave(last=self.is_first)

    def fail(self) -> None:
        """Announce to the other ranks that this rank failed."""
        if self._barrier is not None:
            self._barrier.fail()

    def _wait(self) -> None:
        if self._barrier is not None:
            self._barrier.wait()

    def farthest(self, value: int) -> tuple[int, int]:
        """The lowest rank that has the largest value, and this value. Collective."""
        values = [int(text) for text in self.all_bytes(str(value).encode())]
        return values.index(max(values)), max(values)

    def copy_first(self, tensors: Sequence[Any]) -> None:
        """Set each tensor to its value on rank 0. Collective."""
        if self.count > 1:
            self._wait()
            with _lost_connections():
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
def _lost_connections() -> Iterator[None]:
    """Report a lost connection as the end of another process."""
    try:
        yield
    except _LOST as error:
        # Paddle writes its call stack before the message, and hints in brackets after it.
        lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("[")]
        raise _gone(lines[-1] if lines else type(error).__name__) from error


def local_rank() -> int:
    """Number of this process on its machine, from the launcher's environment variable."""
    return int(os.environ[_LOCAL_RANK_VARIABLE])


def join(device: str) -> Ranks:
    """Join the processes that `paddle.distributed.launch` started, and select the device of this one.

    Args:
        device: the recipe's value. The launcher assigns each process one of the GPUs.
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

    A parameter with a gradient on any rank in the first step gets one on all ranks, since a rank without rows has no
    gradients. A parameter without a gradient on every rank stays without, or the optimizer would decay it.
    """

    def __init__(self, ranks: Ranks, parameters: Sequence[Any]) -> None:
        self._ranks, self._parameters = ranks, list(parameters)
        self._sizes = [math.prod(parameter.shape) for parameter in self._parameters]
        self._used: list[bool] | None = None

    def pack(self, loss: Any) -> Any:
        """This rank's gradients and `loss` in one tensor, for `spread`. Not collective; may run out of memory."""
        if self._ranks.count == 1:
            return loss
        parts = [
            paddle.zeros([size]) if parameter.grad is None else parameter.grad.flatten()
            for parameter, size in zip(self._parameters, self._sizes, strict=True)
        ]
        return paddle.concat([*parts, loss.reshape([1])])  # (all parameters + 1,)

    def spread(self, packed: Any) -> Any:
        """Set the gradients to the sums over all ranks; return the sum of the losses. Collective."""
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
