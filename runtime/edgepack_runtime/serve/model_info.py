"""Name, version, task and labels of the served model, as `/model` and the KServe endpoints return them."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Dict, Sequence, Tuple

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.model_config import CUSTOM
from edgepack_runtime.install.locate import Located
from edgepack_runtime.tasks.registry import task_by_name
from edgepack_runtime.tasks.task import Output

if TYPE_CHECKING:
    from edgepack_runtime.inference.predictor import Predictor

_DEFAULT_VERSION = "0.0.0"  # of a model folder without a release


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Properties of the loaded model. `labels` are in the order of the scores; tags for token classification.

    A model with a handler has no labels. It and a linear model have a `max_length` of 0: they cut nothing to tokens.
    """

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
    item: str  # what the model reads, as in `model_config`

    @property
    def outputs(self) -> Sequence[Output]:
        """The keys of an answer; none for a model with a handler, whose answer is any JSON value."""
        return () if self.task == CUSTOM else task_by_name(self.task, multi_label=self.multi_label).outputs(self.labels)

    def as_json(self) -> Dict[str, Any]:
        """JSON object of all fields."""
        found = dataclasses.asdict(self)
        return {**found, "labels": list(self.labels), "providers": list(self.providers)}


def name_and_version(found: Located) -> Tuple[str, str]:
    """Name and version of the model's release; without a release the folder's name and 0.0.0.

    Raises:
        BundleInvalidError: the release's manifest is damaged.
    """
    if found.release is None:
        name = re.sub(r"[^0-9A-Za-z._-]+", "-", found.model.name).strip("-.")  # it becomes part of URLs
        return name or "model", _DEFAULT_VERSION
    manifest, _ = verify.read_manifest(found.release)
    return manifest.name, manifest.version


def from_predictor(predictor: Predictor, name: str, version: str) -> ModelInfo:
    """Properties of the model that `predictor` has loaded."""
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
        item=config.item,
    )
