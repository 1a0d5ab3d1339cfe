"""All three splits of a recipe's data, from files or from a built-in generator, with everything found wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from edgepack.artifacts import Row
from edgepack.datasets import reviews_zh
from edgepack.datasets.check import check_splits
from edgepack.datasets.facts import SPLIT_NAMES, SplitFacts, SplitName, read_facts
from edgepack.datasets.lengths import Lengths
from edgepack.datasets.lines import no_progress
from edgepack.datasets.log import FindingLog
from edgepack.datasets.tables import read_rows
from edgepack.errors import RecipeInvalidError, StageFailedError
from edgepack.progress import SILENT, Progress
from edgepack.recipe.findings import Finding, errors
from edgepack.recipe.model import BUILTIN_PREFIX, Columns, Data, is_builtin
from edgepack.wording import counted

BAR_FROM_BYTES: Final = 8 * 2**20  # smaller files are read within two seconds, and need no bar
_GENERATORS: Final = {"reviews-zh": reviews_zh.generate}
_MIB: Final = 2**20


class Rows(Protocol):
    """The rows of one split: as many as `len` says, and read anew each time they are iterated."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Row]: ...


class FileRows:
    """Rows of a file that was found in order before. Nothing of them is held.

    Raises:
        StageFailedError: while iterating, when the file is no longer what it was.
    """

    def __init__(self, facts: SplitFacts, columns: Columns, state: tuple[int, int] | None) -> None:
        self._file, self._rows, self._columns, self._state = facts.file, len(facts), columns, state

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Row]:
        count = 0
        for _, row in read_rows(self._file, self._columns, FindingLog(self._file)):
            yield row
            count += 1
        if count != self._rows or _state(self._file) != self._state:
            raise StageFailedError(
                f"{self._file} was changed while it was read",
                why=f"it had {self._rows} rows when it was checked and {count} when they were written",
                fix="build again once it is complete",
            )


@dataclass(frozen=True)
class Splits:
    """What a recipe's data hold, without the texts themselves, and the warnings about them.

    `rows` are in file order. `labels` has the number of rows of each label, `lengths` the estimated tokens.
    """

    rows: dict[SplitName, Rows]
    warnings: tuple[Finding, ...]
    labels: dict[SplitName, dict[str, int]]
    lengths: dict[SplitName, Lengths]


def load_splits(section: Data, progress: Progress = SILENT) -> Splits:
    """Check train, dev and test in one pass over their files, or generate them.

    Raises:
        RecipeInvalidError: with every finding, when one of them stops a build.
    """
    if is_builtin(section.train):
        return _generate(section)
    files: dict[SplitName, Path] = {}
    for name in SPLIT_NAMES:
        file = getattr(section, name)
        assert file is not None, "load_recipe requires all three"
        files[name] = Path(file)
    states = {name: _state(file) for name, file in files.items()}
    with counted_bytes("reading", list(files.values()), progress) as advance:
        facts = {name: read_facts(name, file, section.columns, advance) for name, file in files.items()}
    findings = check_splits(facts["train"], facts["dev"], facts["test"])
    if stopping := errors(findings):
        raise RecipeInvalidError(f"the data cannot be used: {counted(len(stopping), 'error')}", findings=findings)
    return Splits(
        {name: FileRows(split, section.columns, states[name]) for name, split in facts.items()},
        tuple(findings),
        {name: split.label_rows for name, split in facts.items()},
        {name: split.lengths for name, split in facts.items()},
    )


@contextmanager
def counted_bytes(label: str, files: list[Path], progress: Progress) -> Iterator[Callable[[int], None]]:
    """A function to tell of bytes read, behind it a bar in MiB if the files are large enough to take seconds."""
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


def _generate(section: Data) -> Splits:
    made = _GENERATORS[section.train.removeprefix(BUILTIN_PREFIX)](section.seed)
    rows: dict[SplitName, Rows] = {name: made[name] for name in SPLIT_NAMES}
    labels: dict[SplitName, dict[str, int]] = {name: {} for name in SPLIT_NAMES}
    for name, counts in labels.items():
        for row in made[name]:
            counts[row.label] = counts.get(row.label, 0) + 1
    lengths = {name: Lengths.of(row.text for row in made[name]) for name in SPLIT_NAMES}
    return Splits(rows, (), labels, lengths)


def _state(file: Path) -> tuple[int, int] | None:
    """Size in bytes and time of the last change; null for a file that is not there, which the reader will say."""
    try:
        found = file.stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns
