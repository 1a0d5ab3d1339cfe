"""What only shows when the three splits lie side by side: leaks, labels that do not match, repeated rows."""

from __future__ import annotations

from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edgepack.datasets.choose import measurements
from edgepack.datasets.facts import SplitFacts
from edgepack.datasets.log import MAX_LISTED
from edgepack.datasets.sniff import are_measurements
from edgepack.datasets.texts import shortened
from edgepack.datasets.variants import check_variants
from edgepack.recipe.findings import Finding, Severity
from edgepack.wording import counted

# Above this share of test rows that training or selection has seen, a test figure may flatter the model by as
# much as a tight gate decides about (one point of accuracy), so the build stops. Below it, a warning.
MAX_LEAKED_SHARE: Final = 0.01
MIN_ROWS: Final = 2
MIN_LABEL_ROWS: Final = 10  # fewer training rows of a label than this teach next to nothing about it
MAX_IMBALANCE: Final = 100  # the most frequent label may have as many times the rows of the rarest
EXAMPLES: Final = 5  # leaked rows that are named; the count tells the rest
_SHOWN_LABELS: Final = 10

_Indices = NDArray[np.intp]


def check_splits(train: SplitFacts, dev: SplitFacts, test: SplitFacts) -> list[Finding]:
    """Everything found while the splits of one data set were read, and what shows when they are compared.

    Errors: fewer than two rows in a split; one label only in train or test; a label that train does not have;
    more than MAX_LEAKED_SHARE of the test rows in train or dev. Warnings: fewer leaks than that, leaks of train
    into dev (they mislead selection, not the gates), rows that differ from one of another split in nothing that
    `texts.normalise` keeps, repeated rows, two labels of a text, labels that look
    alike, labels test lacks, labels with too few rows. A pair
    of texts is compared as a whole.
    """
    splits = (train, dev, test)
    complete = {split.name: split.complete for split in splits}  # before findings about the splits are added
    for split in splits:
        if complete[split.name]:
            _check_size(split)
        if split is train and complete["train"]:
            _check_balance(train)
            _check_separated(train)
            _check_measured(train)
        elif complete[split.name] and complete["train"]:
            _check_labels(split, train)
        _check_repeats(split)
    check_variants(splits)
    _check_leak(test, train, stops=True)
    _check_leak(test, dev, stops=True)
    _check_leak(dev, train, stops=False)
    return list(chain.from_iterable(split.log.findings() for split in splits))


def _check_size(split: SplitFacts) -> None:
    if len(split) < MIN_ROWS:
        reason = f"the {split.name} split has {counted(len(split), 'row')}; it takes {MIN_ROWS} at least"
        split.log.add("size", "error", None, reason, "add rows")
    elif (same := uniform(split, f" of the {split.name} split")) is not None:
        effect = {
            "train": "there is nothing to learn",
            "dev": "selection among models rests on one label",
            "test": "a model that always says so would pass the gate",
        }[split.name]
        severity: Severity = "warning" if split.name == "dev" else "error"
        split.log.add("one label", severity, None, f"{same}: {effect}", "shuffle the rows before splitting them")


def uniform(split: SplitFacts, where: str = "") -> str | None:
    """What is the same in every row (of what, `where` says) and leaves nothing to learn; None where they differ."""
    if not split.labels:
        return f"no row{where} has a {'span' if split.columns.answer == 'spans' else 'label'}"
    only = split.labels[0]
    if len(split.labels) > 1 or split.columns.answer == "spans" or split.label_rows[only] < len(split):
        return None
    return f"every row{where} has the label `{shortened(only)}`"


def _check_separated(train: SplitFacts) -> None:
    if train.columns.answer == "labels" and train.most_labels == 1:
        reason = "no row of train has more than one label, and `data.columns.labels` is for any number of them"
        fix = "set `data.label_separator` to what stands between two labels; if each text has one, name it `label`"
        train.log.add("one label a row", "warning", None, reason, fix)


def _check_measured(train: SplitFacts) -> None:
    if train.columns.answer == "label" and are_measurements(train.label_rows):
        log = train.log
        log.add("measurements", "warning", None, *measurements(train.columns.wanted["label"], train.label_rows))


