"""Attention and dropout on a CPU, beside Paddle's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import trainings
from tests.integration.trainings import CALM, ONE, SHAPE, SPANS, Ended, classifier_of

from edgepack.recipe.training import Distill, FromScratch
from edgepack.training.checkpoint import Arrays

pytestmark = pytest.mark.integration


def paddles_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every layer as Paddle has it."""
    from edgepack.training import cpu_layers

    monkeypatch.setattr(cpu_layers, "replace_layers", lambda network: cpu_layers.Draw())


def learnt(folder: Path, shape: FromScratch, rows: Any = ONE) -> Ended:
    """A distillation with all that looks inside: texts of many lengths, and so with padding."""
    teacher = classifier_of(rows, folder / "teacher", shape)
    student = classifier_of(rows, folder, shape)
    distill = Distill(hidden=True, relations=True)
    return trainings.learn(rows, folder, classifier=student, distill=distill, teacher=teacher)


@pytest.mark.parametrize("rows", [ONE, SPANS], ids=["texts", "tokens"])
def test_nothing_dropped_the_weights_are_paddles(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = learnt(tmp_path / "ours", CALM, rows)
    paddles_own(monkeypatch)
    theirs = learnt(tmp_path / "theirs", CALM, rows)
    for name, value in theirs.weights.items():
        assert np.array_equal(ours.weights[name], value), name


def test_dropout_is_not_paddles_and_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, again = learnt(tmp_path / "ours", SHAPE), learnt(tmp_path / "again", SHAPE)
    assert all(np.array_equal(ours.weights[name], value) for name, value in again.weights.items())
    paddles_own(monkeypatch)
    assert differ(ours.weights, learnt(tmp_path / "theirs", SHAPE).weights)


def differ(one: Arrays, other: Arrays) -> bool:
    return any(not np.array_equal(one[name], value) for name, value in other.items())


def test_a_mean_over_many_draws_is_what_is_computed_without(tmp_path: Path) -> None:
    """The first layer's attention, whose inputs are the same in every draw, with dropout in it alone."""
    network = classifier_of(ONE, tmp_path).network
    import paddle

    from edgepack.training import cpu_layers

    attention = network.ernie.encoder.layers[0].self_attn
    hidden, padding = paddle.randn([4, 6, 16]), paddle.zeros([4, 1, 1, 6])
    padding[:, :, :, 4:] = -1e4
    network.eval()
    wanted = attention(hidden, hidden, hidden, padding).numpy()
    draw = cpu_layers.replace_layers(network)
    network.train()
    draws = []
    for seed in range(400):
        draw.begin(seed)
        draws.append(attention(hidden, hidden, hidden, padding).numpy())
    noise = np.std(draws, axis=0).max()
    assert noise > 0
    assert np.abs(np.mean(draws, axis=0) - wanted).max() < 5 * noise / 400**0.5
    network.eval()
    assert np.array_equal(attention(hidden, hidden, hidden, padding).numpy(), wanted)


def test_layers_that_are_none_of_its_business_stay_paddles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = classifier_of(ONE, tmp_path, CALM).network
    from edgepack.training import cpu_layers

    cpu_layers.replace_layers(network)
    taken = [name for name, layer in network.named_sublayers() if "forward" in vars(layer)]
    assert taken == [f"ernie.encoder.layers.{number}.self_attn" for number in range(2)]  # nothing is dropped
    other = classifier_of(ONE, tmp_path / "gpu").network
    monkeypatch.setattr("paddle.get_device", lambda: "gpu:0")
    cpu_layers.replace_layers(other)
    assert not [name for name, layer in other.named_sublayers() if "forward" in vars(layer)]
