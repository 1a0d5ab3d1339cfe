"""Loader of a recipe's splits, from files or from a built-in generator, with all findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

from edgepack.artifacts import Row
from edgepack.data.files import no_progress
from edgepack.data.lengths import Lengths
from edgepack.data.sampling import Sampler
from edgepack.data.split_checks import check_leaks, check_size, check_splits, rows_to_drop
from edgepack.data.split_stats import SplitFacts, changed, gather_facts, masked, read_facts
from edgepack.data.synthetic import reviews_zh
from edgepack.data.tables import read_rows
from edgepack.data.unlabelled import TextSet, count, free_texts
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.progress import SILENT, Progress
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import Finding, Severity, errors
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import (
    BUILTIN_PREFIX,
    HELD_OUT,
    MOST_DEV_ROWS,
    SPLIT_NAMES,
    Data,
    FolderData,
    ImportedData,
    SplitName,
    is_builtin,
)
from edgepack.recipe.paths import on_disk
from edgepack.util.text import counted
from edgepack_runtime.tasks.reading import NO_ANSWER, OR_NONE

BAR_FROM_BYTES: Final = 8 * 2**20  # smaller files are read within two seconds, and need no bar
_GENERATORS: Final = {"reviews-zh": reviews_zh.generate}
_MIB: Final = 2**20

_Kept = list[bool]  # for each row of a file, whether it is kept
State = tuple[int, int]  # size of a file in bytes, and time of its last change


class RowReader(Protocol):
    """The rows of one split, of known number; every iteration reads them again."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...


class FileRows:
    """Rows of a file that was checked before. None of them is kept in memory.

    Args:
        file: the file.
        rows: number of rows when it was checked.
        state: size and time of the file when it was checked.
        read: reads the rows from the beginning.

    Raises:
        StageFailedError: while iterating, if the file has changed since.
    """

    def __init__(self, file: Path, rows: int, state: State | None, read: Callable[[], Iterator[Row]]) -> None:
        self._file, self._rows, self._state, self._read = file, rows, state, read

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Row]:
        count = 0
        for row in self._read():
            yield row
            count += 1
        if count != self._rows or _state(self._file) != self._state:
            why = f"it had {self._rows} rows when it was checked and {count} when they were written"
            raise changed(self._file, why)


@dataclass(frozen=True)
class Splits:
    """Splits of a recipe, statistics of their rows, and warnings.

    `rows` are in file order. `labels` has the number of rows that hold each label, `lengths` the estimated tokens.
    `unlabelled` has the texts of `data.unlabelled` that neither dev nor test holds; null where the recipe names none.
    """

    rows: dict[SplitName, RowReader]
    warnings: tuple[Finding, ...]
    labels: dict[SplitName, dict[str, int]]
    lengths: dict[SplitName, Lengths]
    unlabelled: RowReader | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """The sorted labels of the rows. A few rows of dev and test may have one that train lacks (`split_checks`)."""
        return tuple(sorted(set(chain.from_iterable(self.labels.values()))))


