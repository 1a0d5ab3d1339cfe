"""Training of the linear model on characters: the vectors of the task on n-grams, scaled on the dev rows.

The strength of their regularisation has the lowest loss on the dev rows, with their logits at the best scale.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from edgepack.artifacts import Row
from edgepack.data.sampling import Sampler
from edgepack.tasks.task import Array, LinearTask
from edgepack_runtime.inference import linear
from edgepack_runtime.util.texts import Item

MOST_ROWS: Final = 200_000  # that are fitted; a seeded sample of more
MOST_NGRAMS: Final = 20_000  # those with the largest weights; more were at most 0.2 points better, at 3 x the size
MOST_NUMBERS: Final = 2**26  # of a table: n-grams x labels, or dev rows x labels; of 8 bytes each
LEAST_ROWS: Final = 2  # that an n-gram occurs in, unless there are few rows
FEW_ROWS: Final = 100


@dataclass(frozen=True)
class Fit:
    """A fitted model: the content of `linear.json`, the number of its n-grams and the strength of `vectors`."""

    document: Mapping[str, Any]
    ngrams: int
    regularisation: float


def sample(rows: Iterable[Row], total: int, most: int = MOST_ROWS) -> list[Row]:
    """All of `total` rows, or a seeded sample of `most` of them."""
    draw = Sampler(most, total, "linear")
    return [row for row in rows if draw()]


def fit(task: LinearTask, train: Sequence[Row], dev: Sequence[Row]) -> Fit:
    """Fit a model on `train`, with its regularisation and scale chosen on `dev`.

    Raises:
        ValueError: no n-gram occurs in two of many rows.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import

    most = max(1, MOST_NUMBERS // len(task.labels))  # thousands of labels leave space for the most frequent n-grams
    dev = sample(dev, len(dev), most)
    least = LEAST_ROWS if len(train) >= FEW_ROWS else 1
    vectorizer = TfidfVectorizer(analyzer=_in_order, min_df=least, max_features=most)
    features = vectorizer.fit_transform([row.item for row in train])
    on_dev, truths = vectorizer.transform([row.item for row in dev]), task.truths(dev)
    best: tuple[float, float, Array, Array] | None = None
    for strength in task.strengths:
        weights, bias = task.vectors(features, train, strength)
        logits = on_dev @ weights + bias
        factor, shift = task.fitted(logits, truths)
        loss = task.loss(factor * logits + shift, truths)
        if best is None or loss < best[0]:
            best = loss, strength, weights, bias
    assert best is not None
    _, strength, weights, bias = best
    names, idf = vectorizer.get_feature_names_out(), vectorizer.idf_
    kept = np.sort(np.argsort(-np.abs(weights * idf[:, None]).max(axis=1), kind="stable")[:MOST_NGRAMS])
    stored = functools.partial(linear.document, [str(names[place]) for place in kept], idf=idf[kept].tolist())
    weights = weights[kept] * idf[kept, None]
    # With fewer n-grams texts are shorter, and logits larger: the scale is that of the stored model.
    model = linear.LinearModel(stored(weights.tolist(), bias=bias.tolist()))
    factor, shift = task.fitted(np.array([model.logits(row.item) for row in dev]), truths)
    return Fit(stored((weights * factor).tolist(), bias=(bias * factor + shift).tolist()), len(kept), strength)


def _in_order(item: Item) -> list[str]:
    """The features of an item, in an order that does not vary between processes, nor do rounding errors of sums."""
    return sorted(linear.features(item))
