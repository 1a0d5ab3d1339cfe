"""Estimated lengths of texts in tokens, without a model: percentiles, and the texts that a limit would truncate.

The rule: one token for each CJK ideograph, punctuation mark or symbol; one for every four characters begun of any
other run of letters and digits; two more for [CLS] and [SEP], three around a pair. Its measured error:
docs/reference/data.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.messages import Message, message
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import listed
from edgepack_runtime.schema.maxima import MAX_TOKENS

MAX_CUT_SHARE: Final = 0.01  # of the texts of a split that may be longer than max_length without a warning
COUNTED_TOKENS: Final = MAX_TOKENS + 1  # longer texts count as this long: any model cuts them
STEP_TOKENS: Final = 16  # of suggestions for max_length
LONGEST_SUGGESTION: Final = 512
_SPECIAL_TOKENS: Final = 2
_IDEOGRAPHS: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_CHARACTERS_A_TOKEN: Final = 4
_RUN: Final = re.compile(rf"[^\W_{_IDEOGRAPHS}]{{2,}}|\s+")  # runs that take fewer tokens than characters


def estimate_tokens(text: str, text_pair: str | None = None) -> int:
    """Estimated number of tokens of a text or a pair, with [CLS] and [SEP]."""
    if text_pair is not None:
        return estimate_tokens(text) + estimate_tokens(text_pair) - 1  # [CLS] stands once
    tokens = len(text) + _SPECIAL_TOKENS
    for run in _RUN.findall(text):
        tokens -= len(run)
        if not run.isspace():
            tokens += -(-len(run) // _CHARACTERS_A_TOKEN)
    return tokens


class Lengths:
    """Histogram of the lengths of texts, with at most COUNTED_TOKENS entries."""

    def __init__(self, rows_by_tokens: Mapping[int, int] | None = None) -> None:
        self._rows = Counter(dict(rows_by_tokens or {}))

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Lengths:
        """Estimated lengths of `texts`."""
        lengths = cls()
        for text in texts:
            lengths.add(text)
        return lengths

    def add(self, text: str, text_pair: str | None = None) -> None:
        """Count one text or pair of texts."""
        self._rows[min(estimate_tokens(text, text_pair), COUNTED_TOKENS)] += 1

    @property
    def rows_by_tokens(self) -> dict[int, int]:
        """Number of tokens -> number of texts, shortest first."""
        return dict(sorted(self._rows.items()))

    @property
    def texts(self) -> int:
        """The number of texts."""
        return self._rows.total()

    def percentile(self, share: float) -> int:
        """The fewest tokens that at least `share` (0 to 1) of the texts do not exceed; 0 without any text."""
        reached, wanted = 0, share * self._rows.total()
        for tokens, rows in self.rows_by_tokens.items():
            reached += rows
            if reached >= wanted:
                return tokens
        return 0

    def share_above(self, tokens: int) -> float:
        """The share (0 to 1) of the texts that are longer than `tokens`."""
        longer = sum(rows for length, rows in self._rows.items() if length > tokens)
        return longer / max(1, self._rows.total())


def suggest_max_length(lengths: Lengths) -> int:
    """The 99th percentile rounded up to a multiple of STEP_TOKENS, at most LONGEST_SUGGESTION."""
    steps = max(1, -(-lengths.percentile(0.99) // STEP_TOKENS))
    return min(steps * STEP_TOKENS, LONGEST_SUGGESTION)


def check_lengths(
    lengths: Mapping[Any, Lengths], limits: Mapping[str, int], file: Path, most: int | None = MAX_TOKENS
) -> list[Finding]:
    """Warn if a limit truncates more than MAX_CUT_SHARE of the texts of train or test.

    Args:
        lengths: by split; only `train` and `test` are read.
        limits: recipe key -> max_length in tokens, as in `{"student.max_length": 128}`.
        file: the file that findings name: the recipe, if it is known.
        most: tokens that the models can read; None if nothing but `limits` is sure, as of an imported graph.
    """
    findings = []
    for limit in sorted(set(limits.values())):
        keys = listed(key for key, value in limits.items() if value == limit)
        for split in ("train", "test"):
            share = lengths[split].share_above(limit) if split in lengths else 0.0
            if share <= MAX_CUT_SHARE:
                continue
            p99 = lengths[split].percentile(0.99)
            reason = message("found.cut_texts", share=share, split=split, limit=limit, keys=keys, p99=p99)
            fix = _fix(suggest_max_length(lengths[split]), limit, most)
            findings.append(Finding("warning", file, None, reason, fix))
    return findings


def _fix(wanted: int, limit: int, most: int | None) -> str:
    """What helps long texts: windows always, a longer limit if the model has the positions."""
    windows = message("found.windows")
    if most is None:
        return message("found.windows_or_graph", windows=windows)
    wanted = min(wanted, most)
    return message("found.windows_or_length", windows=windows, wanted=wanted) if wanted > limit else windows


def describe_lengths(lengths: Mapping[Any, Lengths]) -> Message:
    """One line of percentiles."""
    parts = []
    for split, counted in lengths.items():
        p50, p95, p99 = (counted.percentile(share) for share in (0.5, 0.95, 0.99))
        parts.append(f"{split} p50 {p50}, p95 {p95}, p99 {p99}")
    return message("say.lengths", parts=parts)
