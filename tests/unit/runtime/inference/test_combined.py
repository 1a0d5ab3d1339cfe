"""A linear model beside a tiny encoder: sums, cascades, the linear model alone, in each way to predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import LABELS, logits_of, write_model_folder

from edgepack_runtime.bundle.model_config import (
    CONFIG_NAME,
    LINEAR_NAME,
    MODEL_NAME,
    VOCAB_NAME,
    LinearConfig,
    dump,
    linear_alone,
    weight_bytes,
)
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.inference import bench, linear
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import task_by_name

# The linear model is sure that 好 is good, and leans to bad for 店. It does not know 差.
DOCUMENT = linear.document(["好", "店"], [[-4.0, 4.0], [0.5, -0.5]], [1.0, 1.0], [0.0, 0.0])
TEXTS = ["好", "店差", "差", "\ufffd", "店", "好差", "很好", "店店很"] * 3


def folder_of(folder: Path, linear: LinearConfig, document: Any = DOCUMENT, **config: Any) -> Path:
    write_model_folder(folder, linear=linear, **config)
    (folder / LINEAR_NAME).write_text(json.dumps(document), encoding="utf-8")
    return folder


def linear_logits(text: str) -> list[float]:
    return LinearModel(DOCUMENT).logits(text)


def summed(text: str) -> list[float]:
    return [0.5 * ours + 2.0 * theirs for ours, theirs in zip(logits_of(text), linear_logits(text), strict=True)]


@pytest.fixture
def cascade(tmp_path: Path) -> Predictor:
    return Predictor(folder_of(tmp_path / "model", LinearConfig("cascade", 0.5, 2.0, 3.0)))


@pytest.fixture
def ensemble(tmp_path: Path) -> Predictor:
    return Predictor(folder_of(tmp_path / "model", LinearConfig("ensemble", 0.5, 2.0)))


def test_an_ensemble_adds_the_logits_with_their_weights(ensemble: Predictor) -> None:
    for text in TEXTS:
        assert ensemble.logits([text])[0] == pytest.approx(summed(text))
        assert ensemble.predict(text).answer == LABELS[summed(text)[1] > summed(text)[0]]
    assert ensemble.combined is not None and ensemble.combined.answered == (0, len(TEXTS))


def test_a_cascade_runs_the_encoder_where_the_linear_model_is_unsure(cascade: Predictor) -> None:
    for text in ("好", "很好"):
        bad, good = linear_logits(text)
        assert good - bad > 3.0
        assert not cascade.needs_encoder(text)
        scores = cascade.predict(text).scores  # type: ignore[union-attr]
        assert scores["good"] / scores["bad"] == pytest.approx(2.718281828 ** (good - bad))
    for text in ("店差", "差", "\ufffd", "店"):
        assert cascade.needs_encoder(text)
        bad, good = summed(text)
        scores = cascade.predict(text).scores  # type: ignore[union-attr]
        assert scores["good"] / scores["bad"] == pytest.approx(2.718281828 ** (good - bad))
    assert cascade.combined is not None and cascade.combined.answered == (2, 4)
    assert cascade.logits(["好"])[0] == pytest.approx(summed("好"))  # of both models, for every text


def test_batches_streams_and_single_texts_have_the_same_answers(cascade: Predictor) -> None:
    alone = [cascade.predict(text) for text in TEXTS]
    assert cascade.predict_batch(TEXTS, batch_size=5) == alone
    for settings in ({"workers": 1}, {"workers": 2, "block_items": 3}):
        assert list(cascade.stream(TEXTS, **settings)) == alone
    assert list(cascade.stream(["好", "很好"])) == [alone[0], alone[6]]  # no text for the encoder
    assert cascade.timed_batch(["好"])[1].run_ms < cascade.timed_batch(["差"])[1].run_ms


def test_with_windows_the_linear_model_reads_the_whole_text(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", LinearConfig("cascade", 0.5, 2.0, 3.0))
    windows = Predictor(folder, long_texts="windows")
    text = "差" * 40 + "好"
    assert not windows.needs_encoder(text)
    assert windows.predict(text).answer == "good"
    unsure = "差" * 40 + "店"
    assert windows.needs_encoder(unsure)
    assert windows.predict(unsure).answer == "bad"
    items = [text, unsure, "好", "店"]
    assert windows.predict_batch(items) == [windows.predict(item) for item in items] == list(windows.stream(items))


def test_the_linear_model_alone_needs_no_encoder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", LinearConfig("only"))
    (folder / MODEL_NAME).unlink()
    (folder / VOCAB_NAME).unlink()
    alone = Predictor(folder)
    assert (alone.engine, alone.providers) == ("linear", ())
    assert alone.logits(["好", "店"]) == [linear_logits("好"), linear_logits("店")]
    assert [one.answer for one in alone.predict_batch(["好", "店", "差"])] == ["good", "bad", "bad"]
    assert [one.answer for one in alone.stream(["好", "店"])] == ["good", "bad"]
    assert alone.combined is not None and alone.combined.answered == (5, 0)
    assert weight_bytes(folder) == (folder / LINEAR_NAME).stat().st_size
    timed = bench.compare([folder], ["好"] * 5, threads=1, runs=1, progress=lambda line: None)
    assert timed["models"][0]["mean_ms"] > 0
    windows = Predictor(folder, long_texts="windows")
    assert (windows.predict("店" * 40 + "好").answer, windows.cut_texts) == ("good", 0)
    with pytest.raises(BundleInvalidError, match="has no tokens"):
        alone.text_model.tokens("好")


def test_several_labels_are_sure_if_each_is(tmp_path: Path) -> None:
    linear = LinearConfig("cascade", 1.0, 0.0, 3.0)
    model = Predictor(folder_of(tmp_path / "model", linear, multi_label=True))
    assert not model.needs_encoder("好")
    assert model.predict("好").answer == ("good",)
    assert model.needs_encoder("店")  # both of its logits are near 0
    assert model.predict("差").answer == ("bad",)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "linear.json cannot be used"),
        ({}, "linear.json cannot be used"),
        (linear.document(["好"], [[1.0, 2.0, 3.0]], [1.0], [0.0] * 3), "do not belong together"),
    ],
)
def test_a_linear_model_that_does_not_fit_is_refused(document: Any, why: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", LinearConfig("ensemble"), document)
    if document is None:
        (folder / LINEAR_NAME).unlink()
    with pytest.raises(BundleInvalidError, match=why):
        Predictor(folder)


@pytest.mark.parametrize("task", ["text-pair-classification", "text-pair-regression"])
@pytest.mark.parametrize("mode", ["ensemble", "cascade", "only"])
def test_pairs_have_a_linear_model_in_each_way_to_predict(tmp_path: Path, task: str, mode: str) -> None:
    number = task.endswith("regression")
    labels = ("value",) if number else LABELS
    weights = [[1.5], [-1.0], [0.5]] if number else [[-4.0, 4.0], [2.0, -2.0], [0.5, -0.5]]
    document = linear.document(["=好", "~差", "j1:10"], weights, [1.0] * 3, [0.25] * len(labels))
    config = LinearConfig("only") if mode == "only" else LinearConfig(mode, 0.5, 2.0, 3.0)
    fields: Any = {"task": task, "labels": labels}
    folder = tmp_path / "model"
    if mode == "only":
        folder.mkdir()
        alone = linear_alone(task_by_name(task), labels)
        (folder / CONFIG_NAME).write_bytes(dump(alone))
        (folder / LINEAR_NAME).write_text(json.dumps(document), encoding="utf-8")
    else:
        folder_of(folder, config, document, **fields)
    predictor, pairs = Predictor(folder), [("好", "好"), ("好店", "差店"), ("很好", "好"), ("\ufffd", "店")] * 3
    one_by_one = [predictor.predict(pair) for pair in pairs]
    assert predictor.predict_batch(pairs) == one_by_one == list(predictor.stream(pairs))
    model = LinearModel(document)
    if mode == "only":
        found = [prediction.answer for prediction in one_by_one]
        wanted = [model.logits(pair) for pair in pairs]
        expected = [round(row[0], 6) for row in wanted] if number else [labels[row.index(max(row))] for row in wanted]
        assert found == expected
    assert len(predictor.logits(pairs[:2])) == 2
    with pytest.raises(UsageError, match="takes pairs"):
        predictor.predict("好")
