"""Metrics of answers that are parts of a text: exact match and character F1, as CMRC 2018 defines them.

Both compare texts in small letters without some punctuation, and take the best of several true answers (Cui et al., "A
Span-Extraction Dataset for Chinese Machine Reading Comprehension", EMNLP 2019, and its evaluation script). A unit is a
Chinese character, or a word as in the Penn Treebank. F1 is that of the longest run of units that both texts have. Where
there is no answer, only none is right. Unlike CMRC's script, signs of numbers count (`-28`, `1/2`, `12:30`), and so
does what is punctuation alone (`+`).

A true answer is a tuple of spans, of which each is right, and () where there is none; a model's has one span at most.
The `label` of a span is its text.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, List, Sequence, Tuple

from edgepack_runtime.stats import mean_scores
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.stats.metrics import CHARACTER_F1, EXACT_MATCH, READING_METRICS, Pair

# What stands around these is joined. A sign before a number stays, and what stands between two.
_DROPPED = re.compile(
    r"(?<![0-9])[:/~：～]|[:/~：～](?![0-9])|[-+－](?![0-9])|[_*^\\`=，。？！“”；’《》·、「」（）『』]"
)
_PRIVATE = 0xF0000  # characters that no text has, of which each is a unit
_MARKS = r"""\[\]{}()<>;@#$%&?!"\u2018\u201c\u2013\u2014"""
_UNIT = re.compile(
    rf"[\u4e00-\u9fa5]|[{_MARKS}]|\.\.\.|,(?!\d)|(?:[^\s\u4e00-\u9fa5{_MARKS},]|,(?=\d))+"  # 1,000 is one word
)


def plain(text: str) -> str:
    """An answer as it is compared: in small letters, without some punctuation."""
    small = text.lower().strip()
    return _DROPPED.sub("", small) or small


def units(text: str) -> Tuple[str, ...]:
    """The units of an answer."""
    return tuple(_UNIT.findall(plain(text)))


def exact_match(truth: Any, answer: Any) -> float:
    """1 if the answer is one of the true ones, or both have none; else 0."""
    if not truth or not answer:
        return float(not truth and not answer)
    found = plain(answer[0].label)
    return float(any(plain(span.label) == found for span in truth))


def character_f1(truth: Any, answer: Any) -> float:
    """The F1 of the nearest true answer, 0 to 1."""
    if not truth or not answer:
        return float(not truth and not answer)
    return max(_f1(span.label, answer[0].label) for span in truth)


@functools.lru_cache(maxsize=65536)  # gates compare the same answers several times
def _f1(truth: str, answer: str) -> float:
    wanted, found = units(truth), units(answer)
    return 2 * _longest_common(wanted, found) / max(1, len(wanted) + len(found))


def _longest_common(left: Sequence[str], right: Sequence[str]) -> int:
    """The length of the longest run that both have, by halving: where there is one of n, there is one of n - 1."""
    letters: Dict[str, str] = {}
    first, second = (
        "".join(letters.setdefault(unit, chr(_PRIVATE + len(letters))) for unit in text) for text in (left, right)
    )
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        runs = {first[at : at + middle] for at in range(len(first) - middle + 1)}
        if any(second[at : at + middle] in runs for at in range(len(second) - middle + 1)):
            low = middle
        else:
            high = middle - 1
    return low


_SCORES = {EXACT_MATCH: exact_match, CHARACTER_F1: character_f1}


def scores(metric: str, truths: Sequence[Any], answers: Sequence[Any]) -> List[float]:
    """The score of each answer, 0 to 1.

    Raises:
        ValueError: there are no rows, not as many answers as rows, or no such metric.
    """
    if metric not in READING_METRICS:
        raise ValueError(f"unknown metric {metric!r}")
    if not truths or len(truths) != len(answers):
        raise ValueError(f"{len(answers)} answers for {len(truths)} rows")
    return list(map(_SCORES[metric], truths, answers))


def values(pairs: Sequence[Pair]) -> Dict[str, float]:
    """Every metric of (truth, answer) pairs, at least one."""
    truths, answers = zip(*pairs)
    found = {metric: scores(metric, truths, answers) for metric in READING_METRICS}
    return {metric: sum(each) / len(each) for metric, each in found.items()}


def interval(metric: str, truths: Sequence[Any], answers: Sequence[Any], confidence: float) -> Interval:
    """A metric with its interval: exact for a share, else that of `mean_scores`. Raises as `scores`."""
    return mean_scores.mean(scores(metric, truths, answers), confidence)


def drop(
    metric: str, truths: Sequence[Any], first: Sequence[Any], second: Sequence[Any], confidence: float
) -> Interval:
    """How much lower the answers `second` score than `first`, paired. Raises as `scores`."""
    return mean_scores.drop(scores(metric, truths, first), scores(metric, truths, second), confidence)
