"""Checks across the three splits: leaks, unknown and look-alike labels, repeated rows; the rows to drop."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edgepack.data.detect import (
    are_measurements,
    may_be_measurements,
    mixed_separators,
    separator_between_labels,
)
from edgepack.data.split_stats import SplitFacts
from edgepack.messages import joined, message
from edgepack.recipe.finding_log import MAX_LISTED
from edgepack.recipe.findings import Finding, Severity
from edgepack.recipe.messages import listed
from edgepack.recipe.model import Choice, SplitName
from edgepack.util.text_digests import shortened, visible, without_unseen
from edgepack_runtime.tasks.registry import NUMBER, NUMBER_OF_PAIR

# Message about a difference, and the normalisation that removes it; the first that does is named.
_DIFFERENCES: Final[Sequence[tuple[str, Callable[[str], str]]]] = (
    ("found.in_space", lambda label: "".join(label.split())),
    ("found.in_unseen", without_unseen),
    ("found.in_composition", lambda label: unicodedata.normalize("NFC", label)),
    ("found.in_case", str.casefold),
    ("found.in_width", lambda label: unicodedata.normalize("NFKC", label)),
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
                reason = message(
                    "found.looks_alike",
                    label=shortened(label),
                    rows=rows[label],
                    usual=shortened(usual),
                    usual_rows=rows[usual],
                    where=where,
                    difference=_difference(label, usual),
                )
                line, fix = first[label].label_lines[label], message("found.write_usual", usual=shortened(usual))
                first[label].log.add(f"`{label}` looks like another label", "warning", line, reason, fix)
    _check_typos(rows, first)


def _check_typos(rows: Mapping[str, int], first: Mapping[str, SplitFacts]) -> None:
    """Labels of one row that differ in one character from a label of many."""
    usual = OneApart()
    for label in rows:
        if rows[label] >= MIN_LABEL_ROWS:
            usual.add(label)
    for label in rows:
        near = usual.near(label) if rows[label] == 1 else None
        if near is not None:
            reason = message("found.typo", label=shortened(label), near=shortened(near), rows=rows[near])
            fix = message("found.if_typo", near=shortened(near))
            first[label].log.add(f"`{label}` may be a typo", "warning", first[label].label_lines[label], reason, fix)


class OneApart:
    """Labels, found by others that differ in one character: replaced, left out or added, in a label of at least two.

    Labels longer than `_LONGEST_TYPO` are left out: nobody types them.
    """

    def __init__(self) -> None:
        self._whole: dict[str, str] = {}  # folded label -> label; of equal ones the first
        self._without: dict[str, str] = {}  # without one character
        self._at: dict[tuple[int, str], str] = {}  # without the character at a place

    def add(self, label: str) -> None:
        folded = _folded(label)
        if len(folded) <= _LONGEST_TYPO:
            self._whole.setdefault(folded, label)
            for at, rest in _rests(folded):
                self._without.setdefault(rest, label)
                self._at.setdefault((at, rest), label)

    def near(self, label: str) -> str | None:
        folded = _folded(label)
        if not 2 <= len(folded) <= _LONGEST_TYPO or folded in self._whole:
            return None
        found = [self._without.get(folded)]
        for at, rest in _rests(folded):
            found += [self._at.get((at, rest)), self._whole.get(rest) if len(rest) > 1 else None]
        return next(filter(None, found), None)


def _rests(folded: str) -> Iterator[tuple[int, str]]:
    """Each place of a label, and what is left without the character there."""
    return ((at, folded[:at] + folded[at + 1 :]) for at in range(len(folded)))


def _folded(label: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    return without_unseen(folded) or label


def _difference(first: str, second: str) -> str:
    named = [name for name, fold in _DIFFERENCES if fold(first) == fold(second)]
    return message(named[0] if named else "found.in_several")


MIN_ROWS: Final = 2
MIN_LABEL_ROWS: Final = 10  # training rows; a label with fewer is hardly learnt
MAX_UNKNOWN: Final = 0.05  # of the rows of a split may have labels that train lacks; with more, its labels are others
MAX_IMBALANCE: Final = 100  # maximum ratio of the rows of the most frequent label to those of the rarest
FAR: Final = 20  # times the distance from the median that nearly all rows keep
_USUAL: Final = 0.9  # of the rows
EXAMPLES: Final = 5  # named leaked rows; more are counted
_SHOWN_LABELS: Final = 10
_LONGEST_TYPO: Final = 40  # characters of a label

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

    Errors: fewer than two rows in a split; only one label in train or test; labels that train does not have, in more
    than a few rows; leaks and repeated rows, if the recipe refuses them. Warnings: few such labels; leaks and repeated
    rows otherwise, two labels of a text, look-alike labels, labels that test lacks, labels with too few rows. A pair of
    texts is compared as a whole.
    """
    train, dev, test = splits["train"], splits["dev"], splits["test"]
    ordered = (train, dev, test)
    complete = {split.name: split.complete for split in ordered}  # before findings about the splits are added
    for split in ordered:
        if complete[split.name]:
            check_size(split, everywhere=all(_uniform(other) is not None for other in ordered))
        if split is train and complete["train"]:
            _check_balance(train)
            _check_separated(train)
            _check_measured(train)
        elif complete[split.name] and complete["train"]:
            _check_labels(split, train)
        _check_repeats(split, "keep" if repeats == "drop" and split is not train else repeats)
    _check_model(ordered)
    check_variants(ordered)
    for split in ordered:
        _check_far(split)
    check_leaks(splits, leaks)
    return list(chain.from_iterable(split.log.findings() for split in ordered))


