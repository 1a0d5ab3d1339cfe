"""Expansion of `search`: a recipe with several values for some keys becomes one recipe per combination.

Each combination is checked like any recipe. Its values keep their line numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any, Final

from edgepack.recipe import keys, overrides
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean
from edgepack.recipe.model import Recipe, Search, distinct
from edgepack.recipe.yaml import Document, KeyPath, Problem, dotted

# Sections whose keys can be searched over. All other values are the same for all candidates.
SEARCHED: Final = ("student.", "quantize.", "data.calibration.")
_SAME: Final[Mapping[str, str]] = {  # section -> why
    "data": "candidates are compared on the same rows",
    "gates": "candidates are judged by the same gates",
    "teacher": "all students learn from one teacher",
}
_OVER: KeyPath = ("search", "over")
_Values = Mapping[str, Sequence[Any]]  # dotted key -> what is tried for it


@dataclass(frozen=True)
class Trial:
    """One combination: its values in words (`model` -> `./nano`), and the recipe with them."""

    values: tuple[tuple[str, str], ...]
    document: Document

    @property
    def name(self) -> str:
        """`model=./nano, hidden=false`. Two models with equal folder names may share it."""
        return ", ".join(f"{key}={value}" for key, value in self.values)


def trials(document: Document) -> tuple[list[Trial], list[Finding]]:
    """The combinations of the values of `search.over`, the last key changing first.

    Returns:
        At least one combination: without `search` the document itself; if `search.over` is invalid, that of the first
        values, so that the rest of the recipe can be checked. And the findings about `search`.
    """
    over = document.get(*_OVER)
    if not isinstance(over, dict):  # the model tells what it should be
        return [Trial((), document)], []
    problems = list(_problems(document, over))
    wrong = {path[2] for path, _, _ in problems if len(path) == 3}
    swept = {key: values for key, values in over.items() if key not in wrong and isinstance(values, list) and values}
    if not problems:
        problems = list(_too_many(document, swept))
    picks = product(*(range(len(values)) for values in swept.values()))
    made = [_trial(document, swept, pick) for pick in (islice(picks, 1) if problems else picks)]
    return made, [document.error(path, reason, fix) for path, reason, fix in problems]


def names(trials: Sequence[Trial]) -> list[str]:
    """The name of each combination, numbered if it occurs more than once."""
    return distinct([trial.name for trial in trials])


def merged(checked: Sequence[tuple[Trial, Sequence[Finding]]]) -> list[Finding]:
    """The findings of all combinations, each once, with the candidates that have it unless all have it."""
    having: dict[Finding, list[Trial]] = {}
    for trial, findings in checked:
        for finding in dict.fromkeys(findings):
            having.setdefault(finding, []).append(trial)
    everyone = [trial for trial, _ in checked]

    def attributed(finding: Finding, some: list[Trial]) -> Finding:
        of_some = f"{finding.reason} ({_described(some, everyone)})"
        return finding if len(some) == len(everyone) else replace(finding, reason=of_some)

    return [attributed(finding, some) for finding, some in having.items()]


def twins(document: Document, trials: Sequence[Trial], recipes: Sequence[Recipe]) -> list[Finding]:
    """Candidates that are equal although they are written differently."""
    return [
        document.error(_OVER, f"the candidates {one} and {other} are one and the same", "remove a value of one of them")
        for (one, first), (other, second) in combinations(zip(names(trials), recipes, strict=True), 2)
        if first == second
    ]


def _described(some: Sequence[Trial], everyone: Sequence[Trial]) -> str:
    """The candidates `some` in words: by values that only they have, else by the first of them."""
    shared = [pair for pair in some[0].values if all(pair in trial.values for trial in some)]
    alike = sum(all(pair in trial.values for pair in shared) for trial in everyone)
    word = "candidate" if len(some) == 1 else "candidates"
    if alike == len(some):
        return f"{word} with {', '.join(f'{key}={value}' for key, value in shared)}"
    return f"{word} {some[0].name}" + (f" and {len(some) - 1} more" if len(some) > 1 else "")


def _problems(document: Document, over: Mapping[str, Any]) -> Iterator[Problem]:
    known = keys.every()
    for key, values in over.items():
        problem = _check_key(document, key, values, known) or _check_nesting(key, over)
        if problem is not None:
            yield ((*_OVER, key), *problem)
        elif isinstance(values, list):
            yield from _check_values(key, values)
            path: KeyPath = tuple(key.split("."))
            if path in document.places and document.places[path].setting is not None:
                reason = f"`{key}` is set, and `search.over` tries its own values for it"
                yield path, reason, "remove it, or set `search=null` as well"


def _check_key(document: Document, key: str, values: object, known: Sequence[KeyPath]) -> tuple[str, str] | None:
    """Reason and fix of a key of `search.over` that cannot be searched over; None if it can."""
    path: KeyPath = tuple(key.split("."))
    inside = [dotted(other) for other in known if dotted(other).startswith(SEARCHED)]
    if isinstance(values, dict):
        reason = f"`search.over` takes dotted keys with a list of values each, and `{key[:60]}` is a section"
        longer: KeyPath = (*path, next(iter(values), ""))
        written = f"{dotted(longer if longer in known else path)[:60]}: [...]"
        place: KeyPath = (*_OVER, key)
        by_setting = document.places[place].setting is not None
        return reason, f"write `--set 'search.over={{{written}}}'`" if by_setting else f"write `{written}`"
    if path not in known:
        return f"unknown key `{key[:60]}` in `search.over`", did_you_mean(key, inside, _searched())
    if key not in inside:
        why = _SAME.get(str(path[0]), "a search ships one bundle")
        reason = f"`search.over`: `{key}` cannot differ between candidates: {why}"
        if any(other.startswith(f"{key}.") for other in inside):
            reason = f"`search.over` takes single keys, and `{key}` is a section"
        return reason, _searched()
    above = overrides.in_the_way(document, path)
    if above is not None:
        reason = f"`search.over`: `{key}` is below `{dotted(above)}`, which is not a section here"
        return reason, f"search over `{dotted(above)}` as a whole"
    return None


def _searched() -> str:
    """The fix for a key that cannot be searched over."""
    sections = [f"`{one}`" for one in SEARCHED]
    return f"name keys below {', '.join(sections[:-1])} or {sections[-1]}, as `student.model`"


def _check_nesting(key: str, over: Mapping[str, Any]) -> tuple[str, str] | None:
    above = next((other for other in over if f"{other}." not in SEARCHED and key.startswith(f"{other}.")), None)
    if above is None:
        return None
    return f"`search.over` has `{key}` and `{above}`, which holds it", f"write the values of `{above}` out as a whole"


def _check_values(key: str, values: Sequence[Any]) -> Iterator[Problem]:
    seen = set()
    for index, value in enumerate(values):
        written = json.dumps(value, sort_keys=True)
        if written in seen:
            yield (*_OVER, key, index), f"`{key}`: {_shown(value)} is a duplicate", "remove one of the two"
        seen.add(written)


def _too_many(document: Document, swept: _Values) -> Iterator[Problem]:
    most, count = document.get("search", "max_candidates"), math.prod(map(len, swept.values()))
    if type(most) is not int or most > Search.MOST:  # missing, or another finding
        most = int(Search.model_fields["max_candidates"].default)
    if count > most:
        each = " x ".join(str(len(values)) for values in swept.values())
        reason = f"`search.over` makes {count} candidates ({each}), and `search.max_candidates` is {most}"
        yield _OVER, reason, f"remove values, or write `max_candidates: {count}`"


def _trial(document: Document, swept: _Values, pick: Sequence[int]) -> Trial:
    made = overrides.copied(document)
    values = []
    for (key, choices), index in zip(swept.items(), pick, strict=True):
        path: KeyPath = tuple(key.split("."))
        overrides.put(made, path, _moved(document, (*_OVER, key, index), path))
        values.append((_short(key, list(swept)), _shown(choices[index])))
    return Trial(tuple(values), made)


def _short(key: str, others: Sequence[str]) -> str:
    """The shortest unique suffix of a key: `layers`, or `distill.layers`."""
    parts = key.split(".")
    ends = (".".join(parts[-length:]) for length in range(1, len(parts)))
    return next((end for end in ends if sum(f".{other}".endswith(f".{end}") for other in others) == 1), key)


def _moved(document: Document, source: KeyPath, path: KeyPath) -> Document:
    """A document that holds only the value at `source`, at `path`, with its line numbers."""
    value = document.get(*source)
    for key in reversed(path):
        value = {key: value}

    depth = len(source)
    places = {(*path, *at[depth:]): place for at, place in document.places.items() if at[:depth] == source}
    return Document(document.file, value, places)


def _shown(value: Any) -> str:
    """A value for a name: as in a recipe, but only the last part of an absolute path."""
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return json.dumps(value)
