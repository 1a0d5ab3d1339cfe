from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tiny_model import LABELS, logits_of, write_model_folder, write_onnx

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, StepFailedError
from edgepack_runtime.model_config import EngineConfig
from edgepack_runtime.predictor import Predictor


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
    with pytest.raises(StepFailedError, match="could not be run"):
        Predictor(folder)


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_a_broken_model_is_named(tmp_path: Path, content: bytes | None) -> None:
    folder = write_model_folder(tmp_path / "model")
    if content is None:
        (folder / "model.onnx").unlink()
    else:
        (folder / "model.onnx").write_bytes(content)
    with pytest.raises(BundleInvalidError if content is None else StepFailedError, match=r"model\.onnx"):
        Predictor(folder)


@pytest.mark.parametrize("logits", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_what_is_no_number_is_no_answer(predictor: Predictor, logits: list[float]) -> None:
    with pytest.raises(StepFailedError, match="no number"):
        predictor._decide(logits)


def test_huge_logits_do_not_overflow(predictor: Predictor) -> None:
    assert predictor._decide([3e38, -3e38]).scores == {"bad": 1.0, "good": 0.0}
