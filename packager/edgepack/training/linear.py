"""Training of the linear model on characters: linear support vectors on n-grams, scaled on the dev rows.

One vector per label, each against the others (LinearSVC: squared hinge loss, L2). The regularisation has the lowest log
loss on the dev rows, with its scores at their best temperature (Guo et al., 2017).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack import calibration, evaluation
from edgepack.artifacts import Row
from edgepack.data.sampling import Sampler
from edgepack_runtime.inference import linear

MOST_ROWS: Final = 200_000  # that are fitted; a seeded sample of more
MOST_NGRAMS: Final = 20_000  # those with the largest weights; more were at most 0.2 points better, at 3 x the size
LEAST_ROWS: Final = 2  # that an n-gram occurs in, unless there are few rows
FEW_ROWS: Final = 100
_REGULARISATIONS: Final = (0.1, 0.3, 1.0)  # C of LinearSVC
_SEED: Final = 0
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A fitted model: the content of `linear.json`, the number of its n-grams and its regularisation (C)."""

    document: Mapping[str, Any]
    ngrams: int
    regularisation: float


def sample(rows: Iterable[Row], total: int, most: int = MOST_ROWS) -> list[Row]:
    """All of `total` rows, or a seeded sample of `most` of them."""
    draw = Sampler(most, total, "linear")
    return [row for row in rows if draw()]


def fit(train: Sequence[Row], dev: Sequence[Row], labels: Sequence[str], *, multi_label: bool) -> Fit:
    """Fit a model on `train`, with its regularisation and scale chosen on `dev`.

    Raises:
        ValueError: no n-gram occurs in two of many rows.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import

    vectorizer = TfidfVectorizer(analyzer=_in_order, min_df=LEAST_ROWS if len(train) >= FEW_ROWS else 1)
    features = vectorizer.fit_transform([row.text for row in train])
    on_dev, truths = vectorizer.transform([row.text for row in dev]), evaluation.truths_of(dev, labels)
    wanted = evaluation.truths_of(train, labels)
    best: tuple[float, float, Float, Float] | None = None
    for regularisation in _REGULARISATIONS:
        weights, bias = _vectors(features, wanted, regularisation, exclusive=not multi_label)
        scores = on_dev @ weights + bias
        scores /= calibration.temperature(scores, truths, multi_label=multi_label)
        loss = calibration.log_loss(scores, truths, multi_label=multi_label)
        if best is None or loss < best[0]:
            best = loss, regularisation, weights, bias
    assert best is not None
    _, regularisation, weights, bias = best
    names, idf = vectorizer.get_feature_names_out(), vectorizer.idf_
    kept = np.sort(np.argsort(-np.abs(weights * idf[:, None]).max(axis=1), kind="stable")[:MOST_NGRAMS])
    stored = functools.partial(linear.document, [str(names[place]) for place in kept], idf=idf[kept].tolist())
    weights = weights[kept] * idf[kept, None]
    # With fewer n-grams texts are shorter, and scores larger: the temperature is that of the stored model.
    model = linear.LinearModel(stored(weights.tolist(), bias=bias.tolist()))
    logits = np.array([model.logits(row.text) for row in dev])
    multiplier = 1 / calibration.temperature(logits, truths, multi_label=multi_label)
    return Fit(stored((weights * multiplier).tolist(), bias=(bias * multiplier).tolist()), len(kept), regularisation)


def _in_order(text: str) -> list[str]:
    """The n-grams of `text`, in an order that does not vary between processes, nor do rounding errors of sums then."""
    return sorted(linear.ngrams(text))


def _vectors(features: Any, wanted: npt.NDArray[np.bool_], regularisation: float, *, exclusive: bool) -> Any:
    """Weights of shape (n-grams, labels) and biases of shape (labels,)."""
    from sklearn.svm import LinearSVC

    weights, bias = np.zeros((features.shape[1], wanted.shape[1])), np.zeros(wanted.shape[1])
    if exclusive and wanted.shape[1] == 2:
        model = LinearSVC(C=regularisation, random_state=_SEED).fit(features, wanted[:, 1])
        half, start = model.coef_[0] / 2, model.intercept_[0] / 2
        return np.stack([-half, half], axis=1), np.array([-start, start])
    for label in range(wanted.shape[1]):
        if wanted[:, label].all() or not wanted[:, label].any():
            bias[label] = 1.0 if wanted[:, label].all() else -1.0
            continue
        model = LinearSVC(C=regularisation, random_state=_SEED).fit(features, wanted[:, label])
        weights[:, label], bias[label] = model.coef_[0], model.intercept_[0]
    return weights, bias
