"""The processes that train one network together, and what they tell each other.

Data parallel: every rank has the whole network, computes the gradients of its share of a step's rows, and takes the
step with the sum of all. Not `paddle.DataParallel`: that averages the ranks' gradients in the backward pass of every
part of a step, where each rank's share may have another number of rows, of tokens that count, and of parts (a rank
that runs out of memory runs more of them), and a rank without a row would wait for ever.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
import paddle
import paddle.distributed as dist
from pydantic import TypeAdapter

from edgepack.paddle_ml.meeting import LOST, Meeting, keep_beating, lost

T = TypeVar("T")
BACKEND_VARIABLE: Final = "PADDLE_DISTRI_BACKEND"
# What the launcher tells each process that it starts.
_COUNT_VARIABLE: Final = "PADDLE_TRAINERS_NUM"
_STORE_VARIABLE: Final = "PADDLE_MASTER"
_LOCAL_RANK_VARIABLE: Final = "PADDLE_LOCAL_RANK"
_GPU_VARIABLE: Final = "FLAGS_selected_gpus"
_CPU: Final = "cpu"
_MOST_BYTES: Final = 2**28  # sent at once: the counts of the libraries below are 32 bits wide


class Ranks:
    """What one of `count` processes knows of all of them. Collective calls are made by each, in the same order.

    Args:
        rank: number of this process, from 0.
        count: of the processes on all machines.
        local: its number among those of its machine, from 0.
        meeting: where they wait for each other before each exchange; None where the exchange itself waits.
        aside: told what concerns this process alone; None where its progress is told that too.
    """

    def __init__(
        self,
        rank: int = 0,
        count: int = 1,
        local: int = 0,
        meeting: Meeting | None = None,
        aside: Callable[[str], None] | None = None,
    ) -> None:
        self.rank, self.count, self.aside = rank, count, aside
        self._meeting = meeting
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
            self.meet()
            with _others_there():
                dist.all_reduce(tensor)

    def of_first(self, kind: Any, make: Callable[[], T]) -> T:
        """What `make` says on rank 0, told to all; it is called nowhere else. Collective.

        Args:
            kind: type of what is made, as pydantic can write it down as JSON.
        """
        if self.count == 1:
            return make()
        adapter: TypeAdapter[T] = TypeAdapter(kind)
        told = self.bytes_of(0, adapter.dump_json(make()) if self.is_first else b"")
        return adapter.validate_json(told)

    def bytes_of(self, source: int, data: bytes) -> bytes:
        """The `data` of rank `source`; that of the others is not looked at. Collective."""
        if self.count == 1:
            return data
        self.meet()
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

    def meet(self) -> None:
        """Wait until every rank is here. Collective."""
        if self._meeting is not None:
            self._meeting.wait()

    def leave(self) -> None:
        """Exchange nothing more: the process may end. The first rank waits for all others to say so."""
        if self._meeting is not None:
            self._meeting.leave(last=self.is_first)

    def end(self) -> None:
        """Tell the others that this rank ends with an error."""
        if self._meeting is not None:
            self._meeting.end()

    def farthest(self, value: int) -> tuple[int, int]:
        """The rank with the largest value, the lowest of those, and its value. Collective."""
        values = [int(told) for told in self.all_bytes(str(value).encode())]
        return values.index(max(values)), max(values)

    def copy_first(self, tensors: Sequence[Any]) -> None:
        """Give each tensor the value that it has on rank 0. Collective."""
        if self.count > 1:
            self.meet()
            with _others_there():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)


ALONE: Final = Ranks()


@contextmanager
def _others_there() -> Iterator[None]:
    """An exchange that ends because another process has ended says so."""
    try:
        yield
    except LOST as error:
        raise lost(error) from error


def join(place: str, aside: Callable[[str], None] | None = None) -> Ranks:
    """Meet the others that `paddle.distributed.launch` started, and compute on `place` (cpu, gpu:N) from now on."""
    meeting = None
    if place == _CPU:
        os.environ[BACKEND_VARIABLE] = "gloo"
        count = int(os.environ[_COUNT_VARIABLE])
        core = paddle.base.core
        meeting = Meeting(core.create_or_get_global_tcp_store(), count)
        meeting.wait()
        host, _, port = os.environ[_STORE_VARIABLE].rpartition(":")
        keep_beating(core.TCPStore(host, int(port), False, 0), dist.get_rank())
    else:
        os.environ[BACKEND_VARIABLE] = "nccl"
    dist.init_parallel_env()
    paddle.set_device(place)
    return Ranks(dist.get_rank(), dist.get_world_size(), local_rank(), meeting, aside)


def local_rank() -> int:
    """Number of this process among those of its machine, as the launcher gave it."""
    return int(os.environ[_LOCAL_RANK_VARIABLE])


def own_place(wanted: str) -> str:
    """What this rank computes on, of what the recipe's `device` wants: the launcher gives each rank a GPU."""
    return f"gpu:{os.environ[_GPU_VARIABLE]}" if wanted.startswith("gpu") else _CPU


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
