"""How much of builtin:reviews-zh do character counts alone solve? One JSON line.

A logistic regression over which characters (or which pairs of neighbours) occur, and how often, sees words but neither
order nor scope. What a trained model scores above it is what it gained by reading. Run:

    PYTHONPATH=packager:runtime python benchmarks/bag_of_characters.py [--seed 0] [--train-rows N]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import sklearn  # type: ignore[import-untyped,unused-ignore]
from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped,unused-ignore]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped,unused-ignore]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped,unused-ignore]

from edgepack.artifacts import Row
from edgepack.data.synthetic.reviews_zh import generate


def accuracy(train: list[Row], test: list[Row], ngrams: tuple[int, int]) -> float:
    """Test accuracy (0 to 1) of a logistic regression over counts of character n-grams."""
    model = make_pipeline(
        CountVectorizer(analyzer="char", ngram_range=ngrams), LogisticRegression(C=1.0, max_iter=2000)
    )
    model.fit([row.text for row in train], [row.label for row in train])
    return float(model.score([row.text for row in test], [row.label for row in test]))


def measure(seed: int, train_rows: int | None) -> dict[str, Any]:
    """The figures of one seed; `train_rows` null trains on all rows."""
    rows = generate(seed)
    train = rows["train"][:train_rows]
    return {
        "benchmark": "bag_of_characters",
        "data": "builtin:reviews-zh",
        "seed": seed,
        "n_train": len(train),
        "n_test": len(rows["test"]),
        "unigram_test_accuracy": accuracy(train, rows["test"], (1, 1)),
        "bigram_test_accuracy": accuracy(train, rows["test"], (1, 2)),
        "model": f"scikit-learn {sklearn.__version__} LogisticRegression, C=1, counts",
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-rows", type=int, default=None, help="train on the first N rows; all by default")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.seed, arguments.train_rows), ensure_ascii=False))
