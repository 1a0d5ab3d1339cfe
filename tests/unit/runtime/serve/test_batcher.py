"""The queue in front of the predictor. The model is a function that waits until the test lets it go on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.inference.predictor import Split
from edgepack_runtime.serve import batcher as batcher_module
from edgepack_runtime.serve.batcher import PADDING, Batch, Batcher
from edgepack_runtime.serve.http_errors import HttpError


class Model:
    """Answers `text!`; keeps what it was asked, batch by batch. While `gate` is closed it does not answer."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.wanted: list[bool] = []  # of each batch, whether anybody waited when it could answer
        self.entered = threading.Semaphore(0)

    def run(self, items: Sequence[Any], wanted: Callable[[], bool]) -> Any:
        self.batches.append(list(items))
        self.entered.release()
        assert self.gate.wait(20)
        self.wanted.append(wanted())
        if any("broken" in item for item in items):
            raise StageFailedError("the model failed")
        return [f"{item}!" for item in items], Split(1.0, 2.0, 3.0)

    async def taken(self) -> None:
        """Wait until it has been asked once more."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.entered.acquire, True, 20)


class Turns(threading.Event):
    """A gate through which one run goes for each `release`."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = threading.Semaphore(0)

    def release(self) -> None:
        self._turns.release()

    def wait(self, timeout: float | None = None) -> bool:
        return self._turns.acquire(timeout=timeout)

    def set(self) -> None:
        self._turns.release(100)


Make = Callable[..., Batcher]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def make(model: Model) -> Iterator[Make]:
    """A factory of batchers of `model`; at the end of the test the model answers, and they are closed."""
    made: list[Batcher] = []

    def make(**settings: Any) -> Batcher:
        made.append(Batcher(model.run, **{"max_batch": 4, "capacity": 8, **settings}))
        return made[-1]

    yield make
    model.gate.set()
    for batcher in made:
        batcher.close()


async def stays() -> None:
    """A client that does not go away."""
    await asyncio.Event().wait()


async def ask(batcher: Batcher, *texts: str, timeout_s: float = 20) -> list[Any]:
    return [answered.prediction for answered in await batcher.submit(texts, timeout_s, stays)]


async def waiting(batcher: Batcher, *texts: str, timeout_s: float = 20) -> asyncio.Task[list[Any]]:
    """A request that has been put into the queue."""
    task = asyncio.ensure_future(ask(batcher, *texts, timeout_s=timeout_s))
    await asyncio.sleep(0)
    return task


async def refusal(asked: Awaitable[Any]) -> HttpError:
    with pytest.raises(HttpError) as caught:
        await asked
    return caught.value


async def test_a_lone_text_and_all_texts_without_batching_run_at_once_and_alone(model: Model, make: Make) -> None:
    batcher = make(max_wait_ms=1e6)  # which it would wait for, if it waited
    assert await ask(batcher, "a") == ["a!"]
    assert await ask(make(max_batch=1), "b", "c", "d") == ["b!", "c!", "d!"]
    assert model.batches == [["a"], ["b"], ["c"], ["d"]]


async def test_texts_that_come_while_the_worker_is_busy_share_a_batch(model: Model, make: Make) -> None:
    seen: list[Batch] = []
    batcher = make(observe=seen.append)
    model.gate.clear()
    tasks = [await waiting(batcher, "a")]
    await model.taken()
    tasks += [await waiting(batcher, text) for text in "bcdefg"]
    assert (batcher.queued, batcher.running) == (6, 1)
    model.gate.set()
    assert await asyncio.gather(*tasks) == [[f"{text}!"] for text in "abcdefg"]
    assert model.batches == [["a"], ["b", "c", "d", "e"], ["f", "g"]]
    assert [batch.size for batch in seen] == [1, 4, 2]


async def test_a_batch_that_is_not_full_may_wait_for_company(model: Model, make: Make) -> None:
    batcher = make(max_batch=2, max_wait_ms=1e6)
    model.gate.clear()
    tasks = [await waiting(batcher, "a")]
    await model.taken()
    tasks.append(await waiting(batcher, "b"))
    model.gate.set()
    await tasks[0]
    assert batcher.queued == 1  # it came while the worker was busy, so others may come as well
    tasks.append(await waiting(batcher, "c"))
    await asyncio.gather(*tasks)
    assert model.batches == [["a"], ["b", "c"]]


