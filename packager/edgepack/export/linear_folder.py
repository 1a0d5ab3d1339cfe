"""Model folders with a linear model: beside an encoder, or alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import LinearConfig
from edgepack_runtime.tasks.task import Task


def write_combined(encoder: Path, linear: Path, config: LinearConfig | None, folder: Path) -> None:
    """Write the model folder of an `encoder` with the `linear` model beside it, or without it."""
    folder.mkdir()
    for name in (model_config.MODEL_NAME, model_config.VOCAB_NAME):
        shutil.copy(encoder / name, folder)
    if config is not None:
        shutil.copy(linear, folder / model_config.LINEAR_NAME)
    _write_config(replace(model_config.load(encoder), linear=config), folder)


def write_linear(linear: Path, task: Task, labels: Sequence[str], folder: Path) -> None:
    """Write the model folder of a `linear` model alone."""
    folder.mkdir()
    shutil.copy(linear, folder / model_config.LINEAR_NAME)
    _write_config(model_config.linear_alone(task, labels), folder)


def _write_config(config: model_config.ModelConfig, folder: Path) -> None:
    (folder / model_config.CONFIG_NAME).write_bytes(model_config.dump(config))
