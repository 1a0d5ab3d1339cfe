"""What a release brings along to prove itself: texts with expected logits, and labelled rows.

Standard library only.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from edgepack_runtime.errors import BundleInvalidError

MODEL_FOLDER = "model"
GOLDEN_FILE = "golden/golden.jsonl"
ROWS_FILE = "golden/rows.jsonl"


class GoldenText(NamedTuple):
    """A text and the logits, one for each label, that the shipped model gave for it where it was built."""

    text: str
    logits: Tuple[float, ...]


class GoldenRow(NamedTuple):
    """A row of the test split; `float_label` is what the float model of the same student says."""

    text: str
    label: str
    float_label: str


def read_golden(release: Path, n_labels: int) -> List[GoldenText]:
    """The texts of `golden/golden.jsonl`, at least one.

    Raises:
        BundleInvalidError: naming file and line, when it is missing, empty or of another form.
    """
    golden = []
    for where, row in _lines(release, GOLDEN_FILE, {"text", "logits"}):
        logits = row["logits"]
        numbers = isinstance(logits, list) and all(type(v) in (int, float) and math.isfinite(v) for v in logits)
        if not isinstance(row["text"], str) or not numbers or len(logits) != n_labels:
            raise _invalid(where, f"it should hold a text and {n_labels} logits")
        golden.append(GoldenText(row["text"], tuple(float(value) for value in logits)))
    return golden


def read_rows(release: Path, labels: Tuple[str, ...]) -> List[GoldenRow]:
    """The labelled rows of `golden/rows.jsonl`, at least one.

    Raises:
        BundleInvalidError: naming file and line, when it is missing, empty or of another form, or when a label is
            none of `labels`.
    """
    rows = []
    for where, row in _lines(release, ROWS_FILE, {"text", "label", "float_label"}):
        if not isinstance(row["text"], str) or row["label"] not in labels or row["float_label"] not in labels:
            raise _invalid(where, "it should hold a text and two labels out of {}".format(", ".join(labels)))
        rows.append(GoldenRow(**row))
    return rows


def _lines(release: Path, name: str, keys: set[str]) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Each line's place (for messages) and object, which has exactly `keys`."""
    number = 0
    try:
        with (release / name).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                where = f"line {number} of {name}"
                row = json.loads(line)
                if not isinstance(row, dict) or set(row) != keys:
                    raise _invalid(where, "it should be an object with the keys {}".format(", ".join(sorted(keys))))
                yield where, row
    except (OSError, ValueError) as error:
        raise _invalid(f"line {number} of {name}" if number else name, str(error)) from error
    if number == 0:
        raise _invalid(name, "it is empty")


def _invalid(where: str, why: str) -> BundleInvalidError:
    return BundleInvalidError(f"{where} is not valid", why=why, fix="copy the bundle again from where it was built")
