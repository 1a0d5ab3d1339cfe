from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import logits_of, write_lines, write_release

from edgepack_runtime.bundle import golden
from edgepack_runtime.errors import BundleInvalidError, StageFailedError
from edgepack_runtime.inference import selftest

TEXTS = ("店很好", "店很差", "好好差")


def release_with(folder: Path, lines: list[Any] | None = None, **options: Any) -> Path:
    release, _ = write_release(folder / "release", rows=[("好", "good", "good")], texts=TEXTS, **options)
    if lines is not None:
        write_lines(release / golden.GOLDEN_FILE, lines)
    return release


def test_a_release_that_computes_as_it_did_passes(tmp_path: Path) -> None:
    result = selftest.run(release_with(tmp_path))
    assert result["verdict"] == "pass"
    assert (result["texts"], result["labels_checked"], result["max_difference"]) == (3, 3, 0.0)
    assert result["providers"] == ["CPUExecutionProvider"]


def test_the_self_test_names_the_text_and_the_difference(tmp_path: Path) -> None:
    bad, good = logits_of("店很差")
    lines = [{"text": "店很好", "logits": logits_of("店很好")}, {"text": "店很差", "logits": [bad, good + 0.25]}]
    with pytest.raises(StageFailedError, match="店很差") as caught:
        selftest.run(release_with(tmp_path, lines, tolerance=0.1))
    assert "'good'" in caught.value.why
    assert "0.25 apart, 0.1 allowed" in caught.value.why
    assert selftest.run(release_with(tmp_path / "2", lines, tolerance=0.3))["max_difference"] == 0.25


def test_a_turned_label_fails_where_the_lead_exceeds_the_tolerance(tmp_path: Path) -> None:
    # The tiny model gives (0, 0) for 店: both logits are within 0.5, and yet the label is not the expected one.
    lines = [{"text": "店", "logits": [-0.4, 0.4]}]
    with pytest.raises(StageFailedError, match="店") as caught:
        selftest.run(release_with(tmp_path, lines, tolerance=0.5))
    assert "should be 'good', which leads by 0.8" in caught.value.why
    lines = [{"text": "店", "logits": [-0.2, 0.2]}]
    assert selftest.run(release_with(tmp_path / "2", lines, tolerance=0.5))["labels_checked"] == 0


@pytest.mark.parametrize("tolerance", [None, "0.1", 0, -1, True])
def test_a_release_without_a_tolerance_cannot_be_tested(tmp_path: Path, tolerance: Any) -> None:
    with pytest.raises(BundleInvalidError, match="tolerance"):
        selftest.run(release_with(tmp_path, tolerance=tolerance))


def test_golden_texts_must_be_there(tmp_path: Path) -> None:
    good = {"text": "好", "logits": logits_of("好")}
    with pytest.raises(BundleInvalidError, match=r"line 2 of golden/golden\.jsonl"):
        selftest.run(release_with(tmp_path / "2", [good, {"text": "好"}]))
    release = release_with(tmp_path, [])
    with pytest.raises(BundleInvalidError, match=r"golden/golden\.jsonl") as caught:
        selftest.run(release)
    assert caught.value.why == "it is empty"
    (release / golden.GOLDEN_FILE).unlink()
    with pytest.raises(BundleInvalidError, match=r"golden/golden\.jsonl"):
        selftest.run(release)


# --- other tasks ------------------------------------------------------------------------------------------------


def release_of(folder: Path, line: dict[str, Any], **options: Any) -> Path:
    return write_release(folder / "release", rows=[], texts=[line], **options)[0]


def test_pairs_are_asked_as_pairs(tmp_path: Path) -> None:
    line = {"text": "好", "text_pair": "差", "logits": [-3.5, 3.5]}
    result = selftest.run(release_of(tmp_path, line, task="text-pair-classification"))
    assert (result["texts"], result["labels_checked"], result["max_difference"]) == (1, 1, 0.0)


def test_each_of_several_labels_is_checked(tmp_path: Path) -> None:
    result = selftest.run(release_of(tmp_path, {"text": "很", "logits": [0.25, 0.5]}, multi_label=True, tolerance=0.3))
    assert (result["labels_checked"], result["max_difference"]) == (1, 0.25)  # of 0.25 nobody can say
    with pytest.raises(StageFailedError, match="很"):
        selftest.run(release_of(tmp_path / "2", {"text": "很", "logits": [0.25, 0.6]}, multi_label=True, tolerance=0.3))


TOKENS = [[3.0, 0, 0, 0, 0], [0, 0, 0, 3.0, 0], [3.0, 0, 0, 0, 0]]  # [CLS], a place, [SEP]


def test_each_token_is_checked(tmp_path: Path) -> None:
    line = {"text": "店", "logits": TOKENS}
    result = selftest.run(release_of(tmp_path, line, task="token-classification"))
    assert (result["texts"], result["labels_checked"], result["max_difference"]) == (1, 3, 0.0)


@pytest.mark.parametrize(
    ("logits", "tolerance", "why"),
    [
        (
            [TOKENS[0], [0, 0, 0, 2.5, 0], TOKENS[2]], 1e-4,
            "the logit of label 'B-place' of token 1 is 3 and should be 2.5",
        ),
        (
            [TOKENS[0], [3.5, -1, -1, -0.25, -1], TOKENS[2]], 3.5,
            "the label of token 1 is 'B-place' and should be 'O', which leads by 3.75",
        ),
        (TOKENS[:2], 1e-4, "it has 3 tokens and should have 2"),
    ],
)  # fmt: skip
def test_the_self_test_names_the_token_that_differs(
    tmp_path: Path, logits: list[list[float]], tolerance: float, why: str
) -> None:
    line = {"text": "店", "logits": logits}
    with pytest.raises(StageFailedError, match="店") as caught:
        selftest.run(release_of(tmp_path, line, task="token-classification", tolerance=tolerance))
    assert why in caught.value.why