async def test_several_workers_run_at_the_same_time(model: Model, make: Make) -> None:
    batcher = make(workers=2)
    model.gate.clear()
    tasks = [await waiting(batcher, text) for text in "abc"]
    await model.taken()
    await model.taken()
    assert (batcher.queued, batcher.running) == (1, 2)
    model.gate.set()
    await asyncio.gather(*tasks)


async def test_the_oldest_is_taken_with_those_of_its_length(model: Model, make: Make) -> None:
    batcher = make(max_batch=3)
    model.gate.clear()
    tasks = [await waiting(batcher, "a")]
    await model.taken()
    long, longer = "x" * 400, "y" * 410
    tasks += [await waiting(batcher, text) for text in (long, "b", "c", longer, "d")]
    model.gate.set()
    await asyncio.gather(*tasks)
    assert model.batches == [["a"], [long, longer], ["b", "c", "d"]]


async def test_long_texts_run_alone(model: Model, make: Make) -> None:
    batcher = make(max_length=10**6, batch_length=100)
    model.gate.clear()
    tasks = [await waiting(batcher, "a")]
    await model.taken()
    texts = [letter * length for letter, length in zip("bcdefgh", (101, 101, 50, 50, 33, 33, 33), strict=True)]
    tasks += [await waiting(batcher, text) for text in texts]
    model.gate.set()
    await asyncio.gather(*tasks)
    assert model.batches == [["a"], texts[:1], texts[1:2], texts[2:4], texts[4:]]


@given(st.lists(st.integers(1, 600), min_size=1, max_size=40), st.integers(1, 9))
def test_every_text_is_answered_and_padding_stays_cheap(lengths: list[int], max_batch: int) -> None:
    model = Model()
    texts = [f"{number},".ljust(length, "x") for number, length in enumerate(lengths)]

    async def answers() -> list[Any]:
        batcher = Batcher(model.run, max_batch=max_batch, capacity=len(lengths), max_length=512)
        with contextlib.closing(batcher):
            return await ask(batcher, *texts)

    assert asyncio.run(answers()) == [f"{text}!" for text in texts]
    assert sorted(text for batch in model.batches for text in batch) == sorted(texts)
    left = list(texts)
    for batch in model.batches:
        assert batch[0] == left[0], "the oldest is never passed over"
        left = [text for text in left if text not in batch]
        read = [min(len(text), 512) for text in batch]
        assert len(batch) <= max_batch
        assert max(read) * len(batch) <= PADDING * sum(read) + 16


async def test_a_full_queue_refuses_and_tells_when_to_come_again(model: Model, make: Make) -> None:
    batcher = make(capacity=2)
    await ask(batcher, "first")  # so that it knows how long a text takes
    model.gate.clear()
    tasks = [await waiting(batcher, text) for text in "abc"]
    for texts in (["d"], ["d", "e"]):
        error = await refusal(batcher.submit(texts, 20, stays))
        assert (error.status, error.code) == (429, "queue_full")
        assert int(error.headers["Retry-After"]) >= 1
    model.gate.set()
    assert await asyncio.gather(*tasks) == [["a!"], ["b!"], ["c!"]]


async def test_the_queue_refuses_a_text_that_would_wait_for_too_long(model: Model, make: Make) -> None:
    batcher = make()
    await ask(batcher, "first")
    batcher._seconds_per_text = 3.0
    model.gate.clear()
    task = await waiting(batcher, "a", "b")
    assert batcher.expected_wait_s() == pytest.approx(6)
    assert (await refusal(batcher.submit(["c"], 5.0, stays))).headers["Retry-After"] == "6"
    model.gate.set()
    await task


async def test_time_runs_out_in_the_queue_and_in_a_run(model: Model, make: Make) -> None:
    batcher = make()
    model.gate.clear()
    running = await waiting(batcher, "a", timeout_s=0.01)
    queued = await waiting(batcher, "b", timeout_s=0.01)
    assert [(await refusal(task)).status for task in (running, queued)] == [504, 504]
    assert (batcher.queued, batcher.running) == (0, 1)  # what runs cannot be stopped; what waited is forgotten
    assert batcher.longest_run_s() > 0
    model.gate.set()
    assert await ask(batcher, "c") == ["c!"]
    assert model.batches == [["a"], ["c"]]


async def test_a_cancelled_request_leaves_no_text_in_the_queue(model: Model, make: Make) -> None:
    batcher = make()
    model.gate.clear()
    first = await waiting(batcher, "a")
    gone = await waiting(batcher, "b")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert batcher.queued == 0
    model.gate.set()
    assert await first == ["a!"]


