"""Rates over steps and layers, and maps of layers."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.recipe.training import Training
from edgepack.training.schedule import Budget, budget, layer_ratios, rate_factor, rate_scale

NAMES = [
    "ernie.embeddings.word_embeddings.weight",
    "ernie.embeddings.layer_norm.bias",
    "ernie.encoder.layers.0.self_attn.q_proj.weight",
    "ernie.encoder.layers.1.linear1.bias",
    "ernie.pooler.dense.weight",
    "classifier.bias",
]


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("linear", [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]),
        ("cosine", [0.5, 1.0, 1.0, 0.961940, 0.853553, 0.691342, 0.5, 0.308658, 0.146447, 0.038060]),
    ],
)
def test_the_rate_rises_and_falls(schedule: Literal["linear", "cosine"], factors: list[float]) -> None:
    assert [rate_factor(step, 10, 0.2, schedule) for step in range(10)] == pytest.approx(factors, abs=1e-6)


@given(total=st.integers(1, 500), warmup=st.floats(0, 0.9), schedule=st.sampled_from(["linear", "cosine"]))
def test_a_rate_is_never_negative_and_reaches_its_peak(
    total: int, warmup: float, schedule: Literal["linear", "cosine"]
) -> None:
    factors = [rate_factor(step, total, warmup, schedule) for step in range(total)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1
    peak = factors.index(1)
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    if total > max(1, round(warmup * total)):
        assert rate_factor(total, total, warmup, schedule) == pytest.approx(0, abs=1e-9)


def test_every_layer_below_learns_more_slowly() -> None:
    ratios = layer_ratios(NAMES, 0.5)
    assert list(ratios.values()) == [0.125, 0.125, 0.25, 0.5, 1, 1]
    assert set(layer_ratios(NAMES, 1.0).values()) == {1}
    assert layer_ratios(["weight", "bias"], 0.5) == {"weight": 1, "bias": 1}


def test_a_rate_is_scaled_by_the_stated_rule() -> None:
    assert rate_scale("sqrt", 4) == 2.0
    assert rate_scale("linear", 4) == 4.0
    assert rate_scale("none", 4) == 1.0
    assert {rate_scale(rule, 1) for rule in ("sqrt", "linear", "none")} == {1.0}


@pytest.mark.parametrize(
    ("rows", "epochs", "epoch_steps"), [(1, 40, 1), (300, 40, 10), (600, 21, 19), (3000, 4, 94), (100_000, 3, 3125)]
)
def test_fewer_rows_are_passed_more_often(rows: int, epochs: int, epoch_steps: int) -> None:
    found = budget(Training(), rows, 312, 1, random_weights=False)
    assert (found.epochs, found.epoch_steps, found.steps) == (epochs, epoch_steps, epochs * epoch_steps)


@pytest.mark.parametrize(
    ("hidden", "pretrained", "random"), [(96, 3e-4, 1e-3), (312, 2e-4, 3e-4), (768, 3e-5, 1e-4), (1024, 2e-5, 1e-4)]
)
def test_wide_and_pretrained_models_learn_at_lower_rates(hidden: int, pretrained: float, random: float) -> None:
    found = [budget(Training(), 600, hidden, 1, random_weights=random).learning_rate for random in (False, True)]
    assert found == [pretrained, random]


def test_given_epochs_and_rates_are_kept() -> None:
    given = Training(epochs=0.5, learning_rate=2e-5, batch_size=16)
    assert budget(given, 640, 312, 2, random_weights=True) == Budget(0.5, 20, 2e-5)
    assert budget(given, 1, 312, 2, random_weights=True).steps == 1
