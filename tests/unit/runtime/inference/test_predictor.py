from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tiny_model import LABELS, TAG_LOGIT, TAGS, logits_of, write_model_folder, write_onnx

from edgepack_runtime.bundle.model_config import PAIR, EngineConfig
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, StageFailedError, UsageError
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.util.spans import Span


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
    for text in ("", " ", "\ud800", "\x00", "好" * 10_000, "x" * 10_000):
        assert predictor.predict(text).label in LABELS


def test_a_text_is_cut_to_the_models_length(predictor: Predictor) -> None:
    # 14 of 16 places hold text. What stands beyond them would turn the label.
    assert predictor.predict("好" * 14 + "差" * 100) == predictor.predict("好" * 14)


def test_a_batch_is_the_texts_one_by_one_in_their_order(predictor: Predictor) -> None:
    texts = ["好", "差差差", "", "店很好，", "差好"] * 9
    one_by_one = [predictor.predict(text) for text in texts]
    for batch_size in (1, 7, 32, 100):
        assert predictor.predict_batch(texts, batch_size=batch_size) == one_by_one
    assert predictor.predict_batch([]) == []


@pytest.mark.parametrize("name", ["workers", "batch_tokens", "block_items"])
@pytest.mark.parametrize("number", [0, -1, 1.5, math.nan])
def test_numbers_that_mean_nothing_are_refused(predictor: Predictor, name: str, number: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} is {number}"):
        list(predictor.stream(["好"], **{name: number}))
    with pytest.raises(UsageError, match=f"batch_size is {number}"):
        predictor.predict_batch(["好"], batch_size=number)
    with pytest.raises(UsageError, match=f"threads is {number}"):
        Predictor(threads=number)


def test_more_threads_than_any_device_has_are_refused() -> None:
    with pytest.raises(UsageError, match="threads is 1000000000"):
        Predictor(threads=10**9)


def test_a_number_of_numpy_is_a_number(predictor: Predictor) -> None:
    assert len(predictor.predict_batch(["好", "差"], batch_size=np.int64(1))) == 2  # type: ignore[arg-type]


def test_one_text_is_no_batch_for_logits_either(predictor: Predictor) -> None:
    with pytest.raises(UsageError, match="one text was given"):
        predictor.logits("好差")


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_texts_of_different_length_share_no_run_where_padding_would_show(tmp_path: Path, task: str) -> None:
    hiding = Predictor(write_model_folder(tmp_path / "hiding", task=task))
    bare = Predictor(write_model_folder(tmp_path / "bare", task=task, hides_padding=False))
    texts = ["好", "差差店店", "", "店很好，", "差好", "[PAD]好", "好" * 40] * 3
    assert bare.predict_batch(texts) == [bare.predict(text) for text in texts]
    plain = [text for text in texts if "[PAD]" not in text]
    assert bare.predict_batch(plain) == hiding.predict_batch(plain)
    assert bare.logits(texts).shape == hiding.logits(texts).shape
    if task == "text-classification":  # of tokens, what stands for padding means nothing
        assert np.array_equal(bare.logits(plain), hiding.logits(plain))


@pytest.mark.parametrize("hides_padding", [True, False])
def test_a_text_is_run_by_itself_where_others_would_change_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hides_padding: bool
) -> None:
    folder = write_model_folder(tmp_path / "model", run_alone=True, hides_padding=hides_padding)
    predictor = Predictor(folder)
    run, shapes = predictor._engine.run, []

    def watched(ids: Any, types: Any) -> Any:
        shapes.append(ids.shape)
        return run(ids, types)

    monkeypatch.setattr(predictor._engine, "run", watched)
    texts = ["好", "差差店店", "好", "店很好，"]
    expected = [predictor.predict(text) for text in texts]
    alone = list(shapes)
    assert alone == [(1, 3), (1, 6), (1, 3), (1, 6)]
    for ask in (predictor.predict_batch, lambda given: list(predictor.stream(given, workers=1))):
        shapes.clear()
        assert ask(texts) == expected
        assert sorted(shapes) == sorted(alone)


def test_logits_are_the_models(predictor: Predictor) -> None:
    logits = predictor.logits(["店很好", "差"])
    assert logits.dtype == np.float32
    assert logits.tolist() == [logits_of("店很好"), logits_of("差")]
    assert predictor.logits([]).shape == (0, 2)


