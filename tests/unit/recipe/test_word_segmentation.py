"""The handler of recipes/word-segmentation."""

from __future__ import annotations

import itertools
import random
import runpy
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[3] / "recipes/word-segmentation/handler.py"


@pytest.fixture(scope="module")
def handler() -> dict[str, Any]:
    return runpy.run_path(str(_FILE))


@pytest.mark.parametrize("seed", range(40))
def test_the_best_path_is_that_of_all_paths(handler: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    spread = dice.choice((0.1, 1, 100))  # of transitions: small and large beside the emissions
    transitions = [[dice.uniform(-spread, spread) for _ in range(4)] for _ in range(4)]
    emissions = [[dice.uniform(-2, 2) for _ in range(4)] for _ in range(5)]

    def total(path: tuple[int, ...]) -> float:
        here = sum(row[tag] for row, tag in zip(emissions, path, strict=True))
        return here + sum(transitions[a][b] for a, b in itertools.pairwise(path))

    best = max(itertools.product(range(4), repeat=5), key=total)
    assert handler["Viterbi"](transitions).best_path(emissions) == list(best)


def test_the_score_is_f1_of_words(handler: dict[str, Any]) -> None:
    score = handler["Handler"]().score
    assert score([["北京", "LOC"], ["站", "n"]], [["北京", "LOC"], ["站", "n"]]) == 1
    assert score([["北京", "LOC"], ["站", "n"]], [["北京站", "LOC"]]) == 0
    assert score([["北京", "LOC"], ["站", "n"]], [["北京", "LOC"], ["站", "v"]]) == 0.5
    assert score([], []) == 1
