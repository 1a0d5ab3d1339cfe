"""The earlier release that a recipe names as accuracy baseline: is it comparable, its manifest entry, its answers.

The runtime inside that bundle is not used. The installed one runs its model on the CPU of this machine, whatever the
bundle's target, and in the sandbox: the bundle may be of somebody else.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.errors import EdgepackError, RecipeInvalidError, StageFailedError
from edgepack.progress import Progress
from edgepack.sandbox import operators
from edgepack.sandbox import runner as sandbox
from edgepack.util.folders import scratch_folder
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.stats.metrics import Answer

_RECIPE_KEY: Final = "gates.accuracy.baseline"
_MAX_CONFIG_BYTES: Final = 2**20


def require_comparable(bundle: Path, task: str, labels: Sequence[str]) -> Manifest:
    """Check that `bundle` is complete and that its model has this task and these labels; return its manifest.

    Raises:
        RecipeInvalidError: it has another task or other labels.
        BundleInvalidError, UsageError, EnvironmentUnfitError: as `verify_file`; the message starts with the recipe key.
    """
    with _errors_name_recipe_key():
        manifest = verify_file(bundle)[0]
    with _errors_name_recipe_key(), Archive(bundle) as archive:
        config = model_config.parse(archive.read(f"{MODEL_FOLDER}/{model_config.CONFIG_NAME}", _MAX_CONFIG_BYTES))
    if config.task != task:
        raise _not_comparable(bundle, f"it is for {config.task}, and the recipe for {task}")
    if set(config.classes) != set(labels):
        baseline_labels, data_labels = ", ".join(sorted(config.classes)), ", ".join(sorted(labels))
        raise _not_comparable(bundle, f"its labels are {baseline_labels}, and those of the data {data_labels}")
    return manifest


def manifest_entry(bundle: Path) -> dict[str, str]:
    """What the manifest of a new release says of its verified baseline `bundle`."""
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
    """The answers of the model in `bundle` to `rows`, given in the sandbox.

    Raises:
        StageFailedError: the model cannot be run, has an operator that is not allowed, or exceeded a limit.
        BundleInvalidError, UsageError, EnvironmentUnfitError: as `verify_file`; the message starts with the recipe key.
    """
    job = functools.partial(_confined_answers, bundle, rows)
    with scratch_folder("edgepack-") as scratch:
        found: list[Answer] = sandbox.run(
            job, list[Answer], scratch / "sandbox", progress, stage=f"`{_RECIPE_KEY}`", reads=[bundle]
        )
    if len(found) != len(rows):
        raise StageFailedError(f"`{_RECIPE_KEY}`: {bundle.name} gave {len(found)} answers to {len(rows)} rows")
    return found


def _confined_answers(bundle: Path, rows: Sequence[Row], progress: Progress) -> list[Answer]:
    """The work of `answers`."""
    with _model(bundle) as folder:
        graph = folder / model_config.MODEL_NAME
        if graph.exists():  # a linear model alone has none
            with _errors_name_recipe_key():
                operators.require_known(graph)
        predictor = evaluation.opened(folder, threads=1)
        try:
            return evaluation.answers(predictor, rows, f"golden rows, {bundle.name}", progress)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # of logits in an odd shape
            raise StageFailedError(
                f"`{_RECIPE_KEY}`: the model of {bundle.name} gives no answers",
                why=f"{type(error).__name__}: {error}",
                fix="give a release that passes its own `selftest`",
            ) from error


@contextmanager
def _model(bundle: Path) -> Iterator[Path]:
    """The model folder of a verified bundle, for the duration of the context."""
    with _errors_name_recipe_key():
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
def _errors_name_recipe_key() -> Iterator[None]:
    """Start the message of errors about the bundle with the recipe key."""
    try:
        yield
    except EdgepackError as error:
        raise type(error)(f"`{_RECIPE_KEY}`: {error.what}", why=error.why, fix=error.fix) from error


def _not_comparable(bundle: Path, why: str) -> RecipeInvalidError:
    return RecipeInvalidError(
        f"`{_RECIPE_KEY}`: {bundle.name} cannot be compared with",
        why=why,
        fix="give a release that answers the same questions, or remove `baseline` and `max_regression_points`",
    )
