"""What a folder that somebody names holds: a model, a release with one, or a prefix (standard library only)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import MANIFEST_NAME
from edgepack_runtime.bundle.model_config import CONFIG_NAME, MODEL_NAME
from edgepack_runtime.device.tuning import Tuning, read
from edgepack_runtime.errors import UsageError
from edgepack_runtime.install.prefix import Prefix


class Located(NamedTuple):
    """A model folder, the release it lies in, and the prefix that is in; None where it lies in none."""

    model: Path
    release: Optional[Path]
    prefix: Optional[Prefix]

    @property
    def tuning_file(self) -> Optional[Path]:
        """Where `tune` leaves what it found for this release."""
        return self.prefix.tuning_of(self.release) if self.prefix and self.release else None

    def tuning(self) -> Optional[Tuning]:
        """What `tune` found; None where it never ran, or where the model lies in no prefix. Raises as `tuning.read`."""
        return read(self.tuning_file) if self.tuning_file else None


def locate(path: Path) -> Located:
    """The model that `path` means: a model folder or its model.onnx, an unpacked release, or a prefix.

    Links are followed once, here: what serves may change while a model is being loaded, and files of two releases
    must not mix.

    Raises:
        UsageError: it is none of these.
    """
    folder = (path.parent if path.name == MODEL_NAME else path).resolve()
    for model in (folder, folder / MODEL_FOLDER, (folder / "current").resolve() / MODEL_FOLDER):
        if (model / CONFIG_NAME).is_file():
            release = model.parent if (model.parent / MANIFEST_NAME).is_file() else None
            return Located(model, release, Prefix.around(release) if release else None)
    raise UsageError(
        f"{path} is no model folder",
        why="a model folder holds model.onnx, vocab.txt and model.json; a release or a prefix holds one",
        fix="give that folder, or the model.onnx in it",
    )


def own() -> Located:
    """The model of the release that this very package lies in.

    Raises:
        UsageError: it lies in none.
    """
    folder = Path(__file__).resolve().parents[2]
    if not (folder / MANIFEST_NAME).is_file():
        raise UsageError(
            "which model is meant?",
            why=f"{folder}, where edgepack_runtime lies, is no release that has one",
            fix="name a model folder, a release, or the prefix of an install",
        )
    return locate(folder)
