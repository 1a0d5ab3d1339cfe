"""Checks across the three splits: leaks, unknown and look-alike labels, repeated rows; the rows to drop."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edgepack.data.detect import are_measurements, measurements_finding, separator_between_labels
from edgepack.data.split_stats import SplitFacts
from edgepack.recipe.finding_log import MAX_LISTED
from edgepack.recipe.findings import Finding, Severity
from edgepack.recipe.model import Choice, SplitName
from edgepack.util.text import counted
from edgepack.util.text_digests import shortened, without_unseen

# Description of a difference, and the normalisation that removes it; the first that does is named.
_DIFFERENCES: Final[Sequence[tuple[str, Callable[[str], str]]]] = (
    ("in white space", lambda label: "".join(label.split())),
    ("in characters that are not seen", without_unseen),
    ("in how their characters are composed (Unicode NFC or NFD)", lambda label: unicodedata.normalize("NFC", label)),
    ("in case", str.casefold),
    ("in width, full or half", lambda label: unicodedata.normalize("NFKC", label)),
)


def check_variants(splits: Sequence[SplitFacts]) -> None:
    """Warn, at its first occurrence, of each label that looks like a more frequent one."""
    rows: Counter[str] = Counter()
    first: dict[str, SplitFacts] = {}
    alike: dict[str, list[str]] = {}
    for split in splits:
        rows.update(split.label_rows)
        for label in split.label_rows:
            if first.setdefault(label, split) is split:
                alike.setdefault(_folded(label), []).append(label)
    for labels in alike.values():
        usual = max(labels, key=lambda label: rows[label])
        for label in labels:
            if label != usual:
                where = f"{first[usual].file.name}:{first[usual].label_lines[usual]}"
                reason = (
                    f"the label `{shortened(label)}` ({counted(rows[label], 'row')}, the first here) differs from "
                    f"`{shortened(usual)}` ({counted(rows[usual], 'row')}, the first at {where}) "
                    f"{_difference(label, usual)}: to a model they are two"
                )
                line, fix = first[label].label_lines[label], f"write `{shortened(usual)}` everywhere"
                first[label].log.add(f"`{label}` looks like another label", "warning", line, reason, fix)
    _check_typos(rows, first)


def _check_typos(rows: Mapping[str, int], first: Mapping[str, SplitFacts]) -> None:
    """Labels of one row that differ in one character from a label of many."""
    usual = [(label, _folded(label)) for label in rows if rows[label] >= MIN_LABEL_ROWS]
    for label in rows:
        if rows[label] > 1:
            continue
        folded = _folded(label)
        near = next((other for other, theirs in usual if _is_one_apart(folded, theirs)), None)
        if near is not None:
            reason = f"the label `{shortened(label)}` occurs once, and `{shortened(near)}` {rows[near]} times: a typo?"
            fix = f"if it is one, write `{shortened(near)}`"
            first[label].log.add(f"`{label}` may be a typo", "warning", first[label].label_lines[label], reason, fix)


def _is_one_apart(left: str, right: str) -> bool:
    """Whether one character was replaced, left out or added in a label of at least two."""
    short, long = (left, right) if len(left) <= len(right) else (right, left)
    if len(long) - len(short) > 1 or len(short) < 2 or short == long:
        return False
    place = next((at for at, (ours, theirs) in enumerate(zip(short, long, strict=False)) if ours != theirs), len(short))
    return short[place + (len(short) == len(long)) :] == long[place + 1 :]


def _folded(label: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    return without_unseen(folded) or label


def _difference(first: str, second: str) -> str:
    named = [name for name, fold in _DIFFERENCES if fold(first) == fold(second)]
    return named[0] if named else "in more than one of case, width, white space and characters that are not seen"


MIN_ROWS: Final = 2
MIN_LABEL_ROWS: Final = 10  # training rows; a label with fewer is hardly learnt
MAX_IMBALANCE: Final = 100  # maximum ratio of the rows of the most frequent label to those of the rarest
EXAMPLES: Final = 5  # named leaked rows; more are counted
_SHOWN_LABELS: Final = 10

_Indices = NDArray[np.intp]
_Rows = NDArray[np.bool_]


def rows_to_drop(
    splits: Mapping[SplitName, SplitFacts], leaks: Choice, repeats: Choice
) -> dict[SplitName, tuple[_Rows, _Rows]]:
    """Rows of train and dev to drop: leaked rows, and repetitions of an earlier row; shapes (rows,).

    A row of train leaks if dev or test has its text, exact or normalised, and a row of dev if test has it. Test loses
    no row. Only splits that lose a row are returned.
    """
    found: dict[SplitName, tuple[_Rows, _Rows]] = {}
    compared: list[SplitFacts] = [splits["test"]]
    names: tuple[SplitName, ...] = ("dev", "train")
    for name in filter(splits.__contains__, names):
        split = splits[name]
        leaked = np.zeros(len(split), bool)
        for other in compared if leaks == "drop" else ():
            leaked |= np.isin(split.exact, other.exact)
            leaked |= np.isin(split.normalised, other.normalised) & (split.normalised != 0)
        dropped = name == "train" and repeats == "drop"
        repeated = repeated_rows(split) & ~leaked if dropped else np.zeros(len(split), bool)
        if leaked.any() or repeated.any():
            found[name] = leaked, repeated
        compared.append(split)
    return found


def check_splits(
    splits: Mapping[SplitName, SplitFacts], leaks: Choice = "drop", repeats: Choice = "drop"
) -> list[Finding]:
    """Findings of each split and of their comparison.

    Errors: fewer than two rows in a split; only one label in train or test; a label that train does not have; leaks and
    repeated rows, if the recipe refuses them. Warnings: leaks and repeated rows otherwise, two labels of a text,
    look-alike labels, labels that test lacks, labels with too few rows. A pair of texts is compared as a whole.
    """
    train, dev, test = splits["train"], splits["dev"], splits["test"]
    ordered = (train, dev, test)
    complete = {split.name: split.complete for split in ordered}  # before findings about the splits are added
    for split in ordered:
        if complete[split.name]:
            _check_size(split, everywhere=all(_uniform(other) is not None for other in ordered))
        if split is train and complete["train"]:
            _check_balance(train)
            _check_separated(train)
            _check_measured(train)
        elif complete[split.name] and complete["train"]:
            _check_labels(split, train)
        _check_repeats(split, "keep" if repeats == "drop" and split is not train else repeats)
    check_variants(ordered)
    check_leaks(splits, leaks)
    return list(chain.from_iterable(split.log.findings() for split in ordered))


def _check_size(split: SplitFacts, *, everywhere: bool) -> None:
    if len(split) < MIN_ROWS:
        reason = f"the {split.name} split has {counted(len(split), 'row')}; it takes {MIN_ROWS} at least"
        split.log.add("size", "error", None, reason, "add rows")
    elif (same := _uniform(split)) is not None:
        effect = {
            "train": "there is nothing to learn",
            "dev": "selection among models rests on one answer",
            "test": "a model that always answers it would pass the gate",
        }[split.name]
        severity: Severity = "warning" if split.name == "dev" else "error"
        fix = "add rows of another answer" if everywhere else "shuffle the rows before splitting them"
        split.log.add("one label", severity, None, f"{same}: {effect}", fix)


def _uniform(split: SplitFacts) -> str | None:
    """The finding if all rows of a split have the same answer; None if they differ."""
    if not split.task.labelled:
        same = bool((split.answers == split.answers[0]).all())
        return f"every row of the {split.name} split has the same {split.columns.answer}" if same else None
    if not split.labels:
        return f"no row of the {split.name} split has a {'span' if split.columns.answer == 'spans' else 'label'}"
    only = split.labels[0]
    if len(split.labels) > 1 or split.columns.answer == "spans" or split.label_rows[only] < len(split):
        return None
    return f"every row of the {split.name} split has the label `{shortened(only)}`"


def _check_separated(train: SplitFacts) -> None:
    if train.columns.answer == "labels" and train.most_labels == 1:
        reason = "no row of train has more than one label, and `data.columns.labels` is for any number of them"
        fix = "set `data.label_separator` to what separates two labels; if each text has one, name it `label`"
        separator = separator_between_labels(train.labels)
        if separator is not None:
            fix = f'set `data.label_separator: "{separator}"`, which seems to separate two labels'
        train.log.add("one label a row", "warning", None, reason, fix)


def _check_measured(train: SplitFacts) -> None:
    if train.columns.answer == "label" and are_measurements(train.label_rows):
        log = train.log
        log.add("measurements", "warning", None, *measurements_finding(train.columns.wanted["label"], train.label_rows))


def _check_balance(train: SplitFacts) -> None:
    ranked = sorted(train.label_rows.items(), key=lambda item: -item[1])
    if len(ranked) < 2:
        return
    (most, most_rows), (rarest, rows) = ranked[0], ranked[-1]
    if rows < MIN_LABEL_ROWS:
        reason = f"the label `{shortened(rarest)}` has {counted(rows, 'row')} in train, too few to learn it"
    elif rows * MAX_IMBALANCE < most_rows:
        reason = (
            f"the label `{shortened(most)}` has {most_rows / rows:.0f} times the training rows of `{shortened(rarest)}`"
        )
    else:
        return
    counts = [f"`{shortened(label)}` {count}" for label, count in ranked]
    if len(counts) > _SHOWN_LABELS:
        counts[_SHOWN_LABELS // 2 : -_SHOWN_LABELS // 2] = ["..."]
    fix = "add rows of the rare labels, or join them to others; accuracy alone says little about them"
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
        reason = f"test has no row of {len(lacking)} of the {known} labels, so their accuracy is unknown: {shown}"
        split.log.add("labels that test lacks", "warning", None, reason, "split so that test holds every label")


def _check_repeats(split: SplitFacts, repeats: Choice) -> None:
    again, first = _repeats(split)
    same = split.answers[again] == split.answers[first]
    if repeats == "drop" and (count := int(np.count_nonzero(same))):
        reason = f"{counted(count, f'{split.name} row')} with the text and the answer of an earlier row: left out"
        fix = "nothing needs to be done; `data.repeats: keep` keeps them"
        lines = [int(line) for line in split.lines[again[same]]]
        if count > 1:
            reason += f": lines {', '.join(map(str, lines[: MAX_LISTED['warning']]))}"
            reason += ", ..." if count > MAX_LISTED["warning"] else ""
        split.log.add("repeated rows", "warning", lines[0], reason, fix)
    severity: Severity = "error" if repeats == "error" else "warning"
    kinds = [*([] if repeats == "drop" else [("repeated rows", same)]), ("texts with two labels", ~same)]
    for kind, chosen in kinds:
        kind_severity: Severity = severity if kind == "repeated rows" else "warning"
        listed = MAX_LISTED[kind_severity]
        for row, first_row in zip(again[chosen][:listed], first[chosen], strict=False):
            line, before = int(split.lines[row]), int(split.lines[first_row])
            if kind == "repeated rows":
                reason, fix = f"this {split.name} row repeats line {before}", "remove one of the two"
            elif split.columns.answer == "label":
                label = shortened(split.label_of(first_row))
                reason, fix = f"the same text has the label `{label}` on line {before}", "decide on one label"
            else:
                reason = f"the same text has other {split.columns.answer} on line {before}"
                fix = f"decide on the {split.columns.answer} of this text"
            split.log.add(kind, kind_severity, line, reason, fix)
        split.log.count_more(kind, int(np.count_nonzero(chosen)) - listed)


def repeated_rows(split: SplitFacts) -> _Rows:
    """Which rows have the text and the answer of an earlier row; shape (rows,)."""
    again, first = _repeats(split)
    found = np.zeros(len(split), bool)
    found[again[split.answers[again] == split.answers[first]]] = True
    return found


def _repeats(split: SplitFacts) -> tuple[_Indices, _Indices]:
    """Rows with the text of an earlier row, in file order, and the first row with that text; shapes (repeats,)."""
    order, ranked = _ranked(split.exact)
    after_first = np.flatnonzero(ranked[1:] == ranked[:-1]) + 1
    again: _Indices = np.sort(order[after_first])
    return again, order[np.searchsorted(ranked, split.exact[again])]


def check_leaks(splits: Mapping[SplitName, SplitFacts], leaks: Choice) -> None:
    """Log the texts that two of the splits hold."""
    pairs: tuple[tuple[SplitName, SplitName], ...] = (("test", "train"), ("test", "dev"), ("dev", "train"))
    for name, source in pairs:
        if name in splits and source in splits:
            _check_leak(splits[name], splits[source], leaks)


def _check_leak(split: SplitFacts, source: SplitFacts, leaks: Choice) -> None:
    """Texts of `split` that `source` holds too: as they are, then those that are alike once they are normalised."""
    found = _matches(split.exact, source.exact)
    dropped = f"; left out of {source.name}" if leaks == "drop" else ""
    fix = f"remove them from {source.name}, or set `data.leaks: drop`"
    if dropped:
        fix = "nothing needs to be done; `data.leaks: keep` keeps them, `error` stops the build"
    if leaked := np.count_nonzero(found >= 0):
        reason = f"{_share(leaked, split)} are in {source.name} too{dropped}: {_examples(found, split, source)}"
        first = int(split.lines[np.argmax(found >= 0)])
        severity: Severity = "error" if leaks == "error" else "warning"
        split.log.add(f"leak from {source.name}", severity, first, reason, fix)
    alike = _matches(split.normalised, source.normalised)
    alike[(found >= 0) | (split.normalised == 0)] = -1
    if similar := np.count_nonzero(alike >= 0):
        what = f"{_share(similar, split)} differ from a {source.name} row in case, width, spaces or punctuation alone"
        reason = f"{what}{dropped}: {_examples(alike, split, source)}"
        first = int(split.lines[np.argmax(alike >= 0)])
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
