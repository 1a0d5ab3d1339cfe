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
from edgepack_runtime.stats.metrics import classes_of

MOST_ROWS: Final = 200_000  # that are fitted; a seeded sample of more
MOST_NGRAMS: Final = 20_000  # those with the largest weights; more were at most 0.2 points better, at 3 x the size
MOST_NUMBERS: Final = 2**26  # of a table: n-grams x labels, or dev rows x labels; of 8 bytes each
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

    most = max(1, MOST_NUMBERS // len(labels))  # thousands of labels leave space for the most frequent n-grams alone
    dev = sample(dev, len(dev), most)
    least = LEAST_ROWS if len(train) >= FEW_ROWS else 1
    vectorizer = TfidfVectorizer(analyzer=_in_order, min_df=least, max_features=most)
    features = vectorizer.fit_transform([row.text for row in train])
    on_dev, truths = vectorizer.transform([row.text for row in dev]), evaluation.truths_of(dev, labels)
    holders = _rows_of_labels(train, labels)
    best: tuple[float, float, Float, Float] | None = None
    for regularisation in _REGULARISATIONS:
        weights, bias = _vectors(features, holders, regularisation, exclusive=not multi_label)
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


def _rows_of_labels(rows: Sequence[Row], labels: Sequence[str]) -> list[list[int]]:
    """The rows that have each label: a table of rows x labels would take gigabytes."""
    found: dict[str, list[int]] = {label: [] for label in labels}
    for number, row in enumerate(rows):
        for name in classes_of(row.label):
            found[name].append(number)
    return list(found.values())


def _vectors(features: Any, holders: Sequence[Sequence[int]], regularisation: float, *, exclusive: bool) -> Any:
    """Weights of shape (n-grams, labels) and biases of shape (labels,). `holders` are the rows of each label."""
    from sklearn.svm import LinearSVC

    def fitted(label: int) -> Any:
        wanted = np.zeros(features.shape[0], bool)
        wanted[holders[label]] = True
        return LinearSVC(C=regularisation, random_state=_SEED).fit(features, wanted)

    weights, bias = np.zeros((features.shape[1], len(holders))), np.zeros(len(holders))
    if exclusive and len(holders) == 2:
        model = fitted(1)
        half, start = model.coef_[0] / 2, model.intercept_[0] / 2
        return np.stack([-half, half], axis=1), np.array([-start, start])
    for label, rows in enumerate(holders):
        if len(rows) in (0, features.shape[0]):
            bias[label] = 1.0 if rows else -1.0
            continue
        model = fitted(label)
        weights[:, label], bias[label] = model.coef_[0], model.intercept_[0]
    return weights, bias
