"""Every observer of the recipe gives ranges that hold what matters of what passed it, and no more than was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from tests.integration.trainings import ONE, classifier_of

from edgepack.progress import SILENT
from edgepack.recipe.model import Quantize
from edgepack.training import environment

pytestmark = pytest.mark.integration

OBSERVERS: Sequence[str] = get_args(Quantize.model_fields["observer"].annotation)


def watch(name: str, tensors: Sequence[Any]) -> tuple[float, float]:
    """The range that an observer settles on after `tensors`."""
    environment.start()
    import paddle

    from edgepack.training.quantization.observers import Observers

    watcher = Observers(name, len(tensors))._instance(None)
    for tensor in tensors:
        assert watcher(paddle.to_tensor(tensor)) is not None
    watcher.cal_thresholds()
    return watcher.range()


def rows(count: int = 20, seed: int = 0) -> list[Any]:
    """Normal numbers, a little apart from zero, in texts of different length."""
    random = np.random.default_rng(seed)
    return [random.normal(0.3, 1.0, (1, int(random.integers(3, 12)), 64)).astype(np.float32) for _ in range(count)]


def test_all_of_paddleslim_s_are_there() -> None:
    assert set(OBSERVERS) == {"hist", "kl", "mse", "emd", "avg", "abs_max"}


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_range_holds_most_of_what_was_seen_and_nothing_else(name: str) -> None:
    seen = np.concatenate([row.ravel() for row in rows()])
    low, high = watch(name, rows())
    assert seen.min() <= low < 0 < high <= seen.max()
    inside = float(((low <= seen) & (seen <= high)).mean())
    assert inside > 0.98
    if name in ("abs_max", "avg"):
        assert inside > 0.995


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_tensor_of_one_sign_has_the_whole_grid(name: str) -> None:
    low, high = watch(name, [np.abs(row) for row in rows()])
    assert low == 0.0
    assert high > 1.5


@pytest.mark.parametrize("name", OBSERVERS)
def test_the_order_of_the_rows_decides_little(name: str) -> None:
    """An outlier in the first row, or in the last: the same is known of it, but for how histograms are put together."""
    calm, wild = rows(), rows(1, seed=1)[0] * 4
    ranges = np.array([watch(name, [wild, *calm]), watch(name, [*calm, wild])])
    assert np.allclose(ranges[0], ranges[1], rtol=0.1), ranges


@pytest.mark.parametrize("name", OBSERVERS)
def test_every_product_of_a_model_gets_its_ranges(name: str, tmp_path: Path) -> None:
    classifier = classifier_of(ONE, tmp_path)
    from edgepack.training.quantization.observers import observe

    found = observe(classifier, classifier.encode(ONE[:12]), name, SILENT)
    assert len(found) == 2 * 6 + 2
    ends = [item.activation for item in found if item.activation is not None]
    assert len(ends) == len(found) and all(low <= 0 < high for low, high in ends)
    assert all(len(item.weight_abs_max) and min(item.weight_abs_max) > 0 for item in found)


def test_weights_are_ranged_alike_with_and_without_rows(tmp_path: Path) -> None:
    classifier = classifier_of(ONE, tmp_path)
    from edgepack.training.quantization.observers import observe, weights_alone

    alone, found = weights_alone(classifier), observe(classifier, classifier.encode(ONE[:8]), "abs_max", SILENT)
    assert [replace(item, activation=None) for item in found] == list(alone)
