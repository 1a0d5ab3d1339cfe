"""Golden examples of a model with a handler: items with their expected answers, and the scores of the build.

`golden/rows.jsonl` holds one JSON object per line: `item` (a text or a JSON value) or `file` (the path of a file of the
release), `expected` (any JSON value), and the handler's scores of two answers on the machine that built: `score` of the
shipped model, and `float_score` of the float model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, NamedTuple

from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle.golden import ROWS_FILE, invalid, parse_lines, read_file
from edgepack_runtime.bundle.manifest import safe_path
from edgepack_runtime.bundle.model_config import FILE, TEXT, ModelConfig

FILES_FOLDER = "golden/files"
SELFTEST_EXAMPLES = 16
_SCORES = ("score", "float_score")


class GoldenExample(NamedTuple):
    """An item with its expected answer. Scores are of answers on the machine that built, 0 to 1."""

    item: Any
    expected: Any
    score: float
    float_score: float


def read_examples(release: Path, config: ModelConfig) -> List[GoldenExample]:
    """The examples of a release, at least one. Files are read into memory.

    Raises:
        BundleInvalidError: a file is missing or empty, or a line does not fit a model of `config`.
    """
    key = "file" if config.item == FILE else "item"
    found = []
    wanted = {key, "expected", *_SCORES}
    for where, row in parse_lines(read_file(release, ROWS_FILE), ROWS_FILE, wanted):
        item = row[key]
        scores = [row[name] for name in _SCORES]
        if not all(type(score) in (int, float) and 0 <= score <= 1 for score in scores):
            raise invalid(where, "its scores should be numbers from 0 to 1")
        if config.item == TEXT and not isinstance(item, str):
            raise invalid(where, "its item should be a text")
        if config.item == FILE:
            if not isinstance(item, str) or not safe_path(item) or not item.startswith(f"{FILES_FOLDER}/"):
                raise invalid(where, f"its file should be the path of a file below {FILES_FOLDER}")
            item = read_file(release, item)
        found.append(GoldenExample(item, row["expected"], *scores))
    return found


def timing_items(release: Path, config: ModelConfig) -> List[Any]:
    """Inputs for measurements of latency: the items of the golden rows or examples, or the placeholder texts.

    Raises:
        BundleInvalidError: as `read_examples` and `golden.read_items`.
    """
    if config.handler is None:
        return list(golden.read_items(release, config))
    return [example.item for example in read_examples(release, config)]


def selftest_items(release: Path, config: ModelConfig) -> List[Any]:
    """The items of the self-test: the golden texts, or the first examples. Raises as `timing_items`."""
    if config.handler is None:
        return [text.item for text in golden.read_golden(release, config)]
    return [example.item for example in read_examples(release, config)[:SELFTEST_EXAMPLES]]


def example_argument(release: Path, config: ModelConfig) -> str:
    """The first example as an argument of `predict`: its text, its JSON, or the path of its file."""
    row = json.loads(read_file(release, ROWS_FILE).splitlines()[0])
    if config.item == FILE:
        return str(release / row["file"])
    return str(row["item"]) if config.item == TEXT else canonical(row["item"])


def canonical(value: Any) -> str:
    """A JSON value as a text that is equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
