"""Dynamic batching: texts that wait in the queue at the same time are predicted as one batch.

If a worker is idle, a text runs at once, without waiting for others. While all workers are busy, texts queue up and
form the next batch. Each batch contains the oldest text, so that none starves, and the texts nearest to it in length,
as long as padding stays cheap.

All methods are called from the event loop's thread; the predictor runs in worker threads.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Coroutine, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from edgepack_runtime.inference.loaded_model import Split, Wanted
from edgepack_runtime.serve import http_errors
from edgepack_runtime.tasks.task import Prediction
from edgepack_runtime.util.texts import Item, length

Run = Callable[[Sequence[Item], Wanted], Tuple[List[Prediction], Split]]
Gone = Callable[[], Coroutine[Any, Any, None]]
PADDING = 1.25  # maximum size of a padded batch, as a multiple of its texts
_SLACK = 16  # characters of padding that are always allowed: they cost less than a separate run
_WINDOW = 8  # batches: how far down the queue texts of similar length are searched
_UNWATCHED_S = 0.05  # wait before the client's connection is watched
_SMOOTHING = 0.1  # weight of the newest batch in the moving average of the time per text


class Batch(NamedTuple):
    """One run of the predictor: its time and number of texts."""

    split: Split
    size: int


class Answered(NamedTuple):
    """A prediction, its batch, and the time that its text waited in the queue."""

    prediction: Prediction
    batch: Batch
    queue_ms: float


_Outcome = Union[Tuple[Prediction, Batch], Exception]


class _Waiting:
    """A text in the queue. `length` is in characters, as far as the model reads."""

    __slots__ = ("arrived", "future", "item", "length", "started", "to_linger")

    def __init__(self, item: Item, length: int, arrived: float, to_linger: bool, future: asyncio.Future[Answered]):
        self.item = item
        self.length = length
        self.arrived = arrived
        self.to_linger = to_linger
        self.future = future
        self.started = arrived


class Batcher:
    """Queue and batches of texts from many requests.

    Args:
        run: predicts a batch, in its order; called from `workers` threads. Its second argument says whether anybody
            still waits for an answer of the batch.
        max_batch: maximum number of texts in a batch; 1 turns batching off.
        max_wait_ms: maximum wait for a full batch, from the arrival of the oldest queued text, if all workers were
            busy at that time; 0 runs the queued texts as soon as a worker is idle.
        capacity: maximum number of queued texts.
        workers: number of batches that run at the same time.
        max_length: maximum number of tokens that the model reads; longer texts cost no more.
        batch_length: maximum length of all texts of a batch together; a longer text runs alone.
        observe: called with each batch that ran.
    """

    def __init__(
        self,
        run: Run,
        *,
        max_batch: int,
        capacity: int,
        workers: int = 1,
        max_wait_ms: float = 0.0,
        max_length: int = 512,
        batch_length: int = sys.maxsize,
        observe: Optional[Callable[[Batch], None]] = None,
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._max_wait_s = max_wait_ms / 1e3
        self._capacity = capacity
        self._workers = workers
        self._max_length = max_length
        self._batch_length = batch_length
        self._observe = observe
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="predict")
        self._queue: List[_Waiting] = []
        self._running: Set[Tuple[_Waiting, ...]] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._seconds_per_text = 0.0  # of a worker's time; 0 until the first batch
        self._refusing = False

    @property
    def queued(self) -> int:
        """Number of queued texts."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Number of texts in running batches."""
        return sum(map(len, self._running))

    def expected_wait_s(self) -> float:
        """Expected wait of a new text, from the mean time per text so far."""
        return (self.queued + self.running) * self._seconds_per_text / self._workers

    def longest_run_s(self) -> float:
        """Time since the oldest running batch started; 0 without one."""
        now = time.perf_counter()
        return max((now - batch[0].started for batch in self._running), default=0.0)

    def admit(self, count: int, timeout_s: float) -> None:
        """Refuse `count` new texts if they cannot be answered in time.

        Raises:
            HttpError: the queue is full or the expected wait too long (429), or the server is stopping (503).
        """
        if self._refusing:
            raise http_errors.draining()
        wait_s = self.expected_wait_s()
        retry_after_s = max(1, math.ceil(wait_s))
        if self.queued + count > self._capacity:
            raise http_errors.overloaded(f"{_waiting(self.queued)}, and {self._capacity} may", retry_after_s)
        if wait_s > timeout_s:
            raise http_errors.overloaded(f"{_waiting(self.queued)}, which is about {wait_s:.1f} s", retry_after_s)

    async def submit(self, items: Sequence[Item], timeout_s: float, gone: Gone) -> List[Answered]:
        """Answers for `items`, in their order.

        Args:
            gone: returns when the client disconnects; texts that have not started are then dropped. It is called
                only after 50 ms, since watching has a cost and most requests are answered by then.

        Raises:
            HttpError: no room for all of them (429), client disconnected (499), server stopping (503), or timeout
                (504).
            EdgepackError: the model cannot be run on one of them.
        """
        self.admit(len(items), timeout_s)
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        busy = len(self._running) >= self._workers
        futures: List[asyncio.Future[Answered]] = [loop.create_future() for _ in items]
        for item, future in zip(items, futures):
            self._queue.append(_Waiting(item, self._length(item), now, busy, future))
        self._pump()
        try:
            late = await self._wait(futures, timeout_s, gone)
        finally:  # also on cancellation
            self._forget(futures)
        if late:
            raise http_errors.expired(timeout_s)
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]

    async def _wait(self, futures: Sequence[asyncio.Future[Answered]], timeout_s: float, gone: Gone) -> bool:
        """Wait for `futures`; return whether the timeout expired."""
        _, late = await asyncio.wait(futures, timeout=min(timeout_s, _UNWATCHED_S))
        if not late:
            return False
        watch = asyncio.ensure_future(gone())
        watch.add_done_callback(lambda _: self._forget(futures))
        try:
            _, late = await asyncio.wait(futures, timeout=max(0.0, timeout_s - _UNWATCHED_S))
        finally:
            stays = watch.cancel()  # false if it has already returned
        if stays:
            return bool(late)
        watch.result()
        raise http_errors.gone()

    def give_up(self) -> int:
        """Refuse new, queued and running texts, without waiting; return how many there were."""
        self._refusing = True
        left = [waiting for batch in (self._queue, *self._running) for waiting in batch if not waiting.future.done()]
        self._queue.clear()
        for waiting in left:
            waiting.future.set_exception(http_errors.draining())
        return len(left)

    def close(self) -> None:
        """Stop the worker threads; a running batch is not interrupted."""
        if self._timer is not None:
            self._timer.cancel()
        self._executor.shutdown(wait=False)

    def _length(self, item: Item) -> int:
        """Length of an item; 0 if nothing is compared with it, because batching is off."""
        return min(length(item), self._max_length) if self._max_batch > 1 else 0

    def _pump(self) -> None:
        """Start batches while there are queued texts and idle workers."""
        while self._queue and len(self._running) < self._workers:
            pause_s = self._to_linger_s()
            if pause_s > 0:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(pause_s, self._on_timer)
                return
            self._start(self._take())

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _to_linger_s(self) -> float:
        """Seconds that the next batch may still wait to become full."""
        oldest = self._queue[0]
        if not oldest.to_linger or len(self._queue) >= self._max_batch:
            return 0.0
        return oldest.arrived + self._max_wait_s - time.perf_counter()

    def _take(self) -> Tuple[_Waiting, ...]:
        """Remove the next batch from the queue: the oldest text and the nearest ones in length."""
        oldest = self._queue.pop(0)
        chosen, longest, total = [oldest], oldest.length, oldest.length
        if self._max_batch > 1 and self._queue:
            near = self._queue[: self._max_batch * _WINDOW]
            near.sort(key=lambda waiting: abs(waiting.length - oldest.length))  # stable: older ones first
            for waiting in near:
                if len(chosen) == self._max_batch:
                    break
                longest, total = max(longest, waiting.length), total + waiting.length
                if total > self._batch_length or longest * (len(chosen) + 1) > total * PADDING + _SLACK:
                    break
                chosen.append(waiting)
            taken = set(map(id, chosen))
            self._queue = [waiting for waiting in self._queue if id(waiting) not in taken]
        return tuple(chosen)

    def _start(self, batch: Tuple[_Waiting, ...]) -> None:
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        for waiting in batch:
            waiting.started = now
        self._running.add(batch)
        done = loop.run_in_executor(self._executor, self._answer, batch)
        done.add_done_callback(lambda future: self._finish(batch, future))

    def _answer(self, texts: Sequence[_Waiting]) -> List[_Outcome]:
        """Run a batch, in a worker thread. If it fails, run each text alone, so that one bad text fails alone."""

        def wanted() -> bool:
            return not all(waiting.future.done() for waiting in texts)

        try:
            predictions, split = self._run([waiting.item for waiting in texts], wanted)
        except Exception as error:  # noqa: BLE001 - raised in the request
            if len(texts) == 1 or not wanted():
                return [error] * len(texts)
            return [outcome for waiting in texts for outcome in self._answer([waiting])]
        batch = Batch(split, len(texts))
        return [(prediction, batch) for prediction in predictions]

    def _finish(self, batch: Tuple[_Waiting, ...], done: asyncio.Future[List[_Outcome]]) -> None:
        self._running.discard(batch)
        outcomes = done.result()
        self._account(batch, outcomes)
        for waiting, outcome in zip(batch, outcomes):
            if waiting.future.done():  # cancelled
                continue
            if isinstance(outcome, Exception):
                waiting.future.set_exception(outcome)
            else:
                waiting.future.set_result(Answered(*outcome, (waiting.started - waiting.arrived) * 1e3))
        self._pump()

    def _account(self, batch: Tuple[_Waiting, ...], outcomes: Sequence[_Outcome]) -> None:
        seconds = (time.perf_counter() - batch[0].started) / len(batch)
        share = _SMOOTHING if self._seconds_per_text else 1.0
        self._seconds_per_text += share * (seconds - self._seconds_per_text)
        if self._observe is not None:
            ran = {id(outcome[1]): outcome[1] for outcome in outcomes if not isinstance(outcome, Exception)}
            for one in ran.values():
                self._observe(one)

    def _forget(self, futures: Sequence[asyncio.Future[Answered]]) -> None:
        """Cancel `futures` and remove their texts from the queue."""
        if not sum(future.cancel() for future in futures):
            return
        self._queue = [waiting for waiting in self._queue if not waiting.future.done()]


def _waiting(texts: int) -> str:
    return "1 text waits" if texts == 1 else f"{texts} texts wait"