def check_size(split: SplitFacts, *, everywhere: bool) -> None:
    """Log too few rows, and rows that all have one answer, as those of the other splits where it is `everywhere`."""
    if len(split) < MIN_ROWS:
        reason = message("found.few_rows", split=split.name, rows=len(split), least=MIN_ROWS)
        split.log.add("size", "error", None, reason, message("found.add_rows"))
    elif (same := _uniform(split)) is not None:
        effect = {
            "train": "found.nothing_to_learn",
            "dev": "found.one_answer",
            "test": "found.always_passes",
        }[split.name]
        reason = message("found.one_label", same=same, effect=message(effect))
        severity: Severity = "warning" if split.name == "dev" else "error"
        fix = message("found.other_answer" if everywhere else "found.shuffle")
        split.log.add("one label", severity, None, reason, fix)


def _uniform(split: SplitFacts) -> str | None:
    """The finding if all rows of a split have the same answer; None if they differ."""
    if len(split) and bool((split.answers != split.answers[0]).any()):
        return None
    if split.task.labelled and split.task.per_token and split.labels:
        return None  # the same places in every text are a matter of the texts
    if len(split.labels) == 1:
        return message("found.same_label", split=split.name, label=shortened(split.labels[0]))
    if split.task.labelled and not split.labels:
        return message("found.no_answer", split=split.name, answer=split.columns.answer)
    return message("found.same_answer", split=split.name, answer=split.columns.answer)


def _check_model(splits: Sequence[SplitFacts]) -> None:
    """The labels of all rows are those that a model can have."""
    train, classes = splits[0], sorted({label for split in splits for label in split.labels})
    if not train.complete or not train.task.labelled or len(classes) < 2:
        return
    if (problem := train.task.label_problem(train.task.model_labels(classes))) is not None:
        fix = message("found.other_answer")
        train.log.add("labels of a model", "error", None, message("found.no_model", problem=problem), fix)


def _check_far(split: SplitFacts) -> None:
    """Numbers far from all others: such a row decides a mean error and a linear correlation alone."""
    if len(split.numbers) < MIN_ROWS:
        return
    numbers = np.frombuffer(split.numbers)
    distance = np.abs(numbers - np.median(numbers))
    usual = float(np.quantile(distance, _USUAL)) or float(distance[distance > 0].min(initial=np.inf))
    far = np.flatnonzero(distance > FAR * usual)
    if len(far):
        row = int(far[np.argmax(distance[far])])
        about = {"value": f"{numbers[row]:g}", "median": f"{np.median(numbers):g}", "usual": f"{usual:g}"}
        reason = message("found.far", rows=len(far), **about)
        split.log.add("far numbers", "warning", int(split.lines[row]), reason, message("found.check_unit"))