async def test_a_client_that_is_gone_is_not_computed(model: Model, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "_UNWATCHED_S", 0)
    batcher = make()
    model.gate.clear()
    first = await waiting(batcher, "a")
    left = asyncio.Event()

    async def gone() -> None:
        await left.wait()

    task = asyncio.ensure_future(batcher.submit(["b", "c"], 20, gone))
    other = asyncio.ensure_future(batcher.submit(["d"], 20, stays))
    await asyncio.sleep(0)
    assert batcher.queued == 3
    left.set()
    assert ((await refusal(task)).status, batcher.queued) == (499, 1)
    model.gate.set()
    assert await first == ["a!"]
    assert [answered.prediction for answered in await other] == ["d!"]
    assert model.batches == [["a"], ["d"]]


async def test_the_batcher_does_not_wait_for_a_run_whose_client_is_gone(
    model: Model, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher_module, "_UNWATCHED_S", 0)
    batcher = make(max_batch=1)
    model.gate.clear()
    error = await refusal(batcher.submit(["a", "b"], 20, lambda: asyncio.sleep(0)))
    assert (error.status, batcher.queued, batcher.running) == (499, 0, 1)  # what runs cannot be stopped
    model.gate.set()
    assert await ask(batcher, "c") == ["c!"]
    assert model.batches == [["a"], ["c"]]


async def test_the_batcher_does_not_watch_a_client_that_is_answered_soon(
    model: Model, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher_module, "_UNWATCHED_S", 3600)

    def gone() -> Any:
        raise AssertionError

    found = await make().submit(["a", "b"], 20, gone)
    assert [answered.prediction for answered in found] == ["a!", "b!"]
    model.gate.clear()
    assert (await refusal(make().submit(["a"], 0.01, stays))).status == 504


async def test_an_error_of_watching_a_client_is_raised(
    model: Model, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher_module, "_UNWATCHED_S", 0)

    async def gone() -> None:
        raise OSError("no such connection")

    model.gate.clear()
    with pytest.raises(OSError, match="no such connection"):
        await make(max_batch=1).submit(["a", "b"], 20, gone)


async def test_a_text_that_breaks_the_model_spoils_no_other(model: Model, make: Make) -> None:
    batcher = make()
    model.gate.clear()
    first = await waiting(batcher, "a")
    await model.taken()
    good, bad, both = [await waiting(batcher, *texts) for texts in (["b"], ["broken"], ["c", "broken too"])]
    model.gate.set()
    assert await first == ["a!"]
    assert await good == ["b!"]
    for task in (bad, both):
        with pytest.raises(StageFailedError):
            await task
    assert await ask(batcher, "d") == ["d!"]


async def test_a_run_is_told_when_the_last_client_is_gone(model: Model, make: Make) -> None:
    model.gate = turns = Turns()
    batcher = make()
    first = await waiting(batcher, "a")
    await model.taken()
    late = [await waiting(batcher, text, timeout_s=0.5) for text in ("b", "broken")]
    other = await waiting(batcher, "c")
    turns.release()
    await first
    await model.taken()
    assert [(await refusal(task)).status for task in late] == [504, 504]
    turns.set()
    assert await other == ["c!"]
    # The batch failed, and then each text ran alone.
    await ask(batcher, "d")
    assert model.batches == [["a"], ["b", "c", "broken"], ["b"], ["c"], ["broken"], ["d"]]
    assert model.wanted == [True, True, False, True, False, True]


async def test_a_batch_that_fails_is_not_tried_again_when_all_clients_are_gone(model: Model, make: Make) -> None:
    batcher = make()
    model.gate.clear()
    error = await refusal(batcher.submit(["b", "broken"], 0.05, stays))
    assert error.status == 504
    model.gate.set()
    assert await ask(batcher, "c") == ["c!"]
    assert model.batches == [["b", "broken"], ["c"]]


async def test_give_up_refuses_what_waits_what_runs_and_what_comes(model: Model, make: Make) -> None:
    batcher = make()
    model.gate.clear()
    tasks = [await waiting(batcher, text) for text in "ab"]
    await refusal(await waiting(batcher, "c", timeout_s=0.01))
    assert batcher.give_up() == 2  # nobody waits for the third one any more
    assert [(await refusal(task)).code for task in tasks] == ["draining"] * 2
    error = await refusal(batcher.submit(["d"], 20, stays))
    assert (error.status, error.code) == (503, "draining")
    assert (batcher.queued, batcher.running, batcher.give_up()) == (0, 1, 0)
