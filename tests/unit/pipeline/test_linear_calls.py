"""Stage calls of `wide: only`: few, without Paddle, and for CPUs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgepack.errors import RecipeInvalidError, UsageError
from edgepack.pipeline import preflight
from edgepack.pipeline.linear_calls import LinearCalls
from edgepack.pipeline.options import BuildOptions
from edgepack.pipeline.stage_calls import calls_for
from edgepack.recipe.model import LinearRecipe
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.model_config import CPU, CUDA


def recipe(**more: Any) -> LinearRecipe:
    data = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
    return LinearRecipe.model_validate(
        {"edgepack": 1, "name": "a", "version": "1.0.0", "data": data, "wide": "only", **more}
    )


def context(provider: str) -> BuildContext:
    return cast(BuildContext, SimpleNamespace(known=lambda target: SimpleNamespace(provider=provider)))


def test_the_stages_are_data_linear_bundle_and_gate() -> None:
    calls = calls_for(recipe(targets=("a", "b")), context(CPU))
    assert isinstance(calls, LinearCalls)
    assert [call.stage for call in calls] == ["data", "linear", "bundle", "gate", "bundle", "gate"]
    with pytest.raises(UsageError, match="no stage student"):
        preflight.check_options(calls, BuildOptions("student"))


def test_a_target_with_a_gpu_is_refused() -> None:
    with pytest.raises(RecipeInvalidError, match="the target gpu has a GPU"):
        LinearCalls(recipe(targets=("gpu",)), context(CUDA))