def _check_separated(train: SplitFacts) -> None:
    if not train.task.per_token and (mixed := mixed_separators(train.labels)) is not None:
        used, labels = mixed
        column = [*train.columns.wanted.values()][-1]
        shown = listed([*map(shortened, labels[:4]), *(["..."] if len(labels) > 4 else [])])
        reason = message("found.combined", count=len(train.labels), few=len(labels), shown=shown, used=listed(used))
        named = json.dumps(used, ensure_ascii=False)
        train.log.add("combined", "warning", None, reason, message("found.combine", column=column, used=named))
    elif train.task.multi_label and train.most_labels == 1:
        reason, fix = message("found.one_of_several"), message("found.set_separator")
        separator = separator_between_labels(train.labels)
        if separator is not None:
            fix = message("found.seen_separator", separator=separator)
        train.log.add("one label a row", "warning", None, reason, fix)


def _check_measured(train: SplitFacts) -> None:
    if not train.task.one_class:
        return
    column, labels = train.columns.wanted["label"], train.label_rows
    about = {"column": visible(column[:40]), "shown": listed(sorted(labels)[:3])}
    use = {"column": visible(column[:40]), "task": NUMBER_OF_PAIR if train.task.pairs else NUMBER}
    if are_measurements(labels):
        reason, fix = message("found.measurements", **about), message("found.as_numbers", **use)
        train.log.add("measurements", "warning", None, reason, fix)
    elif may_be_measurements(labels):
        reason = message("found.numbers", count=len(labels), **about)
        train.log.add("measurements", "warning", None, reason, message("found.numbers_or_classes", **use))


