"""Whether a machine was now faster and now slower for a while: by times of work in the order in which they were done.

Texts are answered in an order that is drawn, so how long the model works on one says nothing about the next. Where
times that follow each other are alike all the same, the machine goes through phases, as clocks, heat and neighbours
make it do. A permutation test tells: means of so many texts in a row differ more than those of the same times in orders
that are drawn.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np

from edgepack_runtime import distributions, stats

_SHORTEST = 8  # texts of a phase that is looked for, and then twice as many, and so on
_FEWEST = 4  # rows of so many texts that there are at least
_ORDERS = 199  # that are drawn
_CHANCE = 0.05  # that a machine without phases seems to have some; it costs a pass now and then, and makes none wrong
_SEED = 20240229
_LEAST_MS = 1e-6  # that texts take on average, where others may have taken all of it
_TURNS = 16  # in each of which half of what is still wrong goes, so that 1 in 65,000 of it is left
_HOPS = 8  # of a phase, between the places whose medians are found
Array = Any  # of float64; the type that numpy has for it needs a newer numpy than devices carry


class Phases(NamedTuple):
    """How long so many texts in a row took on average against all: those that took longest, and shortest."""

    texts: int
    slowest: float
    fastest: float

    def told(self) -> str:
        """In words, for the detail of a verdict."""
        return f"the machine goes through phases: {self.texts} texts in a row took {self.slowest:.2f} times the mean"


class Course(NamedTuple):
    """How many times as long each text took as it does on average, in the order of timing, and the phases in that."""

    slowness: List[float]
    phases: Phases


def find(times_ms: Sequence[float]) -> Optional[Phases]:
    """The phases of times of work, in the order in which they were done; None where chance explains them.

    They are half as long as where means differ most, against what chance does.
    """
    times = np.asarray(times_ms, dtype=np.float64)  # (n,)
    lengths = [_SHORTEST << power for power in range(32) if (_SHORTEST << power) * _FEWEST <= len(times)]
    if not lengths or times.std() == 0:
        return None
    draw = np.random.RandomState(_SEED)
    seen = _excess(times, lengths)
    by_chance = [_excess(draw.permutation(times), lengths).max() for _ in range(_ORDERS)]
    if 1 + sum(excess >= seen.max() for excess in by_chance) > _CHANCE * (_ORDERS + 1):
        return None
    length = max(lengths[int(seen.argmax())] // 2, _SHORTEST)  # so that one of them lies within the phase
    return _of(times, length)


def against_others(times_ms: Sequence[float], texts: Sequence[int]) -> List[float]:
    """How many times as long each text took as it did on (geometric) average, in the order of timing.

    Args:
        times_ms: in that order.
        texts: which text each of them is of, at least 0; nothing is told by a text that was timed once.
    """
    times = _positive(times_ms)
    found: List[float] = (times / _means_by_text(times, texts)).tolist()
    return found


def told_apart(times_ms: Sequence[float], texts: Sequence[int], found: Phases) -> Course:
    """What is the machine's in times of texts that were each timed more than once, in different phases or the same.

    Where both times of a text fell into slow phases, neither looks slow beside the other. So how slow the machine was
    is taken from the texts around each, and how long a text takes from its times less that, in turns (backfitting of a
    model with two factors: T. Hastie, R. Tibshirani, Generalized Additive Models (1990), 4.4). Texts have orders of
    their own each time, so that nearly every two of them are compared by way of others.

    Arguments as those of `against_others`, and the phases `found` in what that returns.
    """
    times = _positive(times_ms)
    slowness = times / _means_by_text(times, texts)  # (n,)
    for _ in range(_TURNS):
        slowness = times / _means_by_text(times / _moving_medians(slowness, found.texts), texts)
    return Course(slowness.tolist(), _of(slowness, found.texts))


def throughout(times_ms: Sequence[float], found: Phases, level: float) -> List[float]:
    """How long each text would have taken, had the machine been all the time as in one of the phases `found` in them.

    Args:
        level: of that phase, against the mean of all times: `found.slowest` or `found.fastest`, or between them.
    """
    times = np.asarray(times_ms, dtype=np.float64)  # (n,)
    means = _moving_means(times, found.texts)
    places = np.clip(np.arange(len(times)) - found.texts // 2, 0, len(means) - 1)  # (n,), of the one around each
    scaled: List[float] = (times * (level * times.mean()) / np.maximum(means[places], _LEAST_MS)).tolist()
    return scaled


def design_effect(are_so: Sequence[float], confidence: float) -> float:
    """How many of texts, some of which are so (1, others 0), are worth one that is independent of others, at least 1.

    By how much wider the interval of the share of those that are is (`stats.ratio_interval`) than the binomial one.
    """
    share = sum(are_so) / max(len(are_so), 1)
    if not 0 < share < 1:
        return 1.0
    known = stats.ratio_interval([(is_so, 1.0) for is_so in are_so], confidence)
    alone = distributions.normal(confidence) * math.sqrt(share * (1 - share) / len(are_so))
    return max(((known.high - share) / alone) ** 2, 1.0)


def _positive(times_ms: Sequence[float]) -> Array:
    return np.maximum(np.asarray(times_ms, dtype=np.float64), _LEAST_MS)


def _means_by_text(times: Array, texts: Sequence[int]) -> Array:
    """(n,), of each time, the geometric mean of those of its text."""
    text = np.asarray(texts)  # (n,)
    logs = np.bincount(text, weights=np.log(times)) / np.maximum(np.bincount(text), 1)  # (texts,)
    means: Array = np.exp(logs)[text]
    return means


def _of(times: Array, length: int) -> Phases:
    means = _moving_means(times, length) / times.mean()
    return Phases(length, float(means.max()), float(means.min()))


def _moving_medians(times: Array, length: int) -> Array:
    """(n,), of so many in a row around each, or the first or last so many; of a few that follow each other the same."""
    hop = max(length // _HOPS, 1)
    starts = np.arange(0, len(times) - length + 1, hop)  # (m,)
    medians = np.median(times[starts[:, None] + np.arange(length)], axis=1)  # (m, length) -> (m,)
    places = (np.arange(len(times)) - (length - hop) // 2) // hop  # (n,), of the start whose middle is nearest
    return medians[np.clip(places, 0, len(medians) - 1)]


def _moving_means(times: Array, length: int) -> Array:
    """(n + 1 - length,), of so many in a row, wherever they may begin."""
    sums = np.append(0.0, np.cumsum(times))  # (n + 1,)
    return (sums[length:] - sums[:-length]) / length


def _excess(times: Array, lengths: Sequence[int]) -> Array:
    """(lengths,), by how much the variance of means exceeds that of independent times, in its standard deviations."""
    found = []
    for length in lengths:
        rows = len(times) // length
        means = times[: rows * length].reshape(rows, length).mean(axis=1)  # (rows,)
        ratio = means.var(ddof=1) * length / times.var()
        found.append((ratio - 1) * np.sqrt((rows - 1) / 2))
    return np.asarray(found)
