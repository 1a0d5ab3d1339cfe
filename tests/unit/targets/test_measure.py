"""Models asked by the build: what goes wrong there ends a stage and is no surprise."""

from __future__ import annotations

from typing import Any

import pytest

from edgepack.artifacts import Row
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT
from edgepack.targets import measure
from edgepack_runtime import answers


class Broken:
    """As a float16 model whose values went beyond the end."""

    def predict_batch(self, texts: Any) -> Any:
        return [answers.one_label(("0", "1"), [float("nan"), 1.0]) for _ in texts]


def test_answers_that_are_no_numbers_fail_the_stage() -> None:
    model: Any = Broken()
    with pytest.raises(StageFailedError, match="float16 on dev: ") as caught:
        measure.answers(model, [Row("好", "0")], "float16 on dev", SILENT)
    assert "nan" in caught.value.why.lower()
