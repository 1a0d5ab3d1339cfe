"""Stage calls of given models: what depends on the target."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from given_model import write_given

from edgepack.bundle.archive import Members
from edgepack.errors import RecipeInvalidError
from edgepack.pipeline import given_calls
from edgepack.pipeline.given_calls import GivenCalls
from edgepack.pipeline.stages.bundle import Payload
from edgepack.progress import SILENT
from edgepack.recipe.model import GivenTextRecipe
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.model_config import CPU, CUDA, load, parse


def payload(folder: Path) -> Payload:
    empty = cast(Any, None)
    model: Members = {f"model/{file.name}": file for file in folder.iterdir()}
    return Payload(model, {}, None, {}, {}, empty, None, {})


@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_the_model_runs_on_the_provider_of_its_target(tmp_path: Path, provider: str) -> None:
    given = payload(write_given(tmp_path / "model"))
    made = given_calls._for_provider(provider, lambda scratch, progress: given, tmp_path, SILENT)
    raw = made.model["model/model.json"]
    config, before = parse(raw.read_bytes() if isinstance(raw, Path) else raw), load(tmp_path / "model")
    assert (config.engine.provider, config.adapter) == (provider, before.adapter)
    assert made.model["model/model.onnx"] == tmp_path / "model/model.onnx"


def test_int8_for_a_gpu_is_refused() -> None:
    recipe = GivenTextRecipe.model_validate(
        {
            "edgepack": 1,
            "name": "a",
            "version": "1.0.0",
            "model": {"graph": "a.onnx", "vocab": "v.txt", "labels": ("a", "b")},
            "data": {"test": "t.tsv"},
            "targets": ("gpu",),
            "quantize": {"method": "ptq"},
        }
    )
    context = cast(BuildContext, SimpleNamespace(known=lambda target: SimpleNamespace(provider=CUDA)))
    with pytest.raises(RecipeInvalidError, match="is ptq, and the target gpu has a GPU"):
        GivenCalls(recipe, context)
