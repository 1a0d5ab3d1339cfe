"""Self-test: compares the model's logits, or a handler's scores, on this device with those of the build."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from edgepack_runtime.bundle import golden, handler_examples, verify
from edgepack_runtime.errors import BundleInvalidError, StageFailedError
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.util.texts import counted


class _Compared(NamedTuple):
    worst: float  # maximum difference of a logit
    decided: int  # compared labels (of texts, or of tokens), whose lead exceeds the tolerance


def run(release: Path) -> Dict[str, Any]:
    """Predict the golden texts of an unpacked release and compare the logits with the expected ones.

    Every logit may differ by at most the manifest's `model.golden_tolerance`. The label of the text, or of each of its
    tokens, must be the expected one if the expected lead of the first over the second exceeds that tolerance.
    For several labels, those with a logit farther from 0 than the tolerance must agree with the expected ones.

    Returns:
        `{"selftest": 1, "verdict": "pass", "texts", "labels_checked", "max_difference", "tolerance", "load_ms",
        "providers"}`.

    Raises:
        StageFailedError: a logit or label differs; names the text and the difference.
        BundleInvalidError: the release lacks something, or its manifest has no tolerance.
        EnvironmentUnfitError: the model's execution provider is not active.
    """
    begin = time.perf_counter()
    predictor = Predictor(release / golden.MODEL_FOLDER)
    load_ms = (time.perf_counter() - begin) * 1e3
    return {
        "selftest": 1,
        "verdict": "pass",
        **compare(release, predictor),
        "load_ms": round(load_ms, 3),
        "providers": list(predictor.providers),
    }


def compare(release: Path, predictor: Predictor) -> Dict[str, Any]:
    """`run` with an open predictor; returns the part of the result about texts. Raises as `run`."""
    manifest, _ = verify.read_manifest(release)
    tolerance = _tolerance(manifest.model.get("golden_tolerance"))
    if predictor.config.handler is not None:
        return _compare_scores(release, predictor, tolerance)
    expected = golden.read_golden(release, predictor.config)
    compared = [_compare(item, predictor, tolerance) for item in expected]
    return {
        "texts": len(expected),
        "labels_checked": sum(one.decided for one in compared),
        "max_difference": max(one.worst for one in compared),
        "tolerance": tolerance,
    }


def _compare_scores(release: Path, predictor: Predictor, tolerance: float) -> Dict[str, Any]:
    """Compare the mean score of the first examples with that of the build: it may be lower by the tolerance."""
    chosen = handler_examples.read_examples(release, predictor.config)[: handler_examples.SELFTEST_EXAMPLES]
    found = [predictor.score(predictor.predict(example.item).answer, example.expected) for example in chosen]
    wanted, ours = (sum(scores) / len(chosen) for scores in ((one.score for one in chosen), found))
    if wanted - ours > tolerance:
        raise StageFailedError(
            f"the self-test failed on {counted(len(chosen), 'example')}",
            why=f"their mean score is {ours:.4f}; on the machine that built it was {wanted:.4f}",
            fix="verify the bundle; if it is intact, this CPU computes the model differently: build for this target",
        )
    return {
        "texts": len(chosen),
        "labels_checked": 0,
        "max_difference": round(max(abs(score - example.score) for score, example in zip(found, chosen)), 6),
        "tolerance": tolerance,
    }


def _compare(expected: golden.GoldenText, predictor: Predictor, tolerance: float) -> _Compared:
    task, found = predictor.config.text_task, predictor.logits([expected.item])[0]
    table = found if task.per_token else [found]
    if len(table) != len(expected.logits):
        raise _failed(expected, f"it has {len(table)} tokens and should have {len(expected.logits)}")
    worst, decided = 0.0, 0
    for number, (ours, wanted) in enumerate(zip(table, expected.logits)):
        of_what = f" of token {number}" if task.per_token else ""
        worst = max(worst, _compare_logits(expected, of_what, ours, wanted, tolerance, predictor.labels))
        try:
            decided += task.settled(predictor.labels, wanted, ours, tolerance)
        except ValueError as error:
            raise _failed(expected, f"the label{of_what} {error}") from error
    return _Compared(worst, decided)


def _compare_logits(
    expected: golden.GoldenText,
    of_what: str,
    ours: List[float],
    wanted: Sequence[float],
    tolerance: float,
    labels: Sequence[str],
) -> float:
    """The largest difference of a logit, which is at most `tolerance`."""
    differences = [abs(a - b) for a, b in zip(wanted, ours)]
    # Not `max(differences) > tolerance`, which is false for NaN.
    worst = next((i for i, value in enumerate(differences) if not value <= tolerance), None)
    if worst is not None:
        values = f"{ours[worst]:.6g} and should be {wanted[worst]:.6g}"
        apart = f"{differences[worst]:.3g} apart, {tolerance:.3g} allowed"
        raise _failed(expected, f"the logit of label {labels[worst]!r}{of_what} is {values}: {apart}")
    return max(differences)


def _tolerance(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise BundleInvalidError(
            "manifest.json has no valid tolerance for the self-test",
            why=f"model.golden_tolerance is {value!r}",
            fix="build the bundle again",
        )
    return float(value)


def _failed(expected: golden.GoldenText, why: str) -> StageFailedError:
    text = expected.text if len(expected.text) <= 60 else expected.text[:60] + "..."
    return StageFailedError(
        f"the self-test failed on the text {text!r}",
        why=why,
        fix="verify the bundle; if it is intact, this CPU computes the model differently: build for this target",
    )