def load_splits(section: Data, progress: Progress = SILENT) -> Splits:
    """Check train, dev, test and the unlabelled texts in one pass over each file, or generate the splits.

    Raises:
        RecipeInvalidError: a finding is an error; has every finding.
    """
    generated = _generate(section) if is_builtin(section.train) else {}
    files = {} if generated else {name: Path(str(getattr(section, name))) for name in SPLIT_NAMES}
    texts = [Path(section.unlabelled)] if section.unlabelled is not None else []
    states = {file: _state(file) for file in (*files.values(), *texts)}
    with counted_bytes("reading", list(states), progress) as advance:
        facts = {name: _facts(name, section, file, advance) for name, file in files.items()}
        facts = facts or {name: _facts_of(name, rows) for name, rows in generated.items()}
        findings = [] if generated else check_splits(facts, section.leaks, section.repeats)
        kept: dict[SplitName, _Kept] = {}
        if not generated and not errors(findings):
            dropped = rows_to_drop(facts, section.leaks, section.repeats)
            kept = {name: (~(leaked | repeated)).tolist() for name, (leaked, repeated) in dropped.items()}
            left_out = {
                name: f"{mask.count(False)} of {len(mask)} {name} rows are left out" for name, mask in kept.items()
            }
            facts |= {name: _facts(name, section, files[name], no_progress, mask) for name, mask in kept.items()}
            # Errors that arise from the dropped rows: train may have lost a label.
            for error in errors(check_splits(facts, section.leaks, section.repeats)) if kept else []:
                findings.append(replace(error, reason=f"{error.reason}; {' and '.join(left_out.values())}"))
        unlabelled = None
        for file in texts:
            held_out_texts = TextSet.of_splits([facts[name] for name in HELD_OUT])
            log = FindingLog(file, section.columns.place)
            rows = count(file, section.columns, held_out_texts, log, advance)
            findings += log.findings()
            unlabelled = FileRows(file, rows, states[file], partial(free_texts, file, section.columns, held_out_texts))
    if stopping := errors(findings):
        raise RecipeInvalidError(message("mistake.data", n=len(stopping)), findings=findings)
    return Splits(
        {
            name: generated.get(name) or _file_rows(split, section, states[split.file], kept.get(name))
            for name, split in facts.items()
        },
        tuple(findings),
        {name: split.label_rows for name, split in facts.items()},
        {name: split.lengths for name, split in facts.items()},
        unlabelled,
    )


def load_known(section: ImportedData, labels: Sequence[str], progress: Progress = SILENT) -> Splits:
    """Check the rows of a model with these `labels` (of spans: their types). Only the test rows have to be there.

    Rows of train and dev that leak are left out as `FolderData.leaks` says. Of a section that may have dev rows and
    names none, a seeded part of the test rows becomes dev.

    Raises:
        RecipeInvalidError: they cannot be read, are none, or have another label; has every finding.
    """
    named = {name: getattr(section, name, None) for name in SPLIT_NAMES}
    files = {name: Path(file) for name, file in named.items() if file is not None}
    states = {file: _state(file) for file in files.values()}
    with counted_bytes("reading", list(states), progress) as advance:
        facts = {name: _facts(name, section, file, advance) for name, file in files.items()}
    for split in facts.values():
        _check_known(split, labels)
    if facts["test"].complete and len(facts["test"]) > 1 and len(labels) > 1:
        check_size(facts["test"], everywhere=False)
    kept: dict[SplitName, _Kept] = {}
    log = facts["test"].log
    if isinstance(section, FolderData) and all(split.complete for split in facts.values()):
        check_leaks(facts, section.leaks)
        dropped = rows_to_drop(facts, section.leaks, "keep")
        kept = {name: (~leaked).tolist() for name, (leaked, _) in dropped.items()}
        if "dev" not in facts:
            kept |= _drawn_dev(facts["test"], section.seed)
            log.add("dev rows", *_about_dev(section, kept))
    findings = [finding for split in facts.values() for finding in split.log.findings()]
    if stopping := errors(findings):
        raise RecipeInvalidError(message("mistake.data", n=len(stopping)), findings=findings)
    files |= {name: files["test"] for name in kept if name not in files}
    facts |= {name: _facts(name, section, files[name], no_progress, mask) for name, mask in kept.items()}
    return Splits(
        {
            name: _file_rows(facts[name], section, states[files[name]], kept.get(name))
            for name in SPLIT_NAMES
            if name in facts
        },
        tuple(findings),
        {name: split.label_rows for name, split in facts.items()},
        {name: split.lengths for name, split in facts.items()},
    )


_LEAST_DEV_ROWS: Final = 2


