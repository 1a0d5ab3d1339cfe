from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.tiny_model import LABELS, TAG_LOGIT, TAGS, logits_of, write_model_folder, write_onnx

from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.engine.batch import InputBatch
from edgepack_runtime.engine.ort_api import Api
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError, UsageError
from edgepack_runtime.inference import streaming
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.streaming import StreamSettings
from edgepack_runtime.util.spans import Span

NO_TOKEN = "\ufffd"  # a text that shows something, of which a model sees nothing


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(write_model_folder(tmp_path_factory.mktemp("tiny") / "model"))


def test_a_text_gets_its_label_and_the_softmax_of_its_logits(predictor: Predictor) -> None:
    label, score, scores = predictor.predict("店很好")
    bad, good = logits_of("店很好")
    assert label == "good"
    assert score == scores["good"] == pytest.approx(1 / (1 + math.exp(bad - good)))
    assert tuple(scores) == LABELS and sum(scores.values()) == pytest.approx(1)


def test_any_text_gets_a_label(predictor: Predictor) -> None:
    for text in (NO_TOKEN, f" {NO_TOKEN}", "\ud800", "\ue000\x00", "好" * 10_000, "x" * 10_000):
        assert predictor.predict(text).label in LABELS
    # 14 of 16 places hold text. What stands beyond them would turn the label.
    assert predictor.predict("好" * 14 + "差" * 100) == predictor.predict("好" * 14)


def test_a_batch_is_the_items_one_by_one_in_their_order(
    predictor: Predictor, pairs: Predictor, tokens: Predictor
) -> None:
    for model, items in (
        (predictor, ["好", "差差差", NO_TOKEN, "店很好，", "差好"] * 9),
        (
            pairs,
            [("好", "差"), ("店", NO_TOKEN), (NO_TOKEN, "很好" * 20), ("差" * 30, "好"), ("\ud800好", "差\udc00")] * 5,
        ),
        (tokens, ["好店很好", NO_TOKEN, "店", "ok店" * 40, "okay"] * 5),
    ):
        one_by_one = [model.predict(item) for item in items]
        for batch_size in (1, 7, 32, 100, np.int64(8)):
            assert model.predict_batch(items, batch_size=batch_size) == one_by_one  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["workers", "batch_tokens", "block_items"])
@pytest.mark.parametrize("number", [0, -1, 1.5, math.nan])
def test_the_predictor_refuses_a_senseless_number(predictor: Predictor, name: str, number: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} is {number}"):
        list(predictor.stream(["好"], **{name: number}))
    with pytest.raises(UsageError, match=f"batch_size is {number}"):
        predictor.predict_batch(["好"], batch_size=number)
    for threads in (number, 10**9):
        with pytest.raises(UsageError, match=f"threads is {threads}"):
            Predictor(threads=threads)


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_texts_of_different_length_share_no_run_where_padding_would_show(tmp_path: Path, task: str) -> None:
    hiding = Predictor(write_model_folder(tmp_path / "hiding", task=task))
    bare = Predictor(write_model_folder(tmp_path / "bare", task=task, hides_padding=False))
    texts = ["好", "差差店店", NO_TOKEN, "店很好，", "差好", "[PAD]好", "好" * 40] * 3
    assert bare.predict_batch(texts) == [bare.predict(text) for text in texts]
    plain = [text for text in texts if "[PAD]" not in text]
    assert bare.predict_batch(plain) == hiding.predict_batch(plain)
    assert list(map(len, bare.logits(texts))) == list(map(len, hiding.logits(texts)))
    assert bare.logits(plain) == hiding.logits(plain)