def _check_balance(train: SplitFacts) -> None:
    ranked = sorted(train.label_rows.items(), key=lambda item: -item[1])
    if len(ranked) < 2:
        return
    (most, most_rows), (rarest, rows) = ranked[0], ranked[-1]
    if rows >= MIN_LABEL_ROWS and rows * MAX_IMBALANCE >= most_rows:
        return
    counts = [f"`{shortened(label)}` {count}" for label, count in ranked]
    if len(counts) > _SHOWN_LABELS:
        counts[_SHOWN_LABELS // 2 : -_SHOWN_LABELS // 2] = ["..."]
    reason = (
        message("found.label_in_few", label=shortened(rarest), rows=rows, counts=counts)
        if rows < MIN_LABEL_ROWS
        else message(
            "found.imbalance",
            label=shortened(most),
            ratio=most_rows / rows,
            rarest=shortened(rarest),
            counts=counts,
        )
    )
    train.log.add("balance", "warning", None, reason, message("found.rare_labels"))


def _check_labels(split: SplitFacts, train: SplitFacts) -> None:
    unknown = sum(rows for label, rows in split.label_rows.items() if label not in train.label_rows)
    severity: Severity = "error" if unknown > MAX_UNKNOWN * len(split) else "warning"
    for label, rows in split.label_rows.items():
        if label in train.label_rows:
            continue
        times = message("found.one_row") if rows == 1 else message("found.rows_here", rows=rows)
        reason = message("found.label_untrained", label=shortened(label), rows=times)
        fix = message("found.correct_label" if severity == "error" else "found.counts_as_wrong")
        split.log.add("labels that train lacks", severity, split.label_lines[label], reason, fix)
    lacking = sorted(set(train.labels) - set(split.labels))
    if lacking and split.labels and split.name == "test":
        shown = ", ".join(f"`{shortened(label)}`" for label in lacking[:_SHOWN_LABELS])
        shown += ", ..." if len(lacking) > _SHOWN_LABELS else ""
        known = len(train.labels)
        reason = message("found.test_lacks", lacking=len(lacking), labels=known, shown=shown)
        split.log.add("labels that test lacks", "warning", None, reason, message("found.split_again"))


def _check_repeats(split: SplitFacts, repeats: Choice) -> None:
    again, first = _repeats(split)
    same = split.answers[again] == split.answers[first]
    if repeats == "drop" and (count := int(np.count_nonzero(same))):
        lines = [int(line) for line in split.lines[again[same]]]
        listed_lines = ", ".join(map(str, lines[: MAX_LISTED["warning"]]))
        listed_lines += ", ..." if count > MAX_LISTED["warning"] else ""
        where = message("found.at_lines", lines=listed_lines) if count > 1 else ""
        what = "found.repeat_dropped" if count == 1 else "found.repeats_dropped"
        reason = message(what, rows=count, split=split.name, where=where)
        split.log.add("repeated rows", "warning", lines[0], reason, message("found.keep_repeats"))
    severity: Severity = "error" if repeats == "error" else "warning"
    kinds = [*([] if repeats == "drop" else [("repeated rows", same)]), ("texts with two labels", ~same)]
    for kind, chosen in kinds:
        kind_severity: Severity = severity if kind == "repeated rows" else "warning"
        listed = MAX_LISTED[kind_severity]
        for row, first_row in zip(again[chosen][:listed], first[chosen], strict=False):
            line, before = int(split.lines[row]), int(split.lines[first_row])
            if kind == "repeated rows":
                reason, fix = message("found.repeats", split=split.name, line=before), message("found.remove_one")
            elif split.task.one_class:
                label = shortened(split.label_of(first_row))
                reason, fix = message("found.other_label", label=label, line=before), message("found.decide_label")
            else:
                reason = message("found.other_answers", answer=split.columns.answer, line=before)
                fix = message("found.decide_answer", answer=split.columns.answer)
            split.log.add(kind, kind_severity, line, reason, fix)
        split.log.count_more(kind, kind_severity, int(np.count_nonzero(chosen)) - listed)


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
    dropped = message("found.dropped_from", source=source.name) if leaks == "drop" else ""
    fix = message("found.keep_leaks") if dropped else message("found.remove_leaks", source=source.name)
    about: dict[str, Any] = {"source": source.name, "dropped": dropped}
    if leaked := np.count_nonzero(found >= 0):
        examples = _examples(found, split, source)
        reason = message("found.leak", share=_share(int(leaked), split), examples=examples, **about)
        first = int(split.lines[np.argmax(found >= 0)])
        severity: Severity = "error" if leaks == "error" else "warning"
        split.log.add(f"leak from {source.name}", severity, first, reason, fix)
    alike = _matches(split.normalised, source.normalised)
    alike[(found >= 0) | (split.normalised == 0)] = -1
    if similar := np.count_nonzero(alike >= 0):
        examples = _examples(alike, split, source)
        reason = message("found.near_leak", share=_share(int(similar), split), examples=examples, **about)
        first = int(split.lines[np.argmax(alike >= 0)])
        split.log.add(f"near leak from {source.name}", "warning", first, reason, fix)
    if split.task.in_second:
        shared = _matches(split.groups, source.groups)
        if count := np.count_nonzero(shared >= 0):
            reason = message("found.shared_text", share=_share(int(count), split), source=source.name)
            first = int(split.lines[np.argmax(shared >= 0)])
            split.log.add(f"texts of {source.name}", "warning", first, reason, message("found.split_by_text"))


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
    pairs: list[str] = [
        message("found.line_is", line=int(split.lines[row]), where=f"{source.file.name}:{source.lines[found[row]]}")
        for row in rows[:EXAMPLES]
    ]
    return joined(*pairs, "..." if len(rows) > EXAMPLES else "", by="list.comma")


def _share(rows: int, split: SplitFacts) -> str:
    return message("found.share_of_rows", rows=rows, n=len(split), split=split.name, share=rows / len(split))
