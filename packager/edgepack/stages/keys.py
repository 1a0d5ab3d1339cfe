"""Values for cache keys: the recipe values of a section that decide, and the inputs of stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import edgepack_runtime
from edgepack.artifacts import (
    ARTIFACT_FILE,
    EVENTS_PREFIX,
    METRICS_FILE,
    SPLITS,
    DataArtifact,
    ModelArtifact,
    ScalesArtifact,
    Split,
    split_file,
)
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.encoder_shapes import model_files
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import SPLIT_NAMES, Data, FolderData, is_builtin
from edgepack.recipe.paths import on_disk, sheet_of
from edgepack.recipe.section import Section
from edgepack.recipe.training import FromScratch, FromTeacher, Student, Teacher, is_local_folder
from edgepack.stages.stage import Input, StageResult
from edgepack.util.hashing import MOST_BYTES, sha256_file
from edgepack_runtime.schema.gates import NOT_LIMITS

PRETRAINED: Final = "pre-trained weights"  # name of an input


def dump(section: Section) -> dict[str, Any]:
    """All values of a section, in JSON types."""
    return section.model_dump(mode="json", by_alias=True)


def data_section(section: Data | FolderData) -> dict[str, Any]:
    """The values that decide the rows. A file counts by its suffix; `data_digests` has its content."""
    document = dump(section)
    del document["calibration"]
    for name in SPLITS:
        value = document.get(name)
        if value is not None and not is_builtin(value):
            document[name] = Path(value).suffix
    return document


def gates_section(section: Gates) -> dict[str, Any]:
    """The limits. A baseline bundle counts by its name; its content is an input."""
    document = dump(section)
    for name in NOT_LIMITS:  # candidates are compared on dev rows, and one of them always ships
        del document[name]
    if section.baseline is not None:
        document["accuracy"]["baseline"] = section.baseline.name
    return document


def training_section(section: Teacher | Student) -> dict[str, Any]:
    """The values that decide the trained weights.

    A local folder counts by its content (`weights`); GPUs and machines count by their number.
    """
    document = dump(section) | {"ranks": section.ranks}
    del document["nodes"]
    for later in ("width", "vocabulary"):  # later stages prune the width and trim the vocabulary
        document.pop(later, None)
    if document["device"].startswith("gpu"):
        document["device"] = "gpu"
    if section.ranks == 1:
        del document["scale_learning_rate"]  # one process has nothing to scale by
    if is_local_folder(section.model):
        document["model"] = "a local folder"
    return document


def named(name: str, digests: Iterable[str]) -> list[Input]:
    """Inputs of one name, such as the files of a folder."""
    return [Input(name, digest) for digest in digests]


def file_input(name: str, file: Path) -> Input:
    """A file of the user.

    Raises:
        RecipeInvalidError: it is so large that to hash it would take minutes, as a sparse file may be.
    """
    path, sheet = on_disk(file), sheet_of(file)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise RecipeInvalidError(
            f"{file.name} has {size / 2**30:,.0f} GiB, and at most {MOST_BYTES >> 30} GiB are read",
            fix="give a smaller file",
        )
    digest = sha256_file(path)
    return Input(name, f"{digest}#{sheet}" if sheet else digest)


def data_digests(section: Data | FolderData) -> list[Input]:
    """The data files, by split."""
    files = [(name, getattr(section, name, None)) for name in SPLITS]
    return [file_input(name, Path(file)) for name, file in files if file is not None and not is_builtin(file)]


def labelled(rows: StageResult[DataArtifact], splits: Sequence[Split] = SPLIT_NAMES) -> list[Input]:
    """Task, labels and labelled rows."""
    data = rows.artifact
    about = json.dumps([data.task, data.multi_label, data.labels, data.scale], ensure_ascii=False)
    # A model that was trained already needs no training rows.
    files = {split: rows.files.get(split_file(split)) for split in splits}
    found = [Input(split, digest, data.rows.get(split)) for split, digest in files.items() if digest is not None]
    return [Input("task or labels", about), *found]


def model(trained: StageResult[ModelArtifact]) -> list[Input]:
    """A trained model: length, labels and files, without those that hold times and figures of a training."""
    model = trained.artifact
    about = json.dumps([model.max_length, model.labels], ensure_ascii=False)
    files = [digest for name, digest in _untimed(trained.files) if name != ARTIFACT_FILE]
    return named(f"weights of {trained.stage}", [about, *files])


def scales(found: StageResult[ScalesArtifact]) -> list[Input]:
    """Quantization ranges and the weights that were trained with them."""
    return files("quantization ranges", found)


def files(name: str, result: StageResult[Any]) -> list[Input]:
    """The files of a result, without those that hold times: made again alike, it makes nothing after it again."""
    return named(name, [digest for _, digest in _untimed(result.files)])


def whole(result: StageResult[Any]) -> Input:
    """All files of a result, with the times of a training: for what has none, or is to be made again with it."""
    return Input(f"result of {result.stage}", result.digest)


def _untimed(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and digests of a result's files, sorted, without the figures of its training: they hold times."""
    named = [(name.rpartition("/")[2], name) for name in sorted(files)]
    return [(name, files[name]) for last, name in named if last != METRICS_FILE and not last.startswith(EVENTS_PREFIX)]


def unlabelled(rows: StageResult[DataArtifact]) -> list[Input]:
    """The unlabelled texts, if there are any."""
    return [
        Input("unlabelled", digest, rows.artifact.rows.get("unlabelled"))
        for name, digest in rows.files.items()
        if name == split_file("unlabelled")
    ]


def weights(model: str | FromScratch | FromTeacher) -> list[Input]:
    """The local folder that a model is loaded from, if it is one."""
    return [file_input(PRETRAINED, file) for file in model_files(Path(str(model)))] if is_local_folder(model) else []


def baseline(gates: Gates) -> list[Input]:
    """The bundle that the gates compare with, if there is one."""
    return [] if gates.baseline is None else [file_input("baseline bundle", gates.baseline)]


def runtime_files() -> list[Path]:
    """The files of the runtime that every bundle has."""
    folder = Path(edgepack_runtime.__path__[0])
    return [file for pattern in ("*.py", "*.html", "py.typed") for file in sorted(folder.rglob(pattern))]


def runtime() -> list[Input]:
    """The runtime's files. The runtime measures exported models and is part of every bundle."""
    return named("edgepack's runtime", map(sha256_file, runtime_files()))
