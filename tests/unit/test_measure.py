"""Models asked by the build: what goes wrong there ends a stage and is no surprise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeModel

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT
from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig
from edgepack_runtime.tasks.one_label import one_label


class Broken:
    """As a float16 model whose values went beyond the end."""

    def predict_batch(self, texts: Any) -> Any:
        return [one_label(("0", "1"), [float("nan"), 1.0]) for _ in texts]


def test_answers_that_are_no_numbers_fail_the_stage() -> None:
    model: Any = Broken()
    with pytest.raises(StageFailedError, match="float16 on dev: ") as caught:
        evaluation.answers(model, [Row("好", "0")], "float16 on dev", SILENT)
    assert "nan" in caught.value.why.lower()


def test_a_model_for_a_gpu_is_opened_on_the_cpu_and_stays_as_it_is(tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model(tmp_path / "gpu", engine=EngineConfig(provider=CUDA))
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    plain = evaluation.opened(make_model(tmp_path / "cpu"))
    model = evaluation.opened(folder)
    assert model.providers == (CPU,)
    assert np.allclose(model.logits(["房间很大"]), plain.logits(["房间很大"]))
    assert sorted((path.name, path.read_bytes()) for path in folder.iterdir()) == before
