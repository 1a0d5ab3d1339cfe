"""Text in, label out: the one way a shipped model is run, by the application and by every measurement."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from edgepack_runtime import model_config
from edgepack_runtime.engine import open_engine
from edgepack_runtime.errors import BundleInvalidError, StepFailedError
from edgepack_runtime.tokenizer import ErnieTokenizer


class Prediction(NamedTuple):
    """`score` is the probability (softmax, 0 to 1) of `label`; `scores` has those of all labels, in model order."""

    label: str
    score: float
    scores: Mapping[str, float]


class Split(NamedTuple):
    """Where the milliseconds of one prediction went."""

    tokenize_ms: float
    run_ms: float
    post_ms: float

    @property
    def total_ms(self) -> float:
        return self.tokenize_ms + self.run_ms + self.post_ms


class Predictor:
    """A model folder, loaded and run once: nothing is left to load at the first prediction.

    All methods may be called from several threads at once.

    Args:
        model_folder: holds `model.onnx`, `vocab.txt` and `model.json`.
        threads: threads that one prediction may use.

    Raises:
        BundleInvalidError: a file is missing or not what it should be.
        EnvironmentUnfitError: the execution provider that the model asks for is not active.
        StepFailedError: the engine cannot load or run the model.
    """

    def __init__(self, model_folder: Path, *, threads: int = 1) -> None:
        self.config = model_config.load(model_folder)
        self._tokenizer = ErnieTokenizer(model_folder / model_config.VOCAB_NAME, self.config.tokenizer)
        self._engine = open_engine(self.config.engine, model_folder, threads)
        shape = self.logits(["好"]).shape
        if shape != (1, len(self.config.labels)):
            raise BundleInvalidError(
                f"{model_config.MODEL_NAME} and {model_config.CONFIG_NAME} do not belong together",
                why=f"one text gives logits of shape {shape} for {len(self.config.labels)} labels",
                fix="build the bundle again",
            )

    @property
    def labels(self) -> Tuple[str, ...]:
        """Labels in the order of the logits."""
        return self.config.labels

    @property
    def providers(self) -> Tuple[str, ...]:
        """Execution providers that are really active."""
        return self._engine.providers

    def predict(self, text: str) -> Prediction:
        """The label of one text, of any length; it is cut to the model's `max_length` tokens.

        Raises:
            StepFailedError: the model cannot be run, or gives something that is no number.
        """
        return self.timed_predict(text)[0]

    def predict_batch(self, texts: Sequence[str], batch_size: int = 32) -> List[Prediction]:
        """Labels of `texts`, in their order, `batch_size` at a time. Raises as `predict`."""
        predictions: List[Prediction] = []
        for start in range(0, len(texts), batch_size):
            predictions += [self._decide(row) for row in self.logits(texts[start : start + batch_size]).tolist()]
        return predictions

    def logits(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Logits of `texts` as one batch, float32 with shape (B, n_labels). Raises as `predict`."""
        if not texts:
            return np.zeros((0, len(self.config.labels)), dtype=np.float32)
        input_ids, token_type_ids = self._tokenizer.encode_batch(texts, self.config.max_length)  # (B, T)
        return self._engine.run(input_ids, token_type_ids)

    def timed_predict(self, text: str) -> Tuple[Prediction, Split]:
        """`predict`, with the time that each part took. Raises as `predict`."""
        begin = time.perf_counter()
        input_ids, token_type_ids = self._tokenizer.encode_batch([text], self.config.max_length)  # (1, T)
        tokenized = time.perf_counter()
        logits = self._engine.run(input_ids, token_type_ids)  # (1, n_labels)
        ran = time.perf_counter()
        prediction = self._decide(logits[0].tolist())
        done = time.perf_counter()
        return prediction, Split((tokenized - begin) * 1e3, (ran - tokenized) * 1e3, (done - ran) * 1e3)

    def _decide(self, logits: Sequence[float]) -> Prediction:
        # Plain Python: for the few labels of a classifier, NumPy's calls cost more than the arithmetic.
        highest = max(logits)
        weights = [math.exp(value - highest) for value in logits]
        total = sum(weights)
        if not math.isfinite(total):
            raise StepFailedError("the model gave something that is no number", why=f"its logits are {logits}")
        scores: Dict[str, float] = {label: weight / total for label, weight in zip(self.config.labels, weights)}
        label = self.config.labels[weights.index(max(weights))]
        return Prediction(label, scores[label], scores)