def _drawn_dev(test: SplitFacts, seed: int) -> dict[SplitName, _Kept]:
    """Which of the test rows become dev, a seeded quarter, and which stay. Questions on one text stay together."""
    of_text = test.groups.tolist() if test.task.in_second else list(range(len(test)))
    texts = list(dict.fromkeys(of_text))
    draw = Sampler(min(MOST_DEV_ROWS * len(texts) // max(1, len(test)), len(texts) // 4), len(texts), f"dev/{seed}")
    taken = {text for text in texts if draw()}
    drawn = [text in taken for text in of_text]
    return {"dev": drawn, "test": [not one for one in drawn]}


def _about_dev(section: FolderData, kept: Mapping[SplitName, _Kept]) -> tuple[Severity, None, str, str]:
    """The finding about dev rows that are taken from test."""
    count, rows = sum(kept["dev"]), len(kept["dev"])
    if count < _LEAST_DEV_ROWS:
        reason = f"there are no dev rows, and {counted(rows, 'test row')} are too few to take a quarter of them"
        return "error", None, reason, "give `data.dev`, or eight test rows at least"
    name = "found.no_dev" if section.train is not None else "found.no_dev_no_train"
    return "warning", None, message(name, n=count, rows=rows), message("found.give_dev")


def _check_known(facts: SplitFacts, labels: Sequence[str]) -> None:
    """Log a split without rows, and labels that the model does not have."""
    if not len(facts) and facts.complete:
        facts.log.add("no rows", "error", None, "it has no rows", "give labelled rows")
    known = set(labels)
    lists = f"the model has {listed(labels[:20])}; the rows have {listed(facts.labels[:20])}"
    if not facts.task.labelled and facts.labels and not known:
        fix = f"if the model knows that, write `model: {{labels: [{', '.join(OR_NONE)}]}}`"
        reason = f"{counted(facts.label_rows[NO_ANSWER], 'question')} without an answer, and the model always gives one"
        facts.log.add("no answer", "warning", facts.label_lines[NO_ANSWER], reason, fix)
        return
    for label in facts.labels:
        if label not in known:
            reason = f"the label `{label[:60]}` is none of the model's: {lists}"
            near = partial(did_you_mean, label, labels, "correct the label, or `model.labels`")
            facts.log.add("unknown label", "error", facts.label_lines[label], reason, near)


def _facts(
    name: SplitName, section: Data | ImportedData, file: Path, advance: Callable[[int], None], kept: _Kept | None = None
) -> SplitFacts:
    return read_facts(name, file, section.columns, advance, label_separator=section.label_separator, kept=kept)


def _facts_of(name: SplitName, rows: Iterable[Row]) -> SplitFacts:
    """Statistics of rows that are not in a file."""
    return gather_facts(SplitFacts(name, Path(name), FindingLog(Path(name))), enumerate(rows, start=1))


def _file_rows(facts: SplitFacts, section: Data | ImportedData, state: State | None, kept: _Kept | None) -> FileRows:
    def read() -> Iterator[Row]:
        log = FindingLog(facts.file)
        rows = read_rows(facts.file, section.columns, log, label_separator=section.label_separator)
        for _, row in rows if kept is None else masked(facts.file, rows, kept):
            yield row

    return FileRows(facts.file, len(facts), state, read)


@contextmanager
def counted_bytes(label: str, files: list[Path], progress: Progress) -> Iterator[Callable[[int], None]]:
    """A function that counts bytes; it advances a bar in MiB if the files are large enough to take seconds."""
    total = sum((_state(file) or (0, 0))[0] for file in files)
    if total < BAR_FROM_BYTES:
        yield no_progress
        return
    with progress.task(f"{label}, MiB", total // _MIB) as task:
        rest = 0

        def advance(read_bytes: int) -> None:
            nonlocal rest
            steps, rest = divmod(rest + read_bytes, _MIB)
            task.advance(steps)

        yield advance


def _generate(section: Data) -> dict[SplitName, list[Row]]:
    rows = _GENERATORS[section.train.removeprefix(BUILTIN_PREFIX)](section.seed)
    return {name: rows[name] for name in SPLIT_NAMES}


def _state(file: Path) -> State | None:
    """Size in bytes and time of the last change; None for a missing file, which the reader reports."""
    try:
        found = on_disk(file).stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns
