"""Which columns of a data file are text and label; and what the file holds instead when it is of another task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgepack.datasets.profile import MAX_VALUES, Column, Profile
from edgepack.datasets.sniff import LABEL_NAMES, TEXT_NAMES
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.explain import listed
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import Columns

_PAIR_NAMES: Final = ("text_pair", "text_b", "textb", "sentence2", "query2", "question2", "text2")
_TOKEN_NAMES: Final = ("tokens", "tags", "ner_tags", "spans", "entities")
_LONGEST_LABEL: Final = 40  # characters on average; what is longer is a text
_SHORTEST_TEXT: Final = 6  # characters on average of the second of two texts; a name has fewer


def choose_columns(found: Profile) -> Columns:
    """The columns of text and label, by their names where they tell, else by what the cells hold.

    Raises:
        RecipeInvalidError: when there are none, or when the data are of a task that this version does not have.
    """
    _refuse_tokens(found)
    label = _label(found)
    text = _text(found, label)
    if label is None or text is None:
        missing = "labels: few different short values" if label is None else "texts"
        shown = "; ".join(_described(column) for column in found.columns[:10])
        reason = f"no column seems to hold {missing}. It has {shown or 'no columns'}"
        fix = (
            "name the two columns `text` and `label` in the first line, or as the keys of each object, and run it again"
        )
        raise _refusal(found, reason, fix)
    _refuse_pairs(found, text, label)
    return Columns(text=text.name, label=label.name)


def _label(found: Profile) -> Column | None:
    by_name = found.column(LABEL_NAMES)
    if by_name is not None and by_name.values and not by_name.lists and len(by_name.values) <= MAX_VALUES:
        return by_name
    most = max(2, found.rows // 2)
    named = [column for column in found.columns if column.name]
    likely = [c for c in named if 2 <= len(c.values) <= min(most, MAX_VALUES) and not c.lists]
    likely = [
        column for column in likely if column.mean_length <= _LONGEST_LABEL and column.name.lower() not in TEXT_NAMES
    ]
    return min(likely, key=lambda column: len(column.values), default=None)


def _text(found: Profile, label: Column | None) -> Column | None:
    others = [
        column for column in found.columns if column is not label and column.name and column.filled and not column.lists
    ]
    by_name = [column for column in others if column.name.lower() in TEXT_NAMES]
    return max(by_name or others, key=lambda column: column.mean_length, default=None)


def _refuse_tokens(found: Profile) -> None:
    lists = [column.name for column in found.columns if column.lists and column.name.lower() in _TOKEN_NAMES]
    if lists:
        reason = (
            f"this looks like data for token classification (lists in {listed(lists)}), which this version cannot train"
        )
        raise _refusal(found, reason, "give texts with one label each")


def _refuse_pairs(found: Profile, text: Column, label: Column) -> None:
    others = [column for column in found.columns if column is not text and column is not label]
    second = found.column(_PAIR_NAMES) or next((column for column in others if _is_second_text(column, text)), None)
    if second is None:
        return
    reason = f"this looks like pairs of texts (`{text.name}` and `{second.name}`), which this version cannot train"
    fix = f"give texts with one label each; if `{second.name}` does not matter, leave it out of the file"
    raise _refusal(found, reason, fix)


def _is_second_text(column: Column, text: Column) -> bool:
    return (
        column.prose >= column.filled / 2 > 0
        and column.mean_length >= max(_SHORTEST_TEXT, text.mean_length / 3)
        and len(column.values) > min(MAX_VALUES, column.filled / 5)
    )


def _described(column: Column) -> str:
    values = f"more than {MAX_VALUES}" if len(column.values) > MAX_VALUES else str(len(column.values))
    return f"`{column.name[:40]}` with {values} values of {column.mean_length:.0f} characters"


def _refusal(found: Profile, reason: str, fix: str) -> RecipeInvalidError:
    findings: Sequence[Finding] = [Finding("error", found.file, None, reason, fix)]
    return RecipeInvalidError(f"no recipe was drafted for {found.file}", findings=findings)