@pytest.mark.parametrize("hides_padding", [True, False])
def test_a_text_is_run_by_itself_where_others_would_change_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides_padding: bool
) -> None:
    folder = write_model_folder(tmp_path / "model", run_alone=True, hides_padding=hides_padding)
    predictor = Predictor(folder)
    run, shapes = predictor.text_model.encoder.run, []

    def watched(batch: InputBatch) -> Any:
        shapes.append((batch.rows, batch.length))
        return run(batch)

    monkeypatch.setattr(predictor.text_model.encoder, "run", watched)
    texts = ["好", "差差店店", "好", "店很好，"]
    expected = [predictor.predict(text) for text in texts]
    alone = list(shapes)
    assert alone == [(1, 3), (1, 6), (1, 3), (1, 6)]
    for ask in (predictor.predict_batch, lambda given: list(predictor.stream(given, workers=1))):
        shapes.clear()
        assert ask(texts) == expected
        assert sorted(shapes) == sorted(alone)


def test_a_list_has_a_list_of_answers(predictor: Predictor, pairs: Predictor) -> None:
    assert predictor.predict(["好", "差"]) == [predictor.predict("好"), predictor.predict("差")]
    assert pairs.predict([("好", "差")]) == [pairs.predict("好", "差")]
    assert predictor.predict([]) == []
    with pytest.raises(UsageError, match="this model takes pairs of texts"):
        pairs.predict(["好", "差"])


@pytest.mark.parametrize("empty", ["", " \u3000", "\u200b\ufe0f", "\ufeff\xad\x00"])
def test_an_empty_text_is_refused(predictor: Predictor, pairs: Predictor, tokens: Predictor, empty: str) -> None:
    for model in (predictor, tokens):
        with pytest.raises(UsageError, match="the text is empty"):
            model.predict(empty)
        for ask in (model.predict, model.predict_batch):
            with pytest.raises(UsageError, match="item 2 is empty"):
                ask(["好", empty])
        answers = model.stream(["好", "差", empty, "好"])
        assert [next(answers), next(answers)] == model.predict(["好", "差"])
        with pytest.raises(UsageError, match="item 3 is empty"):
            next(answers)
    with pytest.raises(UsageError, match="text 2 of the pair is empty"):
        pairs.predict("好", empty)
    with pytest.raises(UsageError, match="text 1 of item 2 is empty"):
        pairs.predict([("好", "差"), (empty, "好")])


def test_logits_are_the_models(predictor: Predictor) -> None:
    assert predictor.logits(["店很好", "差"]) == [logits_of("店很好"), logits_of("差")]
    assert predictor.logits([]) == []


def test_threads_do_not_mix_answers_up(predictor: Predictor) -> None:
    texts = ["好" * n + "差" * (14 - n) for n in range(15)] * 20
    expected = [predictor.predict(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predictor.predict, texts)) == expected


