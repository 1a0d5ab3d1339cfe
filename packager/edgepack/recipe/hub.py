"""Models of PaddleNLP's hub: which of them a recipe names, their size, and whether they are on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.recipe.encoder_shapes import PADDLE_WEIGHTS, PRESETS, parameters
from edgepack.recipe.model import Recipe
from edgepack.recipe.paths import is_file
from edgepack.recipe.training import Student, Teacher, is_local_folder

HOME_VARIABLE: Final = "PPNLP_HOME"
_BYTES_PER_WEIGHT: Final = 4  # float32


@dataclass(frozen=True)
class HubModel:
    """A model that PaddleNLP downloads once.

    Attributes:
        folder: where PaddleNLP keeps it.
        size_bytes: of its weights; None if unknown before the download, as for models of the community (`owner/name`).
    """

    name: str
    folder: Path
    size_bytes: int | None

    @property
    def is_cached(self) -> bool:
        """Whether its weights are on this machine."""
        return is_file(self.folder / PADDLE_WEIGHTS)


def home(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of PaddleNLP's files: `$PPNLP_HOME`, else `~/.paddlenlp`."""
    chosen = (os.environ if environment is None else environment).get(HOME_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".paddlenlp"


def models_folder() -> Path:
    """The folder in which PaddleNLP keeps a folder for each model."""
    return home() / "models"


def models(recipe: Recipe) -> tuple[HubModel, ...]:
    """The models of the hub that builds of a resolved recipe load: of the teacher and of every student."""
    sections: list[Teacher | Student] = [*([recipe.teacher] if recipe.teacher is not None else []), *recipe.students]
    names = dict.fromkeys(
        section.model for section in sections if isinstance(section.model, str) and not is_local_folder(section.model)
    )
    return tuple(model(name) for name in names)


def model(name: str) -> HubModel:
    """The model called `name` in the hub."""
    shape = PRESETS.get(name)
    size = None if shape is None else _BYTES_PER_WEIGHT * parameters(shape, labels=0)
    return HubModel(name, models_folder() / name, size)


def cached() -> tuple[HubModel, ...]:
    """The models on this machine, by name."""
    folder = models_folder()
    found = folder.rglob(PADDLE_WEIGHTS) if folder.is_dir() else ()
    return tuple(model(file.parent.relative_to(folder).as_posix()) for file in sorted(found))
