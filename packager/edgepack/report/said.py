"""What devices say of their checks, and builds of their stages, for readers of Chinese: by forms that are known.

It was said in English, perhaps by another version of the runtime: a clause of a form that is not known stays as it is.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from markupsafe import Markup

from edgepack import toml

FORMS: Final[dict[str, str]] = toml.loads((Path(__file__).parent / "said.toml").read_text(encoding="utf-8"))
_PLACE: Final = re.compile(r"\\\{(n|\\\*|)\\\}")  # as re.escape leaves them


class _Form(NamedTuple):
    """How a clause looks in English, its Chinese, and of each of its places whether a form may stand there."""

    english: re.Pattern[str]
    chinese: str
    nested: tuple[bool, ...]


def said(text: str) -> Markup:
    """The words in both languages; once, where nothing of them is known in Chinese."""
    chinese = in_chinese(text)
    if chinese == text:
        return Markup("{}").format(text)
    return Markup('<span class="en">{}</span><span class="zh" lang="zh">{}</span>').format(text, chinese)


def in_chinese(text: str) -> str:
    """The clauses of `text` in Chinese, those that are not known as they are."""
    clauses = text.split("; ")
    told = [_clause(clause) for clause in clauses]
    return text if told == clauses else "；".join(told)


def _clause(clause: str) -> str:
    known = _known(clause)
    if known is not None:
        return known
    parts = [_known(part) for part in clause.split(", ")]  # of several reasons in a row
    found = [part for part in parts if part is not None]
    return "，".join(found) if len(found) == len(parts) else clause


def _known(clause: str) -> str | None:
    for form in _forms():
        match = form.english.fullmatch(clause)
        if match is not None:
            places = zip(match.groups(), form.nested, strict=True)
            return form.chinese.format(*(_clause(words) if nested else words for words, nested in places))
    return None


@cache
def _forms() -> tuple[_Form, ...]:
    return tuple(_form(english, chinese) for english, chinese in FORMS.items())


def _form(english: str, chinese: str) -> _Form:
    escaped = re.escape(english)
    pattern = _PLACE.sub(lambda place: r"(\S+)" if place[1] == "n" else "(.+)", escaped)
    return _Form(re.compile(pattern), chinese, tuple(place == r"\*" for place in _PLACE.findall(escaped)))
