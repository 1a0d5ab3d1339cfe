"""Locate the model in a given path: a model folder, a release or a prefix."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional

from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.model_config import CONFIG_NAME, MANIFEST_NAME, MODEL_NAME
from edgepack_runtime.device.tuning import Tuning, read
from edgepack_runtime.errors import UsageError
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.messages import message

OWN_FOLDER = Path(__file__).resolve().parents[2]  # holds this package; of an installed release, the release


class Located(NamedTuple):
    """A model folder, its release and the release's prefix; None without one."""

    model: Path
    release: Optional[Path]
    prefix: Optional[Prefix]

    def tuning(self) -> Optional[Tuning]:
        """The result of `tune`; None if it never ran, or outside of a prefix. Raises as `tuning.read`."""
        return read(self.prefix.tuning_file(self.release)) if self.prefix and self.release else None


def locate(path: Path) -> Located:
    """Find the model in `path`: a model folder or its model.onnx, an unpacked release, or a prefix.

    Links are resolved once, so that a switch to another release while a model loads cannot mix files of both.

    Raises:
        UsageError: `path` is none of these.
    """
    folder = (path.parent if path.name == MODEL_NAME else path).resolve()
    for model in (folder, folder / MODEL_FOLDER, (folder / "current").resolve() / MODEL_FOLDER):
        if (model / CONFIG_NAME).is_file():
            release = model.parent if (model.parent / MANIFEST_NAME).is_file() else None
            return Located(model, release, Prefix.containing(release) if release else None)
    raise UsageError(
        message("error.no_model", path=path), why=message("error.model_holds"), fix=message("error.give_model")
    )


def locate_own_release() -> Located:
    """The model of the release that contains this package.

    Raises:
        UsageError: this package is not in a release.
    """
    if not (OWN_FOLDER / MANIFEST_NAME).is_file():
        raise UsageError(
            "no model was given",
            why=f"edgepack_runtime is in {OWN_FOLDER}, which is not a release with a model",
            fix="give a model folder, a release, or the prefix of an install",
        )
    return locate(OWN_FOLDER)
