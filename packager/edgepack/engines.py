"""What runs a model on a device: how each engine wants the graph, and what the runtime has to know of it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from typing import Final, Protocol

from edgepack.errors import EnvironmentUnfitError
from edgepack.graph.compose import Layout, fastest
from edgepack.graph.forms import Form, OrtCpuForm, QdqForm
from edgepack.recipe.model import EngineChoice, Recipe
from edgepack_runtime.model_config import ONNXRUNTIME, OPENVINO, PAIR, EngineConfig


class _MakesForm(Protocol):
    def __call__(self, *, reduced: bool) -> Form:
        """A form for one graph; with `reduced` weights have 7 bits."""


@dataclass(frozen=True)
class Engine:
    """One engine. `int8` makes the form in which it runs INT8 fastest; with `padded` the graph hides padding."""

    name: str
    title: str
    config: EngineConfig
    int8: _MakesForm
    padded: bool

    def layout(self, task: str, max_length: int) -> Layout:
        """How the graph of a model of `task` is laid out, whose texts have at most `max_length` tokens."""
        layout = fastest(pairs=task == PAIR, tokens=max_length)
        return replace(layout, unpadded=False) if self.padded else layout


_ENGINES: Final = (
    # ONNX Runtime's fused kernel takes 537 us a run where the parts it replaces take about 120 (4 layers x 312, x86).
    Engine(
        ONNXRUNTIME,
        "ONNX Runtime",
        EngineConfig(ONNXRUNTIME, "CPUExecutionProvider", disabled_optimizers=("SkipLayerNormFusion",)),
        OrtCpuForm,
        padded=False,
    ),
    # It compiles INT8 products for each length that it meets, 15 ms and 5 MB each (4 layers x 312): there are to be
    # few.
    Engine(OPENVINO, "OpenVINO", EngineConfig(OPENVINO, "CPU", pad_to=16), QdqForm, padded=True),
)


def wanted(choice: EngineChoice) -> tuple[Engine, ...]:
    """Those that a recipe asks for; of several, the first is what the others have to beat."""
    return tuple(engine for engine in _ENGINES if choice in ("auto", engine.name))


def of(recipe: Recipe) -> tuple[str, ...]:
    """Names of all that a recipe, or a candidate of its search, asks for."""
    asked = (recipe.engine, *(candidate.recipe.engine for candidate in recipe.candidates))
    return tuple(dict.fromkeys(engine.name for choice in asked for engine in wanted(choice)))


def require_installed(choice: EngineChoice) -> None:
    """Whether this machine can run, and so measure, what a recipe asks for.

    Raises:
        EnvironmentUnfitError: naming what is not installed.
    """
    for engine in wanted(choice):
        if importlib.util.find_spec(engine.name) is None:
            raise EnvironmentUnfitError(
                f"{engine.title} is not installed",
                why=f"`engine: {choice}` measures models on it",
                fix=f"pip install edgepack[{engine.name}], or write `engine: {ONNXRUNTIME}`",
            )
