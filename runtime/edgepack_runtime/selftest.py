"""Whether the shipped model computes on this device what it computed where it was built."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Dict, Sequence

from edgepack_runtime import golden, verify
from edgepack_runtime.errors import BundleInvalidError, StepFailedError
from edgepack_runtime.predictor import Predictor


def run(release: Path) -> Dict[str, Any]:
    """Predict the golden texts of an unpacked release and compare the logits with the expected ones.

    Every logit may differ by at most the manifest's `model.golden_tolerance`. The label must be the expected one
    wherever the expected lead of the first label over the second exceeds that tolerance.

    Returns:
        `{"selftest": 1, "verdict": "pass", "texts", "labels_checked", "max_difference", "tolerance", "load_ms",
        "providers"}`.

    Raises:
        StepFailedError: naming the text and the difference.
        BundleInvalidError: the release lacks something, or its manifest has no tolerance.
        EnvironmentUnfitError: the model's execution provider is not active.
    """
    manifest, _ = verify.read_manifest(release)
    tolerance = _tolerance(manifest.model.get("golden_tolerance"))
    begin = time.perf_counter()
    predictor = Predictor(release / golden.MODEL_FOLDER)
    load_ms = (time.perf_counter() - begin) * 1e3
    expected = golden.read_golden(release, len(predictor.labels))
    worst, labels_checked = 0.0, 0
    for item in expected:
        found = predictor.logits([item.text])[0].tolist()
        difference = _compare(item, found, tolerance, predictor.labels)
        worst = max(worst, difference)
        labels_checked += _lead(item.logits) > tolerance
    return {
        "selftest": 1,
        "verdict": "pass",
        "texts": len(expected),
        "labels_checked": labels_checked,
        "max_difference": worst,
        "tolerance": tolerance,
        "load_ms": round(load_ms, 3),
        "providers": list(predictor.providers),
    }


def _compare(expected: golden.GoldenText, found: Sequence[float], tolerance: float, labels: Sequence[str]) -> float:
    """The largest difference of a logit, which is at most `tolerance`."""
    differences = [abs(a - b) for a, b in zip(expected.logits, found)]
    # Not `max(differences) > tolerance`: a NaN would slip through that.
    worst = next((i for i, value in enumerate(differences) if not value <= tolerance), None)
    if worst is not None:
        values = f"{found[worst]:.6g} and should be {expected.logits[worst]:.6g}"
        apart = f"{differences[worst]:.3g} apart, {tolerance:.3g} allowed"
        raise _failed(expected, f"the logit of label {labels[worst]!r} is {values}: {apart}")
    ours, wanted, lead = _first(found), _first(expected.logits), _lead(expected.logits)
    if lead > tolerance and ours != wanted:
        raise _failed(
            expected, f"the label is {labels[ours]!r} and should be {labels[wanted]!r}, which leads by {lead:.3g}"
        )
    return max(differences)


def _first(logits: Sequence[float]) -> int:
    return max(range(len(logits)), key=logits.__getitem__)


def _lead(logits: Sequence[float]) -> float:
    """How far the largest logit lies above the second largest."""
    first, second = sorted(logits, reverse=True)[:2]
    return first - second


def _tolerance(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise BundleInvalidError(
            "manifest.json has no usable tolerance for the self-test",
            why=f"model.golden_tolerance is {value!r}",
            fix="build the bundle again",
        )
    return float(value)


def _failed(expected: golden.GoldenText, why: str) -> StepFailedError:
    text = expected.text if len(expected.text) <= 60 else expected.text[:60] + "..."
    return StepFailedError(
        f"the self-test failed on the text {text!r}",
        why=why,
        fix="verify the bundle; if it is intact, this CPU computes the model differently: build for this target",
    )
