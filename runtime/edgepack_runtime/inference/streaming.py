"""Predictions for a stream of items, in their order, in bounded memory: batches of similar length on several threads.

Items are read in blocks. The rows of a block are tokenized, sorted by length, and split into batches whose
intermediate results stay in the cache. Worker threads run the batches over one shared session. While one block runs,
the next one is tokenized and the answers of the previous one are returned; at most three are in memory. With one
worker everything runs in the caller's thread.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import (
    Any,
    Callable,
    Generator,
    Generic,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from edgepack_runtime.inference.encoding import Encoded, EncodedRow, Encoding
from edgepack_runtime.tasks.task import Prediction
from edgepack_runtime.util.texts import Item

# Measured (docs/measurements.md): larger batches exceed the second-level cache and are slower per token.
BATCH_TOKENS = 512
GPU_BATCH_TOKENS = 4096  # docs/measurements.md: twice as many texts per second as with 512
BLOCK_ITEMS = 1024
MOST_ROWS = 128  # of a batch
_BLOCK_CHARACTERS = 2**22  # a block of long texts ends earlier
_ENCODED_AT_ONCE = 64

T = TypeVar("T")
_Place = Tuple[int, int]  # number of the item in its block, number of the row in its item


class StreamSettings(NamedTuple):
    """Settings of a stream: threads, tokens of a batch with padding, items of a block.

    `alone`: every row is a batch. `alike`: all rows of a batch have the same length.
    """

    workers: int = 1
    batch_tokens: int = BATCH_TOKENS
    block_items: int = BLOCK_ITEMS
    alone: bool = False
    alike: bool = False


class StreamModel(NamedTuple):
    """Interface of a model; both methods may be called from several threads. `run` returns logits for each row."""

    encoding: Encoding
    run: Callable[[Sequence[EncodedRow]], Sequence[Any]]


class _Failed(NamedTuple):
    """Reason why an item has no answer."""

    error: Exception


def in_order(
    given: Iterable[Tuple[T, Optional[Item]]], model: StreamModel, settings: StreamSettings
) -> Generator[Tuple[T, Optional[Prediction]], None, None]:
    """Answers for `given` in its order, each with the value of its item; an item of None gets None.

    After an early close or an error it ends when the running batches have ended; no thread is left.

    Raises:
        Exception: of `given` or of the model, after the answers of all items before the failed one.
    """
    with _workers(settings.workers) as (pool, stop):
        done: Optional[_Block[T]] = None
        running: Optional[_Block[T]] = None
        for block in _blocks(given, settings.block_items):
            block.start(pool, stop, model)  # is started before the next block is read
            if running is not None:
                running.run(settings)
            if done is not None:
                yield from done.answers()
            done, running = running, block
        if running is not None:
            running.run(settings)
        for last in (done, running):
            if last is not None:
                yield from last.answers()


class _Block(Generic[T]):
    """A block of items. `error` is the error that ended the reading after them."""

    def __init__(self) -> None:
        self.tags: List[T] = []
        self.items: List[Optional[Item]] = []
        self.error: Optional[Exception] = None

    def start(self, pool: Executor, stop: threading.Event, model: StreamModel) -> None:
        self._pool, self._stop, self._model = pool, stop, model
        places = [place for place, item in enumerate(self.items) if item is not None]
        self._encoded: List[Union[Encoded, _Failed, None]] = [None] * len(self.items)
        self._found: List[Union[Prediction, _Failed, None]] = [None] * len(self.items)
        self._logits: List[List[Any]] = [[] for _ in self.items]
        self._missing = [0] * len(self.items)  # rows without logits
        chunks = (places[start : start + _ENCODED_AT_ONCE] for start in range(0, len(places), _ENCODED_AT_ONCE))
        self._jobs: List[Future[None]] = [pool.submit(self._encode, chunk) for chunk in chunks]

    def run(self, settings: StreamSettings) -> None:
        """Start running the rows, after all are tokenized."""
        self._wait()
        sizes = []
        for place, encoded in enumerate(self._encoded):
            if isinstance(encoded, Encoded):
                if not encoded.rows:  # the linear model answered
                    self._found[place] = self._model.encoding.decide(encoded, ())
                self._logits[place] = [None] * len(encoded.rows)
                self._missing[place] = len(encoded.rows)
                sizes += [(len(row.ids), (place, number)) for number, row in enumerate(encoded.rows)]
        self._jobs = [self._pool.submit(self._answer, batch) for batch in batches(sizes, settings)]

    def answers(self) -> Iterator[Tuple[T, Optional[Prediction]]]:
        """The answers of the block, after all are ready; the error of an item is raised at its position."""
        self._wait()
        for place, tag in enumerate(self.tags):
            found = self._found[place]
            if isinstance(found, _Failed):
                raise found.error
            yield tag, found
        if self.error is not None:
            raise self.error

    def _wait(self) -> None:
        for job in self._jobs:
            job.result()

    def _encode(self, places: Sequence[int]) -> None:
        if self._stop.is_set():
            return
        try:
            found = self._model.encoding.encode([self.items[place] for place in places])  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - raised again by `answers`
            if len(places) == 1:
                self._found[places[0]] = _Failed(error)
                return
            for place in places:
                self._encode([place])
            return
        for place, encoded in zip(places, found):
            self._encoded[place] = encoded

    def _answer(self, batch: Sequence[_Place]) -> None:
        if self._stop.is_set():
            return
        try:
            logits = self._model.run([self._item(place).rows[number] for place, number in batch])
            for (place, number), row in zip(batch, logits):
                self._take(place, number, row)
        except Exception as error:  # noqa: BLE001 - raised again by `answers`
            if len(batch) == 1:
                self._found[batch[0][0]] = _Failed(error)
                return
            for one in batch:  # to find the item that failed
                self._answer([one])

    def _take(self, place: int, number: int, logits: Any) -> None:
        """Store the logits of a row; after the last row of an item, decide. Two threads may run rows of one item."""
        parts = self._logits[place]
        with _TAKING:
            self._missing[place] -= parts[number] is None
            parts[number] = logits
            if self._missing[place] or self._found[place] is not None:
                return
        self._found[place] = self._model.encoding.decide(self._item(place), parts)

    def _item(self, place: int) -> Encoded:
        encoded = self._encoded[place]
        assert isinstance(encoded, Encoded)
        return encoded


_TAKING = threading.Lock()


def batches(sizes: Sequence[Tuple[int, _Place]], settings: StreamSettings) -> List[List[_Place]]:
    """Split rows, given by (tokens, place), into batches, the longest first: short rows fill the last ones evenly."""
    found: List[List[_Place]] = []
    widest = 0
    for length, place in sorted(sizes, key=lambda size: (-size[0], size[1])):
        other = not found or settings.alone or (settings.alike and length != widest)
        if other or (len(found[-1]) + 1) * widest > settings.batch_tokens or len(found[-1]) == MOST_ROWS:
            found.append([])
            widest = length
        found[-1].append(place)
    return found


def _blocks(given: Iterable[Tuple[T, Optional[Item]]], most: int) -> Iterator[_Block[T]]:
    """Split `given` into blocks of at most `most`; after a failed read the last block has the error."""
    source, ended = iter(given), False
    while not ended:
        block: _Block[T] = _Block()
        characters = 0
        while len(block.tags) < most and characters < _BLOCK_CHARACTERS:
            try:
                tag, item = next(source)
            except StopIteration:
                ended = True
                break
            except Exception as error:  # noqa: BLE001 - raised again by `answers`
                block.error, ended = error, True
                break
            block.tags.append(tag)
            block.items.append(item)
            characters += _characters(item)
        yield block


def _characters(item: Any) -> int:
    """Characters of a text or a pair; 0 for other values, which the model refuses later."""
    if isinstance(item, tuple):
        return sum(map(_characters, item))
    return len(item) if isinstance(item, str) else 0


@contextlib.contextmanager
def _workers(count: int) -> Iterator[Tuple[Executor, threading.Event]]:
    """Worker threads, and an event that tells them to stop."""
    stop = threading.Event()
    with _Here() if count == 1 else ThreadPoolExecutor(count, "edgepack-stream") as pool:
        try:
            yield pool, stop
        finally:
            stop.set()


class _Here(Executor):
    """Executor that runs a job in the submitting thread."""

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:  # type: ignore[override]
        job: Future[Any] = Future()
        job.set_result(fn(*args, **kwargs))
        return job
