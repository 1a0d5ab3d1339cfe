"""Answers for any number of items: the same as one by one, in their order, whatever goes wrong where it stands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.errors import StageFailedError, UsageError
from edgepack_runtime.inference import streaming
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.streaming import StreamSettings, batches

PAIRS, TOKENS = "text-pair-classification", "token-classification"
TEXTS = st.text("好差店很ok ，\ud83d", max_size=40).filter(str.strip)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    root = tmp_path_factory.mktemp("models")
    kinds: dict[str, dict[str, Any]] = {
        "one label": {},
        "several": {"multi_label": True},
        "pairs": {"task": PAIRS},
        "tokens": {"task": TOKENS},
        "unpadded": {"hides_padding": False},
        "alone": {"run_alone": True},
    }
    found = {kind: Predictor(write_model_folder(root / kind, **config)) for kind, config in kinds.items()}
    for kind in ("one label", "several", "tokens"):
        found[f"{kind}, windows"] = Predictor(root / kind, long_texts="windows")
    return found


@pytest.fixture(scope="module")
def predictor(models: dict[str, Predictor]) -> Predictor:
    return models["one label"]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("edgepack-stream")}


@given(
    st.lists(TEXTS, max_size=30),
    st.sampled_from(["one label", "several", "tokens", "unpadded", "alone", "one label, windows",
                     "several, windows", "tokens, windows"]),
    st.integers(1, 3),
    st.integers(1, 80),
    st.integers(1, 9),
)  # fmt: skip
@settings(max_examples=150)
def test_a_stream_is_the_texts_one_by_one(
    models: dict[str, Predictor], texts: list[str], kind: str, workers: int, batch_tokens: int, block_items: int
) -> None:
    model = models[kind]
    found = list(model.stream(texts, workers=workers, batch_tokens=batch_tokens, block_items=block_items))
    assert found == [model.predict(text) for text in texts]
    assert threads() == set()


def test_a_stream_of_pairs(models: dict[str, Predictor]) -> None:
    items = [("好", "差"), ("店", "\ufffd"), ("\ufffd", "很好" * 20), ("差" * 30, "好")] * 5
    assert list(models["pairs"].stream(items, workers=2, block_items=7)) == [models["pairs"].predict(*i) for i in items]


def test_a_tagged_stream_returns_the_tags_and_no_answer_where_there_is_no_item(predictor: Predictor) -> None:
    given_items = [(1, "好"), (2, None), (3, "差"), (4, None)]
    found = list(predictor.stream_tagged(given_items, workers=2, block_items=3))
    assert [tag for tag, _ in found] == [1, 2, 3, 4]
    assert [answer and getattr(answer, "label", None) for _, answer in found] == ["good", None, "bad", None]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_reading_comes_after_the_answers_before_it(predictor: Predictor, workers: int) -> None:
    def broken() -> Iterator[str]:
        yield from ["好"] * 7
        raise UsageError("line 8 is empty")

    found = []
    with pytest.raises(UsageError, match="line 8"):
        for prediction in predictor.stream(broken(), workers=workers, block_items=3):
            found.append(prediction)  # noqa: PERF402 - what came before counts
    assert found == [predictor.predict("好")] * 7
    assert threads() == set()


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_the_model_comes_out_at_its_item(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    run = predictor.text_model.encoder.run
    bad = predictor.config.labels and predictor.text_model.tokenizer.encode(["差"], 16)[0][1]

    def refusing(batch: Any) -> Any:
        if bad in batch.ids:
            raise StageFailedError("the model could not be run")
        return run(batch)

    monkeypatch.setattr(predictor.text_model.encoder, "run", refusing)
    found = []
    with pytest.raises(StageFailedError):
        for prediction in predictor.stream(["好", "很", "店", "好差", "很"], workers=workers):
            found.append(prediction)  # noqa: PERF402 - what came before counts
    assert len(found) == 3
    assert threads() == set()


@pytest.mark.parametrize("item", [("好", "差"), None, 5])
def test_an_item_that_is_none_is_an_error_where_it_stands(predictor: Predictor, item: Any) -> None:
    found = predictor.stream(["好", "差", item, "好"], workers=2)
    assert [next(found).answer, next(found).answer] == ["good", "bad"]
    with pytest.raises((UsageError, TypeError, AttributeError)):
        next(found)


def test_a_stream_that_is_closed_early_or_interrupted_leaves_no_thread(predictor: Predictor) -> None:
    read = []

    def endless() -> Iterator[str]:
        while True:
            read.append("好")
            yield "好"

    found = predictor.stream(endless(), workers=3, block_items=10)
    with contextlib.closing(found):  # type: ignore[type-var]
        assert next(found).answer == "good"
        assert threads()
    assert threads() == set()
    assert len(read) <= 30  # three blocks

    def interrupted() -> Iterator[str]:
        yield from ["好"] * 25
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(predictor.stream(interrupted(), workers=3, block_items=10))
    assert threads() == set()


def test_a_stream_of_long_texts_holds_few_of_them(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_BLOCK_CHARACTERS", 100)
    read = []

    def long() -> Iterator[str]:
        for number in range(20):
            read.append(number)
            yield "好" * 60

    found = predictor.stream(long(), workers=1)
    next(found)
    assert len(read) == 6  # three blocks of two
    assert len(list(found)) == 19


def sizes(*lengths: int) -> list[tuple[int, tuple[int, int]]]:
    return [(length, (place, 0)) for place, length in enumerate(lengths)]


def shown(settings: StreamSettings, *lengths: int) -> list[list[int]]:
    return [[lengths[place] for place, _ in batch] for batch in batches(sizes(*lengths), settings)]


def test_batches_are_of_like_length_and_within_the_budget() -> None:
    assert shown(StreamSettings(batch_tokens=40), 8, 20, 9, 50, 20, 8) == [[50], [20, 20], [9, 8, 8]]
    assert shown(StreamSettings(batch_tokens=40, alike=True), 8, 20, 9, 50, 20, 8) == [[50], [20, 20], [9], [8, 8]]
    assert shown(StreamSettings(alone=True), 8, 8, 9) == [[9], [8], [8]]
    assert shown(StreamSettings(), *()) == []


@given(st.lists(st.integers(3, 128), max_size=300), st.integers(1, 3000), st.booleans())
def test_every_row_is_in_one_batch(lengths: list[int], batch_tokens: int, alike: bool) -> None:
    found = batches(sizes(*lengths), StreamSettings(batch_tokens=batch_tokens, alike=alike))
    assert sorted(place for batch in found for place, _ in batch) == list(range(len(lengths)))
    assert all(len(batch) <= 128 for batch in found)
    for batch in found:
        widths = {lengths[place] for place, _ in batch}
        assert len(batch) == 1 or len(batch) * max(widths) <= batch_tokens
        assert len(widths) == 1 or not alike