def test_the_split_adds_up(predictor: Predictor) -> None:
    prediction, split = predictor.timed_predict("店很好")
    assert prediction == predictor.predict("店很好")
    assert min(split) > 0
    assert split.total_ms == sum(split)


def test_threads_do_not_mix_answers_up(predictor: Predictor) -> None:
    texts = ["好" * n + "差" * (14 - n) for n in range(15)] * 20
    expected = [predictor.predict(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predictor.predict, texts)) == expected


def test_what_is_active_is_told(predictor: Predictor) -> None:
    assert predictor.providers == ("CPUExecutionProvider",)
    assert predictor.labels == LABELS


def test_a_provider_that_is_not_there_is_no_reason_to_fall_back(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model", engine=EngineConfig(provider="CUDAExecutionProvider"))
    with pytest.raises(EnvironmentUnfitError, match="CUDAExecutionProvider"):
        Predictor(folder)


def test_a_provider_that_is_there_but_not_active_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime lists a provider whose libraries do not load, and falls back to the CPU with a warning."""
    open_session = onnxruntime.InferenceSession
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda path, options, providers, **more: open_session(path, options, providers=["CPUExecutionProvider"]),
    )
    folder = write_model_folder(tmp_path / "model", engine=EngineConfig(provider="CUDAExecutionProvider"))
    with pytest.raises(EnvironmentUnfitError, match="not active"):
        Predictor(folder)


def test_the_engine_gets_what_the_model_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    open_session = onnxruntime.InferenceSession

    def spy(path: str, options: onnxruntime.SessionOptions, **more: object) -> onnxruntime.InferenceSession:
        seen.append((options, more))
        return open_session(path, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", spy)
    engine = EngineConfig(disabled_optimizers=("SkipLayerNormFusion",))
    Predictor(write_model_folder(tmp_path / "model", engine=engine), threads=2)
    [(options, more)] = seen
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert more == {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["SkipLayerNormFusion"]}


def test_labels_and_graph_must_agree(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalidError, match="do not belong together"):
        Predictor(write_model_folder(tmp_path / "model", labels=("a", "b", "c"), outputs=2))


def test_a_graph_of_another_form_is_refused(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    write_onnx(folder / "model.onnx", input_name="ids")
    with pytest.raises(BundleInvalidError, match="not a text classifier"):
        Predictor(folder)


def test_a_vocabulary_larger_than_the_graph_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model")
    write_onnx(folder / "model.onnx", vocab=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    with pytest.raises(StageFailedError, match="could not be run"):
        Predictor(folder)


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
    found = several.predict_batch(["店很好", "", "差"], batch_size=2)
    assert found == [several.predict(text) for text in ("店很好", "", "差")]
    bad, good = logits_of("店很好")
    assert found[0].scores == pytest.approx({"bad": 1 / (1 + math.exp(-bad)), "good": 1 / (1 + math.exp(-good))})


# --- pairs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return Predictor(write_model_folder(tmp_path_factory.mktemp("pairs") / "model", task="text-pair-classification"))


def test_a_pair_is_two_texts_of_which_each_has_its_place(pairs: Predictor) -> None:
    first, second = logits_of("店很好"), logits_of("差")
    assert pairs.logits([("店很好", "差")]).tolist() == [[a - b for a, b in zip(first, second, strict=True)]]
    assert pairs.predict("好", "差").label == "good"
    assert pairs.predict("差", "好").label == "bad"
    assert pairs.predict(("好", "差")) == pairs.predict("好", "差")
    assert pairs.logits([]).shape == (0, 2)


def test_a_batch_of_pairs_is_the_pairs_one_by_one(pairs: Predictor) -> None:
    items = [("好", "差"), ("店", ""), ("", "很好" * 20), ("差" * 30, "好"), ("\ud800好", "差\udc00")] * 5
    one_by_one = [pairs.predict(*item) for item in items]
    for batch_size in (1, 7, 32):
        assert pairs.predict_batch(items, batch_size=batch_size) == one_by_one


def test_both_texts_of_a_pair_are_cut(pairs: Predictor) -> None:
    # 13 of 16 places hold text: the first gets the odd one.
    assert pairs.predict("好" * 7 + "差" * 50, "好" * 6 + "差" * 50) == pairs.predict("好" * 7, "好" * 6)
    assert pairs.predict("差", "好" * 12 + "差" * 50) == pairs.predict("差", "好" * 12)


@pytest.mark.parametrize("item", ["好", ("好",), ("好", "差", "店")])
def test_a_model_of_pairs_wants_two_texts(pairs: Predictor, item: Any) -> None:
    for ask in (lambda: pairs.predict(item), lambda: pairs.logits([("好", "差"), item])):
        with pytest.raises(UsageError, match="this model takes pairs of texts"):
            ask()


def test_other_models_want_one_text(predictor: Predictor, tokens: Predictor) -> None:
    for model in (predictor, tokens):
        for ask in (model.predict, model.timed_predict):
            with pytest.raises(UsageError, match="this model takes one text at a time"):
                ask("好", "差")
        with pytest.raises(UsageError, match="this model takes one text at a time"):
            model.predict_batch(["好", ("好", "差")])


def test_three_texts_are_no_pair(pairs: Predictor) -> None:
    with pytest.raises(UsageError, match="a pair is two texts"):
        pairs.predict(("好", "差"), "店")


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
        ("", []),
        ("\x00 \t", []),
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


def test_a_batch_of_texts_with_spans_is_the_texts_one_by_one(tokens: Predictor) -> None:
    texts = ["好店很好", "", "店", "ok店" * 40, "okay"] * 5
    one_by_one = [tokens.predict(text) for text in texts]
    for batch_size in (1, 7, 32):
        assert tokens.predict_batch(texts, batch_size=batch_size) == one_by_one


def test_logits_of_tokens_are_those_of_each(tokens: Predictor) -> None:
    logits = tokens.logits(["店", "好店ok"])
    assert logits.shape == (2, 5, len(TAGS)) and logits.dtype == np.float32
    assert logits[1, 1:4].argmax(axis=1).tolist() == [TAGS.index(tag) for tag in ("O", "B-place", "B-name")]
    assert tokens.logits([]).shape == (0, 0, len(TAGS))
    assert tokens.labels == TAGS


def test_a_graph_of_another_task_is_refused(tmp_path: Path) -> None:
    folder = write_model_folder(tmp_path / "model", labels=TAGS, outputs=len(TAGS))
    write_onnx(folder / "model.onnx", n_labels=len(TAGS), tokens=True)
    with pytest.raises(BundleInvalidError, match="do not belong together") as caught:
        Predictor(folder)
    assert "logits of shape (1, 3, 5); text-classification with 5 labels has (1, 5)" in caught.value.why
    other = write_model_folder(tmp_path / "other", task="token-classification")
    write_onnx(other / "model.onnx", n_labels=len(TAGS))
    with pytest.raises(BundleInvalidError, match="do not belong together"):
        Predictor(other)


@pytest.mark.parametrize("item", [None, 5, b"x", ["a"]])
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, item: Any) -> None:
    predictor = Predictor(write_model_folder(tmp_path / "m"))
    with pytest.raises(UsageError, match=r"is no text|a text is a str"):
        predictor.predict(item)
    pairs = Predictor(write_model_folder(tmp_path / "pairs", task=PAIR))
    with pytest.raises(UsageError, match="takes pairs of texts"):
        pairs.predict(("a", item))


def test_one_text_is_not_several(tmp_path: Path) -> None:
    predictor = Predictor(write_model_folder(tmp_path / "m"))
    with pytest.raises(UsageError, match="one text was given where several"):
        predictor.predict_batch("很好")
    with pytest.raises(UsageError, match="one text was given where several"):
        next(iter(predictor.stream("很好")))


def test_several_are_whatever_can_be_gone_through_once(predictor: Predictor) -> None:
    texts = ["店很好", "差", "好"]
    expected = [predictor.predict(text) for text in texts]
    assert predictor.predict_batch(text for text in texts) == expected
    assert predictor.predict_batch(dict.fromkeys(texts)) == expected
    assert predictor.predict_batch([]) == []
    assert predictor.timed_batch([]) == ([], (0.0, 0.0, 0.0))
    with pytest.raises(UsageError, match="one text was given"):
        predictor.timed_batch("店很好")
