"""Long texts: short ones are answered as ever, and of long ones nothing is left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.tiny_model import LABELS, logits_of, write_model_folder

from edgepack_runtime.errors import UsageError
from edgepack_runtime.inference.loaded_model import UnwantedError
from edgepack_runtime.inference.predictor import Predictor

TOKENS = "token-classification"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    root = tmp_path_factory.mktemp("models")
    found = {}
    for kind, config in {"one": {}, "several": {"multi_label": True}, "tokens": {"task": TOKENS}}.items():
        folder = write_model_folder(root / kind, **config)  # type: ignore[arg-type]
        found[kind] = Predictor(folder)
        found[f"{kind}, windows"] = Predictor(folder, long_texts="windows")
    return found


@given(
    st.text("好差店很ok, \ud83d\u0301", max_size=30).filter(str.strip), st.sampled_from(["one", "several", "tokens"])
)
def test_a_text_that_fits_is_answered_the_same(models: dict[str, Predictor], text: str, kind: str) -> None:
    if len(models[kind].text_model.tokenizer.encode([text], 1000)[0]) <= 16:
        assert models[f"{kind}, windows"].predict(text) == models[kind].predict(text)


@pytest.mark.parametrize("kind", ["one", "tokens"])
def test_texts_that_were_cut_are_counted(models: dict[str, Predictor], kind: str) -> None:
    model, before = models[kind], models[kind].cut_texts
    found = [model.predict("好" * length) for length in (14, 15, 40)]  # of 16 tokens, two are [CLS] and [SEP]
    assert model.cut_texts - before == 2
    assert found[0] == found[1] == found[2] or kind == "tokens"
    assert list(model.stream(["好" * 20] * 3)) == [found[1]] * 3
    assert model.cut_texts - before == 5
    assert (model.text_model.tokens("好" * 40), len(model.logits(["好" * 40]))) == (
        16,
        1,
    ) and model.cut_texts - before == 5
    assert models[f"{kind}, windows"].predict("好" * 40) and models[f"{kind}, windows"].cut_texts == 0


def test_one_label_is_the_mean_of_the_windows_weighted_by_the_tokens_that_are_theirs(
    models: dict[str, Predictor],
) -> None:
    # 14 places hold text: 22 tokens are two windows, 0 to 14 and 8 to 22, which meet at 11.
    text = "好" * 11 + "差" * 11
    parts = [logits_of(text[:14]), logits_of(text[8:])]
    goods = [1 / (1 + math.exp(bad - good)) for bad, good in parts]
    found = models["one, windows"].predict(text)
    assert found.scores["good"] == pytest.approx(sum(goods) / 2)
    assert sum(found.scores.values()) == pytest.approx(1)
    assert found.score == max(found.scores.values()) == found.scores[found.label]
    # 29 tokens: 0 to 14, 7 to 21, 15 to 29; 11, 7 and 11 of them are theirs.
    text = "差" * 7 + "好" * 22
    goods = [1 / (1 + math.exp(bad - good)) for bad, good in (logits_of(text[s : s + 14]) for s in (0, 7, 15))]
    weights = [11, 7, 11]
    expected = sum(good * weight for good, weight in zip(goods, weights, strict=True)) / 29
    assert models["one, windows"].predict(text).scores["good"] == pytest.approx(expected)
    assert models["one"].predict(text).label == models["one"].predict(text[:14]).label


def test_of_several_labels_each_has_its_highest_probability(models: dict[str, Predictor]) -> None:
    text = "差" * 14 + "好" * 14
    assert models["several"].predict(text).answer == ("bad",)
    found = models["several, windows"].predict(text)
    assert found.answer == LABELS
    alone = models["several"].predict("好" * 14)
    assert found.scores["good"] == alone.scores["good"]


@given(st.text("店很好差，ok \u0301\ud83d", max_size=120).filter(str.strip))
def test_spans_are_found_to_the_end_and_tell_their_characters(models: dict[str, Predictor], text: str) -> None:
    """The tiny model sees each token by itself, so windows must find what one long window would."""
    found, tokenizer = models["tokens, windows"].predict(text), models["tokens"].text_model.tokenizer
    places = {tokenizer.encode([word], 16)[0][1] for word in "店很"}
    expected = [
        text[start]
        for ids, offsets in zip(*tokenizer.encode_with_offsets([text], 10_000), strict=True)
        for token, (start, _) in zip(ids, offsets, strict=True)
        if token in places
    ]
    shown = [character for span in found.spans if span.label == "place" for character in span.text]
    assert [character for character in shown if character in "店很"] == expected
    for span in found.spans:
        assert text[span.start : span.end] == span.text


def test_a_span_across_two_windows_is_one(models: dict[str, Predictor]) -> None:
    text = "好" * 10 + "店" + "很" * 20 + "好" * 10
    [span] = models["tokens, windows"].predict(text).spans
    assert (span.start, span.end) == (10, 31)


def test_a_text_far_longer_than_a_window(models: dict[str, Predictor]) -> None:
    assert models["one, windows"].predict("好" * 5000).label == "good"
    assert models["one, windows"].predict("差" * 50 + "好" * 5000).label == "good"
    assert models["one"].predict("差" * 50 + "好" * 5000).label == "bad"


def test_a_text_of_too_many_windows_is_refused_where_they_are_limited(tmp_path: Path) -> None:
    limited = Predictor(write_model_folder(tmp_path / "one"), long_texts="windows", max_windows=2)
    assert limited.predict("好" * 25).label == "good"
    with pytest.raises(UsageError, match="3 windows of 16 tokens, and 2 are read"):
        limited.predict("好" * 26)
    assert limited.logits(["好" * 26])  # which cuts it


def test_windows_of_which_nobody_wants_the_answer_are_not_run(
    models: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, asked = models["one, windows"], [], iter([True, True, False])
    run = model.text_model._run_rows
    monkeypatch.setattr(model.text_model, "_run_rows", lambda found: rows.append(len(found)) or run(found))
    with pytest.raises(UnwantedError):
        model.timed_batch(["好" * 5000], lambda: next(asked))
    assert rows == [32, 32]


def test_what_windows_are_not_for(tmp_path: Path) -> None:
    pairs = write_model_folder(tmp_path / "pairs", task="text-pair-classification")
    with pytest.raises(UsageError, match="has no windows"):
        Predictor(pairs, long_texts="windows")
    with pytest.raises(UsageError, match="cannot be treated by 'cut'"):
        Predictor(pairs, long_texts="cut")


def test_the_logits_are_of_the_text_as_it_is_cut(models: dict[str, Predictor]) -> None:
    text = "好" * 50
    assert models["one, windows"].logits([text]) == models["one"].logits([text])


@pytest.mark.parametrize("length", [0, 3, 10, 40, 90])
def test_an_answer_is_found_wherever_it_is_in_a_long_text(tmp_path: Path, length: int) -> None:
    """Of at most 16 tokens a window has [CLS], the question and two [SEP]: 11 tokens of a text are left."""
    folder = write_model_folder(tmp_path / "reading", task="reading")
    text = "店" * length + "好很差" + "店" * 20
    for long_texts in ("truncate", "windows"):  # it has them always
        model = Predictor(folder, long_texts=long_texts)
        found = model.predict(("很好", text))
        assert found.as_json(with_scores=False) | {"score": 0} == {
            "answer": "好很差", "start": length, "end": length + 3, "score": 0,
        }  # fmt: skip
        assert list(model.stream([("很好", text)] * 3)) == [found] * 3
        assert model.predict_batch([("很好", "店"), ("很好", text)])[1] == found
    with pytest.raises(UsageError, match="windows of 16 tokens, and 2 are read"):
        Predictor(folder, max_windows=2).predict(("很好", "店" * 90))