def test_batches_of_a_stream_are_larger_on_a_gpu(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[StreamSettings] = []

    def in_order(items: Any, model: Any, settings: StreamSettings) -> Iterator[Any]:
        found.append(settings)
        yield from ()

    monkeypatch.setattr(streaming, "in_order", in_order)
    list(predictor.stream(["好"]))
    on_gpu = replace(predictor.config, engine=EngineConfig(provider="CUDAExecutionProvider"))
    monkeypatch.setattr(predictor.text_model, "config", on_gpu)
    list(predictor.stream(["好"]))
    list(predictor.stream(["好"], batch_tokens=64))
    assert [settings.batch_tokens for settings in found] == [512, 4096, 64]


def test_a_provider_that_is_missing_is_an_error(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model", engine=EngineConfig(provider="CUDAExecutionProvider"))
    with pytest.raises(EnvironmentUnfitError, match="has no CUDAExecutionProvider"):
        Predictor(folder)


def test_the_session_gets_what_the_model_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[Any, ...]] = []
    call = Api.call

    def spy(self: Api, name: str, *arguments: Any) -> None:
        called.append((name, *arguments[1:3]))
        call(self, name, *arguments)

    monkeypatch.setattr(Api, "call", spy)
    engine = EngineConfig(disabled_optimizers=("SkipLayerNormFusion", "GeluFusion"))
    predictor = Predictor(write_model_folder(tmp_path / "model", engine=engine), threads=2)
    assert (predictor.providers, predictor.labels) == (("CPUExecutionProvider",), LABELS)
    assert ("SetIntraOpNumThreads", 2) in called
    entries = {arguments[1]: arguments[2] for arguments in called if arguments[0] == "AddSessionConfigEntry"}
    assert entries == {
        b"session.intra_op.allow_spinning": b"0",
        b"session.set_denormal_as_zero": b"1",
        b"optimization.disable_specified_optimizers": b"SkipLayerNormFusion;GeluFusion",
    }


@pytest.mark.parametrize(
    ("config", "graph", "why"),
    [
        ({"labels": ("a", "b", "c")}, {}, "do not belong together"),
        ({"labels": TAGS}, {"n_labels": len(TAGS), "tokens": True}, "do not belong together"),
        ({"task": "token-classification"}, {"n_labels": len(TAGS)}, "do not belong together"),
        ({}, {"input_name": "ids"}, "not a text classifier"),
        ({}, {"vocab": ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]}, "could not be run"),  # and no crash
    ],
)
def test_the_predictor_refuses_a_graph_of_another_form(
    tmp_path: Path, config: dict[str, Any], graph: dict[str, Any], why: str
) -> None:
    folder = write_model_folder(tmp_path / "model", **config)
    write_onnx(folder / "model.onnx", **graph)
    with pytest.raises((BundleInvalidError, StageFailedError), match=why) as caught:
        Predictor(folder)
    if graph.get("tokens"):
        assert "logits of shape (1, 3, 5); text-classification with 5 labels has (1, 5)" in caught.value.why


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_a_broken_model_is_named(tmp_path: Path, content: bytes | None) -> None:
    folder = write_model_folder(tmp_path / "model")
    if content is None:
        (folder / "model.onnx").unlink()
    else:
        (folder / "model.onnx").write_bytes(content)
    with pytest.raises(BundleInvalidError if content is None else StageFailedError, match=r"model\.onnx"):
        Predictor(folder)


# --- several labels -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(write_model_folder(tmp_path_factory.mktemp("several") / "model", multi_label=True))


def test_a_text_may_have_any_number_of_labels(several: Predictor) -> None:
    answers = {text: several.predict(text).answer for text in ("好", "差", "很", "好差", "差好差")}
    assert answers == {"好": ("good",), "差": ("bad",), "很": LABELS, "好差": LABELS, "差好差": ("bad",)}
    found = several.predict_batch(["店很好", NO_TOKEN, "差"], batch_size=2)
    assert found == [several.predict(text) for text in ("店很好", NO_TOKEN, "差")]
    bad, good = logits_of("店很好")
    assert found[0].scores == pytest.approx({"bad": 1 / (1 + math.exp(-bad)), "good": 1 / (1 + math.exp(-good))})


# --- pairs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(write_model_folder(tmp_path_factory.mktemp("pairs") / "model", task="text-pair-classification"))


def test_a_pair_is_two_texts_of_which_each_has_its_place(pairs: Predictor) -> None:
    first, second = logits_of("店很好"), logits_of("差")
    assert pairs.logits([("店很好", "差")]) == [[a - b for a, b in zip(first, second, strict=True)]]
    assert pairs.predict("好", "差").label == "good"
    assert pairs.predict("差", "好").label == "bad"
    assert pairs.predict(("好", "差")) == pairs.predict("好", "差")


def test_both_texts_of_a_pair_are_cut(pairs: Predictor) -> None:
    # 13 of 16 places hold text: the first gets the odd one.
    assert pairs.predict("好" * 7 + "差" * 50, "好" * 6 + "差" * 50) == pairs.predict("好" * 7, "好" * 6)
    assert pairs.predict("差", "好" * 12 + "差" * 50) == pairs.predict("差", "好" * 12)


