"""What decides the result of a stage, and so its key.

That is the stage's version, its section of the recipe as far as it decides, the digests of what it reads, and the
versions of the libraries that it runs on. The versions of edgepack and of Python are not part of it: an upgrade of
either trains nothing again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edgepack.artifacts import ARTIFACT_FILE, LABELLED, SPLITS, DataArtifact, ModelArtifact, Split
from edgepack.pipeline.workspace import Key, Result
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import Data, is_builtin
from edgepack.recipe.section import Section
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher, is_local_folder
from edgepack.util.hashing import sha256_file, sha256_folder
from edgepack.util.versions import installed_versions

_TRAINING: Final = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "numpy")
LIBRARIES: Final[Mapping[str, Sequence[str]]] = {
    "data": (),
    "teacher": _TRAINING,
    "student": _TRAINING,
    "narrow": _TRAINING,
    "prune": _TRAINING,
    "quantize": (*_TRAINING, "paddleslim"),
    "export": (*_TRAINING, "paddle2onnx", "onnx", "onnxruntime"),
    "select": ("onnxruntime", "numpy"),
    "bundle": (),
    "gate": (),
}  # stage -> the distributions that compute its result


def make(stage: str, version: int, decides: Any, inputs: Sequence[str], facts: Mapping[str, str] | None = None) -> Key:
    """The key of a stage result.

    Args:
        decides: what of the recipe decides, JSON-able.
        inputs: digests of earlier results or of files.
        facts: what else the result depends on, as the machine that measures.
    """
    document = {
        "stage": stage,
        "version": version,
        "section": decides,
        "inputs": list(inputs),
        "versions": installed_versions(LIBRARIES[stage]) | dict(facts or {}),
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return Key(stage, hashlib.sha256(text.encode()).hexdigest())


def dump(section: Section) -> dict[str, Any]:
    """The whole section."""
    return section.model_dump(mode="json", by_alias=True)


def of_data(section: Data) -> dict[str, Any]:
    """What of the section decides which rows there are. Of a file that is its suffix, and its content elsewhere."""
    document = dump(section)
    del document["calibration"]
    for name in SPLITS:
        value = document[name]
        if value is not None and not is_builtin(value):
            document[name] = Path(value).suffix
    return document


def of_gates(section: Gates) -> dict[str, Any]:
    """The limits. A bundle that they are about counts by its content, elsewhere, and not by where it lies."""
    document = dump(section)
    del document["golden"]  # which rows they are measured on, no more
    if section.baseline is not None:
        document["accuracy"]["baseline"] = section.baseline.name
    return document


def of_training(section: Teacher | Student) -> dict[str, Any]:
    """What of the section decides how a model comes out.

    Of a local folder that is its content; of GPUs and machines how many there are, and not which.
    """
    document = dump(section) | {"ranks": section.ranks}
    del document["nodes"]
    for later in ("width", "vocabulary"):  # it is narrowed and pruned when this is learnt
        document.pop(later, None)
    if document["device"].startswith("gpu"):
        document["device"] = "gpu"
    if section.ranks == 1:
        del document["scale_learning_rate"]  # nothing to scale it with
    if is_local_folder(section.model):
        document["model"] = "a local folder"
    return document


def data_digests(section: Data) -> list[str]:
    """Digests of the data files. What is made of them is up to the stage's version, as for every stage."""
    files = [getattr(section, name) for name in SPLITS]
    return [sha256_file(Path(file)) for file in files if file is not None and not is_builtin(file)]


def labelled(rows: Result[DataArtifact], splits: Sequence[Split] = LABELLED) -> list[str]:
    """Digests of what a model is trained and judged by; texts that only a student learns from are not among them."""
    data = rows.artifact
    about = json.dumps([data.task, data.multi_label, data.labels], ensure_ascii=False)
    return [about, *(rows.files[f"{split}.jsonl"] for split in splits)]


def model(trained: Result[ModelArtifact]) -> list[str]:
    """Digests of what a trained model is: its files, and not what a clock said of its training."""
    model = trained.artifact
    about = json.dumps([model.max_length, model.labels], ensure_ascii=False)
    return [about, *(digest for name, digest in sorted(trained.files.items()) if name != ARTIFACT_FILE)]


def unlabelled(rows: Result[DataArtifact]) -> list[str]:
    """Digest of the texts that only a student learns from, if there are any."""
    return [digest for name, digest in rows.files.items() if name == "unlabelled.jsonl"]


def weights(model: str | FromScratch | FromTeacher) -> list[str]:
    """Digest of the local folder that a model comes from, if it comes from one."""
    return [sha256_folder(Path(str(model)))] if is_local_folder(model) else []


def runtime() -> list[str]:
    """Digest of the runtime's own source: it measures what is exported and travels in what is bundled."""
    import edgepack_runtime

    folder = Path(edgepack_runtime.__path__[0])
    return [*_sources(folder), *map(sha256_file, sorted(folder.rglob("*.html")))]


def _sources(package: Path) -> list[str]:
    """Digests of a package's Python files."""
    return [sha256_file(file) for file in sorted(package.rglob("*.py"))]
