"""What devices say of their checks, and builds of their stages and data, in Chinese: by forms that are known.

It was said in English, perhaps by another version of the runtime: a clause of a form that is not known stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from markupsafe import Markup

from edgepack import toml

_PLACE: Final = re.compile(r"\\\{(n|\\\*|)\\\}")  # as re.escape leaves them
# As `recipe.findings.Finding` is written; of those that name no place, from the reason on.
_WARNING: Final = re.compile(r"(?:(?P<place>.*?): )?warning: (?P<reason>.*?)(?:\n    fix: (?P<fix>.*))?", re.DOTALL)

_IDEOGRAPH: Final = re.compile("[\u4e00-\u9fff]")


def _read(name: str) -> dict[str, str]:
    forms: dict[str, str] = toml.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return forms


class _Form(NamedTuple):
    """How a clause looks in English, its Chinese, and of each of its places whether a form may stand there."""

    english: re.Pattern[str]
    chinese: str
    nested: tuple[bool, ...]


class Forms:
    """English forms with their Chinese, the first that fits being taken."""

    def __init__(self, chinese: dict[str, str]) -> None:
        self.chinese = chinese

    def told(self, text: str) -> str:
        """The clauses of `text` in Chinese, those that are not known as they are."""
        clauses = list(_apart(text))
        told = [self.clause(clause) for clause in clauses]
        return text if told == clauses else "；".join(told)

    def clause(self, clause: str) -> str:
        """One clause in Chinese, or else several with commas between them; as it is where one is not known."""
        return self._one_or_several(clause, self.told)

    def whole(self, text: str) -> str:
        """As `clause`, of a text in which a "; " parts nothing: it may be quoted."""
        return self._one_or_several(text, self.whole)

    def _one_or_several(self, text: str, inside: Callable[[str], str]) -> str:
        known = self._known(text, inside)
        if known is not None:
            return known
        parts = [self._known(part, inside) for part in text.split(", ")]  # of several reasons in a row
        found = [part for part in parts if part is not None]
        return "，".join(found) if len(found) == len(parts) else text

    def _known(self, text: str, inside: Callable[[str], str]) -> str | None:
        for form in self._forms:
            match = form.english.fullmatch(text)
            if match is not None:
                places = zip(match.groups(), form.nested, strict=True)
                return _filled(form.chinese, [inside(words) if nested else words for words, nested in places])
        return None

    @cached_property
    def _forms(self) -> tuple[_Form, ...]:
        return tuple(_form(english, chinese) for english, chinese in self.chinese.items())


FORMS: Final[dict[str, str]] = {**_read("said.toml"), **_read("said_of_builds.toml")}
WARNED: Final[dict[str, str]] = _read("warned.toml")
CONDITIONS: Final[dict[str, str]] = _read("conditions.toml")
_SAID: Final = Forms(FORMS)
_WARNED: Final = Forms(WARNED)


def said(text: str) -> Markup:
    """The words in both languages; once, where nothing of them is known in Chinese."""
    return both_of(text, in_chinese(text))


def in_chinese(text: str) -> str:
    """The clauses of `text` in Chinese, those that are not known as they are."""
    return _SAID.told(text)


def warned(text: str) -> Markup:
    """A warning about a recipe or its data in both languages; what it quotes stays as it is."""
    return both_of(text, warning_in_chinese(text))


def warning_in_chinese(text: str) -> str:
    """Reason and fix of a warning in Chinese, each as it is where it is not known."""
    found = _WARNING.fullmatch(text)
    if found is None:
        return _WARNED.whole(text)
    place = f"{found['place']}：" if found["place"] else ""
    fix = f"\n    处理：{_WARNED.whole(found['fix'])}" if found["fix"] else ""
    return f"{place}警告：{_WARNED.whole(found['reason'])}{fix}"


def both_of(english: str, chinese: str) -> Markup:
    """A text in both languages, each in an element of its class; once, where they are the same."""
    if chinese == english:
        return Markup("{}").format(english)
    return Markup('<span class="en">{}</span><span class="zh" lang="zh">{}</span>').format(english, chinese)


def condition(name: str) -> Markup:
    """The name of a condition of a receipt in both languages."""
    return both_of(name, CONDITIONS.get(name, name))


def _filled(chinese: str, words: Sequence[str]) -> str:
    """A form with `words` in its places. A blank between Chinese and a place is for Latin letters and figures."""
    for place, told in enumerate(words):
        if _IDEOGRAPH.match(told):
            chinese = re.sub(rf"(?<={_IDEOGRAPH.pattern}) (?=\{{{place}\}})", "", chinese)
    return chinese.format(*words)


def _apart(text: str) -> Iterator[str]:
    """The clauses between "; ", of which those in brackets are part of what stands around them."""
    depth = begin = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and text.startswith("; ", place):
            yield text[begin:place]
            begin = place + 2
    if depth:  # brackets of what is quoted
        yield from text[begin:].split("; ")
    else:
        yield text[begin:]


def _form(english: str, chinese: str) -> _Form:
    escaped = re.escape(english)
    pattern = _PLACE.sub(lambda place: r"(\S+)" if place[1] == "n" else "(.+)", escaped)
    return _Form(re.compile(pattern), chinese, tuple(place == r"\*" for place in _PLACE.findall(escaped)))
