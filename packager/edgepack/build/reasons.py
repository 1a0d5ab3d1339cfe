"""Why a stage runs: what it is made of now, compared with the most similar result that is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from edgepack.artifacts import Split
from edgepack.build.workspace import Earlier, Workspace
from edgepack.messages import joined, message
from edgepack.stages.stage import Input, Key, MadeOf, Stage
from edgepack.util.text import as_text, differences

_LONGEST_VALUE: Final = 40  # characters; a longer value is only said to have changed
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Reason:
    """A difference in words. `own`: of the recipe's values, the stage or the libraries, not of what the stage reads."""

    text: str
    own: bool


def changes(stage: type[Stage[Any]], before: MadeOf, after: MadeOf) -> list[Reason]:
    """What differs between two results of `stage`, or would: values of the recipe, inputs, versions."""
    sections = differences({"": before.section}, {"": after.section})
    own = [_value(_recipe_key(stage, name), *values) for name, values in sections.items()]
    if before.version != after.version:
        own.append(Reason(message("reason.version", old=before.version, new=after.version), own=True))
    for name, (old, new) in differences(before.versions, after.versions).items():
        old, new = (version or message("reason.not_installed") for version in (old, new))
        own.append(Reason(message("reason.from_to", what=name, old=old, new=new), own=True))
    return [*(Reason(text, own=False) for text in _of_inputs(before.inputs, after.inputs)), *own]


def closest(stage: type[Stage[Any]], made_of: MadeOf, earlier: Iterable[Earlier]) -> Earlier | None:
    """The earlier result with the fewest changes to `made_of`, the first of equals; None if there is none.

    The newest result may be of another target or candidate, and then differ in more than what made the stage run.
    """
    return min(earlier, key=lambda one: len(changes(stage, one.record.made_of, made_of)), default=None)


def why(stage: type[Stage[Any]], key: Key, earlier: Earlier | None, workspace: Workspace) -> str:
    """Why the stage of `key` runs although results are there.

    Args:
        earlier: the `closest` result.
    """
    if workspace.is_damaged(key):
        return message("reason.damaged")
    if earlier is None:
        return message("reason.none")
    found = changes(stage, earlier.record.made_of, key.made_of)
    if not found:  # a build removes the seal of a gate that did not pass
        return message("reason.not_passed", stage=key.stage)
    return in_words(found)


def in_words(found: Sequence[Reason], most: int = 3) -> str:
    """The changes on one line, the first `most` of them."""
    texts = [change.text for change in found]
    more = len(texts) - most
    return joined(*texts[:most], message("reason.more", n=more) if more > 0 else "")


def with_rows(made_of: MadeOf, rows: Mapping[Split, int]) -> MadeOf:
    """`made_of` with the number of rows of each split that it reads."""
    counts = {str(split): count for split, count in rows.items()}
    return replace(made_of, inputs=tuple(replace(one, rows=counts.get(one.name, one.rows)) for one in made_of.inputs))


def _recipe_key(stage: type[Stage[Any]], name: str) -> str:
    """The key of the recipe for a dotted name in `Stage.decides`."""
    parts = name.strip(".").split(".") if name.strip(".") else []
    for end in range(len(parts), -1, -1):
        above = stage.recipe_keys.get(".".join(parts[:end]))
        if above is not None:
            return ".".join(part for part in (above, *parts[end:]) if part)
    return ".".join((stage.name, *parts))


def _value(key: str, old: Any, new: Any) -> Reason:
    texts = [f"{value:g}" if isinstance(value, float) else as_text(value) for value in (old, new)]
    if any(_DIGEST.match(text) or len(text) > _LONGEST_VALUE for text in texts):
        return Reason(message("reason.changed", what=key), own=True)
    return Reason(message("reason.from_to", what=key, old=texts[0], new=texts[1]), own=True)


def _of_inputs(before: Sequence[Input], after: Sequence[Input]) -> Iterator[str]:
    old, new = _by_name(before), _by_name(after)
    for name in {**new, **old}:
        one, two = old.get(name, []), new.get(name, [])
        if [each.digest for each in one] == [each.digest for each in two]:
            continue
        if not one or not two:
            yield message("reason.removed" if one else "reason.added", what=name)
            continue
        rows_before, rows_after = one[0].rows, two[0].rows
        if rows_before is None or rows_after is None:
            yield message("reason.changed", what=name)
        elif rows_before == rows_after:
            yield message("reason.other_rows", what=name)
        else:
            how = "reason.more_rows" if rows_after > rows_before else "reason.fewer_rows"
            yield message(how, what=name, n=abs(rows_after - rows_before))


def _by_name(inputs: Iterable[Input]) -> dict[str, list[Input]]:
    found: dict[str, list[Input]] = {}
    for one in inputs:
        found.setdefault(one.name, []).append(one)
    return found
