"""The baseline release: answers of its model to the golden rows of a new release.

Its own code is not run. The runtime of this version runs its model on the CPU of this machine, for any target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.errors import EdgepackError, RecipeInvalidError
from edgepack.progress import Progress
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.stats.metrics import Answer

_KEY: Final = "gates.accuracy.baseline"
_MOST_CONFIG_BYTES: Final = 2**20


def require_comparable(bundle: Path, task: str, labels: Sequence[str]) -> Manifest:
    """Check that `bundle` is complete and that its model has this task and these labels; return its manifest.

    Raises:
        RecipeInvalidError: it has another task or other labels.
        BundleInvalidError, UsageError, EnvironmentUnfitError: as `verify_file`, naming the key of the recipe.
    """
    with _named():
        manifest = verify_file(bundle)[0]
    with _named(), Archive(bundle) as archive:
        config = model_config.parse(archive.read(f"{MODEL_FOLDER}/{model_config.CONFIG_NAME}", _MOST_CONFIG_BYTES))
    if config.task != task:
        raise _unlike(bundle, f"it is for {config.task}, and the recipe for {task}")
    if set(config.classes) != set(labels):
        theirs, ours = ", ".join(sorted(config.classes)), ", ".join(sorted(labels))
        raise _unlike(bundle, f"its labels are {theirs}, and those of the data {ours}")
    return manifest


def facts(bundle: Path) -> dict[str, str]:
    """The entry of the verified baseline `bundle` in the manifest of a new release."""
    with Archive(bundle) as archive:
        raw = archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES)
        manifest = contract.parse(raw)
    return {
        "name": manifest.name,
        "version": manifest.version,
        "target": manifest.target.profile,
        "manifest_sha256": hashlib.sha256(raw).hexdigest(),
    }


def answers(bundle: Path, rows: Sequence[Row], progress: Progress) -> list[Answer]:
    """The answers of the model in `bundle` to `rows`.

    Raises:
        StageFailedError: it cannot be run.
        BundleInvalidError, UsageError, EnvironmentUnfitError: as `verify_file`, naming the key of the recipe.
    """
    with _model(bundle) as folder:
        return evaluation.answers(evaluation.opened(folder, threads=1), rows, f"golden rows, {bundle.name}", progress)


@contextmanager
def _model(bundle: Path) -> Iterator[Path]:
    """The model folder of a verified bundle, for the duration of the context."""
    with _named():
        verify_file(bundle)
    with TemporaryDirectory(prefix="edgepack-") as scratch, Archive(bundle) as archive:
        for path, member in archive.members.items():
            if path.startswith(f"{MODEL_FOLDER}/"):
                file = Path(scratch, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("wb") as out:
                    out.writelines(archive.chunks(member))
        yield Path(scratch, MODEL_FOLDER)


@contextmanager
def _named() -> Iterator[None]:
    """Add the recipe's key to errors about the file."""
    try:
        yield
    except EdgepackError as error:
        raise type(error)(f"`{_KEY}`: {error.what}", why=error.why, fix=error.fix) from error


def _unlike(bundle: Path, why: str) -> RecipeInvalidError:
    return RecipeInvalidError(
        f"`{_KEY}`: {bundle.name} cannot be compared with",
        why=why,
        fix="give a release that answers the same questions, or remove `baseline` and `max_regression_points`",
    )
