"""What only shows when the three splits lie side by side: leaks, labels that do not match, repeated rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from edgepack.datasets.tables import FindingLog, Table
from edgepack.recipe.findings import Finding, Severity, errors

# Above this share of test rows that training or selection has seen, a test figure may flatter the model by as
# much as a tight gate decides about (one point of accuracy), so the build stops. Below it, a warning.
MAX_LEAKED_SHARE: Final = 0.01
MIN_ROWS: Final = 2
EXAMPLES: Final = 5  # leaked rows that are named; the count tells the rest

_Name = Literal["train", "dev", "test"]


@dataclass(frozen=True)
class _Split:
    name: _Name
    table: Table
    log: FindingLog

    @property
    def complete(self) -> bool:
        """Whether every row could be read: what a split lacks can only be said of a whole one."""
        return not errors(list(self.table.findings))

    def rows(self) -> Iterator[tuple[int, str, str]]:
        """(line, text without the white space around it, label) of each row."""
        for line, row in zip(self.table.lines, self.table.rows, strict=True):
            yield line, row.text.strip(), row.label


def check_splits(train: Table, dev: Table, test: Table) -> list[Finding]:
    """Compare the splits of one data set. `Table.findings` are not repeated here.

    Errors: fewer than two rows in a split; one label only in train or test; a label that train does not have;
    more than MAX_LEAKED_SHARE of the test rows in train or dev. Warnings: fewer leaks than that, leaks of train
    into dev (they mislead selection, not the gates), repeated rows, two labels of a text, labels test lacks.
    """
    train_split = _Split("train", train, FindingLog(train.file))
    dev_split = _Split("dev", dev, FindingLog(dev.file))
    test_split = _Split("test", test, FindingLog(test.file))
    splits = (train_split, dev_split, test_split)
    for split in splits:
        if split.complete:
            _check_size(split)
        if split is not train_split and split.complete and train_split.complete:
            _check_labels(split, train_split)
        _check_repeats(split)
    _check_leak(test_split, train_split, stops=True)
    _check_leak(test_split, dev_split, stops=True)
    _check_leak(dev_split, train_split, stops=False)
    return list(chain.from_iterable(split.log.findings() for split in splits))


def _check_size(split: _Split) -> None:
    labels = {row.label for row in split.table.rows}
    if len(split.table.rows) < MIN_ROWS:
        reason = f"the {split.name} split has {len(split.table.rows)} rows; it takes {MIN_ROWS} at least"
        split.log.add("size", "error", None, reason, "add rows")
    elif len(labels) == 1:
        reason = f"every row of the {split.name} split has the label `{_short(labels.pop())}`"
        effect = {
            "train": "there is nothing to learn",
            "dev": "selection among models rests on one label",
            "test": "a model that always says so would pass the gate",
        }[split.name]
        severity: Severity = "warning" if split.name == "dev" else "error"
        split.log.add("one label", severity, None, f"{reason}: {effect}", "shuffle the rows before splitting them")


def _check_labels(split: _Split, train: _Split) -> None:
    known = {row.label for row in train.table.rows}
    counts = Counter(row.label for row in split.table.rows)
    seen: set[str] = set()
    for line, _, label in split.rows():
        if label in known or label in seen:
            continue
        seen.add(label)
        times = "1 row" if counts[label] == 1 else f"{counts[label]} rows, the first here"
        reason = f"the label `{_short(label)}` ({times}) is not in the train split, so no model can give it"
        split.log.add("labels that train lacks", "error", line, reason, "correct the label, or add rows to train")
    lacking = sorted(known - set(counts))
    if lacking and counts and split.name == "test":
        shown = ", ".join(f"`{_short(label)}`" for label in lacking[:10]) + (", ..." if len(lacking) > 10 else "")
        reason = f"test has no row of {len(lacking)} of the {len(known)} labels, so no gate speaks of them: {shown}"
        split.log.add("labels that test lacks", "warning", None, reason, "split so that test holds every label")


def _check_repeats(split: _Split) -> None:
    first: dict[str, tuple[int, str]] = {}
    for line, text, label in split.rows():
        if text not in first:
            first[text] = (line, label)
            continue
        line_before, label_before = first[text]
        if label == label_before:
            reason = f"this row stands on line {line_before} already"
            split.log.add("repeated rows", "warning", line, reason, "remove one of the two")
        else:
            reason = f"the same text has the label `{_short(label_before)}` on line {line_before}"
            split.log.add("texts with two labels", "warning", line, reason, "decide on one label")


def _check_leak(split: _Split, source: _Split, *, stops: bool) -> None:
    """Texts of `split` that `source` holds too, compared without the white space around them."""
    lines: dict[str, int] = {}
    for line, text, _ in source.rows():
        lines.setdefault(text, line)
    leaked = [(line, lines[text]) for line, text, _ in split.rows() if text in lines]
    if not leaked:
        return
    rows = len(split.table.rows)
    share = len(leaked) / rows
    severity: Severity = "error" if stops and share > MAX_LEAKED_SHARE else "warning"
    limit = f"; at most {MAX_LEAKED_SHARE:.0%} may be" if stops else ""
    pairs = [f"line {line} is {source.table.file.name}:{other}" for line, other in leaked[:EXAMPLES]]
    shown = ", ".join(pairs) + (", ..." if len(leaked) > EXAMPLES else "")
    reason = f"{len(leaked)} of {rows} {split.name} rows ({share:.2%}) are in {source.name} too{limit}: {shown}"
    split.log.add(f"leak from {source.name}", severity, leaked[0][0], reason, f"remove them from {source.name}")


def _short(label: str) -> str:
    return label if len(label) <= 40 else label[:37] + "..."