@pytest.mark.parametrize("item", ["好", ("好",), ("好", "差", "店"), ("a", None), ("a", 5)])
def test_a_model_of_pairs_wants_two_texts(pairs: Predictor, item: Any) -> None:
    for ask in (lambda: pairs.predict(item), lambda: pairs.logits([("好", "差"), item])):
        with pytest.raises(UsageError, match="this model takes pairs of texts"):
            ask()
    with pytest.raises(UsageError, match="a pair is two texts"):
        pairs.predict(("好", "差"), "店")


@pytest.mark.parametrize("item", [None, 5, b"x", [5]])
def test_other_models_want_one_text(predictor: Predictor, tokens: Predictor, item: Any) -> None:
    for model in (predictor, tokens):
        for ask in (model.predict, model.timed_predict):
            with pytest.raises(UsageError, match="this model takes single texts, not pairs"):
                ask("好", "差")
        with pytest.raises(UsageError, match="this model takes single texts, not pairs"):
            model.predict_batch(["好", ("好", "差")])
        with pytest.raises(UsageError, match=r"is not a text|a text is a str"):
            model.predict(item)


# --- tokens ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(write_model_folder(tmp_path_factory.mktemp("tokens") / "model", task="token-classification"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("好店很好", [(1, 3, "place", "店很")]),
        ("店店很很，OK", [(0, 1, "place", "店"), (1, 4, "place", "店很很"), (5, 7, "name", "OK")]),
        ("  okay\u3000店 ", [(2, 6, "name", "okay"), (7, 8, "place", "店")]),  # two tokens of one word
        ("店 \n 很", [(0, 5, "place", "店 \n 很")]),
        ("好很很ok", [(1, 3, "place", "很很"), (3, 5, "name", "ok")]),  # I-place without B-place starts one
        ("店\u200b很", [(0, 3, "place", "店\u200b很")]),  # what the model does not see may stand inside
        ("好\u0301店\u0301", [(2, 4, "place", "店\u0301")]),
        ("\ud83d店\ud83d好", [(1, 2, "place", "店")]),
        ("好" * 13 + "店店店", [(13, 14, "place", "店")]),  # 14 tokens are read, the rest is not
        (NO_TOKEN, []),
        ("\x00 \ue000\t", []),
        ("好差", []),
    ],
)
def test_spans_are_characters_of_the_text(
    tokens: Predictor, text: str, expected: list[tuple[int, int, str, str]]
) -> None:
    found = tokens.predict(text)
    assert [(span.start, span.end, span.label, span.text) for span in found.spans] == expected
    assert found.answer == tuple(Span(start, end, label) for start, end, label, _ in expected)
    score = math.exp(TAG_LOGIT) / (math.exp(TAG_LOGIT) + len(TAGS) - 1)
    assert [span.score for span in found.spans] == pytest.approx([score] * len(expected))


def test_logits_of_tokens_are_those_of_each(tokens: Predictor) -> None:
    logits = tokens.logits(["店", "好店ok"])
    assert [(len(rows), len(rows[0])) for rows in logits] == [(3, len(TAGS)), (5, len(TAGS))]
    assert [TAGS[row.index(max(row))] for row in logits[1][1:4]] == ["O", "B-place", "B-name"]
    assert tokens.labels == TAGS


def test_several_texts_are_any_iterable_but_a_text(predictor: Predictor) -> None:
    texts = ["店很好", "差", "好"]
    expected = [predictor.predict(text) for text in texts]
    assert predictor.predict_batch(text for text in texts) == expected
    assert predictor.predict_batch(dict.fromkeys(texts)) == expected
    assert predictor.predict_batch([]) == []
    assert predictor.timed_batch([]) == ([], (0.0, 0.0, 0.0))
    several = (predictor.predict_batch, predictor.timed_batch, predictor.logits)
    for ask in (*several, lambda text: list(predictor.stream(text))):
        with pytest.raises(UsageError, match="one text was given instead of several"):
            ask("店很好")
