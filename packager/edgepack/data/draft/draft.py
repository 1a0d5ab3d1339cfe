"""Writer of a commented recipe for data files, and of three splits beside it if they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from edgepack.data.draft.recipe_text import (
    Draft,
    describe,
    folder_recipe,
    recipe_text,
    too_few_for_drop,
    too_few_for_majority,
)
from edgepack.data.draft.source import DraftSource, look_at
from edgepack.data.draft.split import (
    DEV,
    IN_HELD_OUT,
    REPEATED,
    TEST,
    TRAIN,
    assign,
    held_out_share,
    writing,
    written_columns,
    written_suffix,
)
from edgepack.data.split_checks import check_splits, rows_to_drop
from edgepack.data.split_stats import SplitFacts
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, UsageError
from edgepack.messages import message
from edgepack.progress import Progress
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import HELD_OUT, SPLIT_NAMES, HeldOut, SplitName
from edgepack.recipe.trained_folder import is_trained_folder
from edgepack_runtime.util.fs import write_atomic

_SPLIT_OF: Final[Mapping[int, SplitName]] = {TRAIN: "train", DEV: "dev", TEST: "test"}


@dataclass(frozen=True)
class Drafted:
    """The written files, findings about the data, and a description of it, a line each."""

    files: tuple[Path, ...]
    findings: tuple[Finding, ...]
    description: tuple[str, ...]


def draft(given: Mapping[SplitName, Path], recipe: Path, progress: Progress, *, force: bool = False) -> Drafted:
    """Write a recipe for `given`: training rows, and dev and test rows if they exist.

    The recipe names the files directly if there are three that it can read. Otherwise train.tsv, dev.tsv and test.tsv
    are written beside it (.jsonl for several labels or spans), with missing splits taken from the training rows. Rows
    that repeat an earlier training row, or that dev or test holds, are left out.

    Raises:
        UsageError: a file would be overwritten, without `force`; or, even with it, one of the files to read.
        RecipeInvalidError: the data cannot be used; has every finding. Or a path is a trained model.
        EnvironmentUnfitError: the files cannot be written.
    """
    for file in given.values():
        if is_trained_folder(file):
            how = message("mistake.package_it", recipe=recipe.name, lines=folder_recipe(file, recipe))
            raise RecipeInvalidError(message("mistake.trained_folder", path=str(file)), fix=how)
    _refuse_overwriting([recipe], given, force)
    sources = {name: look_at(name, given[name], progress) for name in SPLIT_NAMES if name in given}
    _refuse_other_tasks(sources)
    lines = [source.describe() for source in sources.values()]
    try:
        recipe.parent.mkdir(parents=True, exist_ok=True)
        made: tuple[Path, ...]
        if _usable_as_they_are(sources):
            facts = {name: source.facts for name, source in sources.items()}
            findings = [*check_splits(facts), *_too_few(facts["test"])]
            dropped = rows_to_drop(facts, leaks="drop", repeats="drop").values()
            in_held_out = sum(np.count_nonzero(leaked) for leaked, _ in dropped)
            repeated = sum(np.count_nonzero(again) for _, again in dropped)
            notes = _remaining(facts, in_held_out, repeated)
            files = {name: source.file for name, source in sources.items()}
            train = sources["train"]
            text = recipe_text(Draft(train.file, recipe, files, train.columns, facts, notes, train.label_separator))
            write_atomic(recipe, text.encode())
            made, summary = (recipe,), [*_described(facts), *notes]
        else:
            suffix = written_suffix(sources["train"].columns)
            files = {name: recipe.parent / f"{name}{suffix}" for name in SPLIT_NAMES}
            _refuse_overwriting(files.values(), given, force)
            findings, summary = _convert(sources, files, recipe, progress)
            made = (recipe, *files.values())
    except OSError as error:
        why = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
        what = message("draft.no_folder", folder=str(recipe.parent))
        raise EnvironmentUnfitError(what, why=why, fix=message("draft.free_space")) from error
    return Drafted(made, (*sources["train"].findings, *findings), (*lines, *summary))


def _usable_as_they_are(sources: Mapping[SplitName, DraftSource]) -> bool:
    plain = all(source.plain for source in sources.values())
    forms = {(source.columns, source.label_separator) for source in sources.values()}
    return plain and len(sources) == len(SPLIT_NAMES) and len(forms) == 1


def _refuse_other_tasks(sources: Mapping[SplitName, DraftSource]) -> None:
    kinds = {
        name: message("draft.kind", task=source.columns.task, answer=source.columns.answer)
        for name, source in sources.items()
    }
    for name, kind in kinds.items():
        if kind != kinds["train"]:
            reason = message("draft.other_task", kind=kind, train=sources["train"].file.name, train_kind=kinds["train"])
            findings = [Finding("error", sources[name].file, None, reason, message("draft.same_kind"))]
            raise RecipeInvalidError(message("draft.none", file=str(sources[name].file)), findings=findings)


def _convert(
    sources: Mapping[SplitName, DraftSource], files: Mapping[SplitName, Path], recipe: Path, progress: Progress
) -> tuple[list[Finding], list[str]]:
    """Write `files` and `recipe`; return warnings and a description."""
    missing = [name for name in HELD_OUT if name not in sources]
    codes = assign(sources["train"].facts, missing, [sources[name].facts for name in HELD_OUT if name in sources])
    columns = written_columns(sources["train"].columns)
    origins = {name: sources.get(name, sources["train"]).file for name in SPLIT_NAMES}
    with writing(files, origins, columns) as written:
        for (line, row), code in zip(sources["train"].rows(progress), codes, strict=True):
            if code in _SPLIT_OF:
                written.add(_SPLIT_OF[int(code)], line, row)
        for name in HELD_OUT:
            if name in sources:
                for line, row in sources[name].rows(progress):
                    written.add(name, line, row)
        facts = {name: source.facts for name, source in sources.items()}
        notes = _remaining(facts, np.count_nonzero(codes == IN_HELD_OUT), np.count_nonzero(codes == REPEATED))
        notes += _notes(missing, np.count_nonzero(np.isin(codes, list(_SPLIT_OF))), written.respaced)
        findings = [finding for source in sources.values() for finding in source.facts.log.left_out()]
        findings += [*check_splits(written.facts), *_too_few(written.facts["test"])]
        text = recipe_text(Draft(sources["train"].file, recipe, files, columns, written.facts, notes))
    write_atomic(recipe, text.encode())
    return findings, [*_described(written.facts), *notes]


def _described(facts: Mapping[SplitName, SplitFacts]) -> list[str]:
    """A description of the data in lines, and the reason if the recipe has no limit for the loss of INT8."""
    unlimited = too_few_for_drop(facts["test"])
    return [*describe(facts), *([] if unlimited is None else [unlimited])]


def _too_few(test: SplitFacts) -> list[Finding]:
    """The warning about test rows that show few good models to be better than the most frequent answer."""
    found = too_few_for_majority(test)
    return [] if found is None else [Finding("warning", test.file, None, *found)]


def _remaining(facts: Mapping[SplitName, SplitFacts], in_held_out: int, repeated: int) -> list[str]:
    """How many of the usable rows remain, and why not all: `in_held_out` rows of train or dev are in test or dev."""
    rows = sum(map(len, facts.values()))
    counts = {"draft.repeated": repeated, "draft.in_held_out": in_held_out}
    reasons = [message(name, n=count) for name, count in counts.items() if count]
    left = rows - in_held_out - repeated
    return [message("draft.remain", left=left, rows=rows, reasons=reasons)] if reasons else []


def _notes(missing: list[HeldOut], rows: int, respaced: int) -> list[str]:
    """Which `missing` splits were taken from so many training rows, and how many texts were changed."""
    notes: list[str] = []
    if missing:
        shares = [message("draft.share", share=held_out_share(name, rows), name=name) for name in missing]
        notes.append(message("draft.split_off", shares=shares))
    if respaced:
        notes.append(message("draft.respaced", n=respaced))
    return notes


def _refuse_overwriting(targets: Iterable[Path], given: Mapping[SplitName, Path], force: bool) -> None:
    sources = {path.resolve() for path in given.values()}
    for target in targets:
        if target.resolve() in sources:
            fix = message("file.rename_first")
            raise UsageError(message("file.is_read", path=target), fix=fix)
        if target.exists() and not force:
            raise UsageError(message("file.exists", path=target), fix=message("file.elsewhere"))
