"""What a server says of its model (standard library only)."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.install.locate import Located

if TYPE_CHECKING:
    from edgepack_runtime.inference.predictor import Predictor

_UNNAMED_VERSION = "0.0.0"  # of a model folder, which has none


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A model that is loaded. `labels` are in the order of the scores; the tags of tokens for token classification."""

    name: str
    version: str
    task: str
    labels: Tuple[str, ...]
    multi_label: bool
    max_length: int  # tokens that it reads of a text
    precision: str
    engine: str
    providers: Tuple[str, ...]
    threads: int

    def as_json(self) -> Dict[str, Any]:
        """All of them."""
        found = dataclasses.asdict(self)
        return {**found, "labels": list(self.labels), "providers": list(self.providers)}


def named(found: Located) -> Tuple[str, str]:
    """Name and version of a model: those of its release, else the folder's name.

    Raises:
        BundleInvalidError: the release's manifest is damaged.
    """
    if found.release is None:
        return _plain(found.model), _UNNAMED_VERSION
    manifest, _ = verify.read_manifest(found.release)
    return manifest.name, manifest.version


def of(predictor: Predictor, name: str, version: str) -> ModelInfo:
    """The facts of a model that `predictor` has loaded."""
    config = predictor.config
    return ModelInfo(
        name=name,
        version=version,
        task=config.task,
        labels=predictor.labels,
        multi_label=config.multi_label,
        max_length=config.max_length,
        precision=config.precision,
        engine=predictor.engine,
        providers=predictor.providers,
        threads=predictor.tuning.threads,
    )


def _plain(folder: Path) -> str:
    """A folder's name as it can stand in a path of a URL."""
    return re.sub(r"[^0-9A-Za-z._-]+", "-", folder.name).strip("-.") or "model"