def _check_balance(train: SplitFacts) -> None:
    ranked = sorted(train.label_rows.items(), key=lambda item: -item[1])
    if len(ranked) < 2:
        return
    (most, most_rows), (rarest, rows) = ranked[0], ranked[-1]
    if rows < MIN_LABEL_ROWS:
        reason = f"the label `{shortened(rarest)}` has {counted(rows, 'row')} in train, too few to learn it from"
    elif rows * MAX_IMBALANCE < most_rows:
        reason = (
            f"the label `{shortened(most)}` has {most_rows / rows:.0f} times the training rows of `{shortened(rarest)}`"
        )
    else:
        return
    counts = [f"`{shortened(label)}` {count}" for label, count in ranked]
    if len(counts) > _SHOWN_LABELS:
        counts[_SHOWN_LABELS // 2 : -_SHOWN_LABELS // 2] = ["..."]
    fix = "add rows of the rare labels, or join them to others; accuracy alone hides how they fare"
    train.log.add("balance", "warning", None, f"{reason}: {', '.join(counts)}", fix)


def _check_labels(split: SplitFacts, train: SplitFacts) -> None:
    for label, rows in split.label_rows.items():
        if label in train.label_rows:
            continue
        times = "1 row" if rows == 1 else f"{rows} rows, the first here"
        reason = f"the label `{shortened(label)}` ({times}) is not in the train split, so no model can give it"
        fix = "correct the label, or add rows to train"
        split.log.add("labels that train lacks", "error", split.label_lines[label], reason, fix)
    lacking = sorted(set(train.labels) - set(split.labels))
    if lacking and split.labels and split.name == "test":
        shown = ", ".join(f"`{shortened(label)}`" for label in lacking[:_SHOWN_LABELS])
        shown += ", ..." if len(lacking) > _SHOWN_LABELS else ""
        known = len(train.labels)
        reason = f"test has no row of {len(lacking)} of the {known} labels, so no figure tells how they fare: {shown}"
        split.log.add("labels that test lacks", "warning", None, reason, "split so that test holds every label")


def _check_repeats(split: SplitFacts) -> None:
    order, ranked = _ranked(split.exact)
    after_first = np.flatnonzero(ranked[1:] == ranked[:-1]) + 1
    again: _Indices = np.sort(order[after_first])  # rows whose text stands before them already, in file order
    first = order[np.searchsorted(ranked, split.exact[again])]  # where it stands for the first time
    same = split.answers[again] == split.answers[first]
    for kind, chosen in (("repeated rows", same), ("texts with two labels", ~same)):
        for row, first_row in zip(again[chosen][: MAX_LISTED["warning"]], first[chosen], strict=False):
            line, before = int(split.lines[row]), int(split.lines[first_row])
            if kind == "repeated rows":
                reason, fix = f"this row stands on line {before} already", "remove one of the two"
            elif split.columns.answer == "label":
                label = shortened(split.label_of(first_row))
                reason, fix = f"the same text has the label `{label}` on line {before}", "decide on one label"
            else:
                reason = f"the same text has other {split.columns.answer} on line {before}"
                fix = f"decide on the {split.columns.answer} of this text"
            split.log.add(kind, "warning", line, reason, fix)
        split.log.count_more(kind, int(np.count_nonzero(chosen)) - MAX_LISTED["warning"])


def _check_leak(split: SplitFacts, source: SplitFacts, *, stops: bool) -> None:
    """Texts of `split` that `source` holds too: as they are, then those that are alike once they are normalised."""
    found = _matches(split.exact, source.exact)
    if leaked := np.count_nonzero(found >= 0):
        severity: Severity = "error" if stops and leaked / len(split) > MAX_LEAKED_SHARE else "warning"
        what = f"{_share(leaked, split)} are in {source.name} too"
        what += f"; at most {MAX_LEAKED_SHARE:.0%} may be" if stops else ""
        reason = f"{what}: {_examples(found, split, source)}"
        first = int(split.lines[np.argmax(found >= 0)])
        split.log.add(f"leak from {source.name}", severity, first, reason, f"remove them from {source.name}")
    alike = _matches(split.normalised, source.normalised)
    alike[(found >= 0) | (split.normalised == 0)] = -1
    if similar := np.count_nonzero(alike >= 0):
        what = f"{_share(similar, split)} differ from a {source.name} row in case, width, spaces or punctuation alone"
        reason = f"{what}: {_examples(alike, split, source)}"
        first = int(split.lines[np.argmax(alike >= 0)])
        fix = f"remove them from {source.name} if they say the same"
        split.log.add(f"near leak from {source.name}", "warning", first, reason, fix)


def _matches(digests: NDArray[np.uint64], source: NDArray[np.uint64]) -> _Indices:
    """For each of `digests` the first row of `source` with the same digest, or -1; shape (rows,)."""
    if not len(source):
        return np.full(len(digests), -1)
    order, ranked = _ranked(source)
    near = np.minimum(np.searchsorted(ranked, digests), len(ranked) - 1)
    return np.where(ranked[near] == digests, order[near], -1)


def _ranked(digests: NDArray[np.uint64]) -> tuple[_Indices, NDArray[np.uint64]]:
    """Rows in the order of their digests, equal ones in that of the file, and the digests in this order."""
    order = np.argsort(digests, kind="stable")
    return order, digests[order]


def _examples(found: _Indices, split: SplitFacts, source: SplitFacts) -> str:
    rows = np.flatnonzero(found >= 0)
    pairs = [f"line {split.lines[row]} is {source.file.name}:{source.lines[found[row]]}" for row in rows[:EXAMPLES]]
    return ", ".join(pairs) + (", ..." if len(rows) > EXAMPLES else "")


def _share(rows: int, split: SplitFacts) -> str:
    return f"{rows} of {len(split)} {split.name} rows ({rows / len(split):.2%})"
