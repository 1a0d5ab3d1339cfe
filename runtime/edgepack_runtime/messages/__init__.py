"""Messages: sentences with an id and fields, whose templates in English and Chinese are in the catalogue.

A message is its English text, so that whatever prints or stores texts takes it as one; a page or a terminal for a
Chinese reader renders it in Chinese. A document keeps its English texts where they are, and lists the ids and fields of
those that are messages below `messages`. A text of another version is shown in English.

Fields of templates are those of `str.format`, and in addition `{n:#row}` or `{n:#class|classes}` for a number with its
noun, and `{parts:; }` for a list with what separates its members.
"""

from __future__ import annotations

import os
import string
from typing import Any, Dict, Iterable, Iterator, Mapping, Tuple

from edgepack_runtime import errors
from edgepack_runtime.util.texts import counted

KEY = "messages"  # of documents
ENGLISH, CHINESE = LANGUAGES = ("en", "zh")
_TEMPLATES: Dict[str, Tuple[str, str]] = {}


class Message(str):
    """A sentence in English, with the id of its template and the fields that fill it."""

    id: str
    fields: Mapping[str, Any]

    def __reduce__(self) -> Any:
        return _made, (self.id, self.fields)


class _Formatter(string.Formatter):
    def __init__(self, language: str) -> None:
        self._language = language

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, str):
            return format(render(value, self._language), spec)
        if isinstance(value, (list, tuple)):
            return spec.join(render(part, self._language) for part in value)
        if spec.startswith("#"):
            noun, _, plural = spec[1:].partition("|")
            return counted(value, noun, plural or None)
        return format(value, spec)


def add(templates: Mapping[str, Tuple[str, str]]) -> None:
    """Add templates, English and Chinese, by id."""
    _TEMPLATES.update(templates)


def message(name: str, /, **fields: Any) -> Message:
    """The message with the id `name`."""
    return _made(name, fields)


def message_or(name: str, otherwise: str) -> str:
    """The message with the id `name`, which has no fields; `otherwise` if there is none, as in an earlier version."""
    try:
        return message(name)
    except KeyError:
        return otherwise


def joined(*parts: str, by: str = "list.semicolon") -> str:
    """The parts that are not empty as one message; one alone as it is."""
    there = [part for part in parts if part]
    return message(by, parts=there) if len(there) > 1 else "".join(there) if not there else there[0]


def render(text: str, language: str) -> str:
    """`text` in a language; one that is no message as it is."""
    return _filled(text.id, text.fields, language) if isinstance(text, Message) and language != ENGLISH else str(text)


def local(text: str) -> str:
    """`text` in the language of the locale."""
    return render(text, language()) if isinstance(text, Message) else text


def printed(lines: Iterable[str]) -> str:
    """`errors.printed` in the language of the locale."""
    return errors.printed(map(local, lines))


def shown(error: errors.EdgepackError) -> str:
    """What is printed of an error, in the language of the locale."""
    head, why, fix = (local(message(f"say.{name}")) for name in ("error", "why", "fix"))
    return head + error.described(local, (why, fix))


def template(name: str, language: str) -> str:
    """The template of an id.

    Raises:
        KeyError: there is none.
    """
    if name not in _TEMPLATES:
        from edgepack_runtime.messages.catalogue import TEMPLATES  # most starts of `predict` need none

        add(TEMPLATES)
    return _TEMPLATES[name][LANGUAGES.index(language)]


def chosen_locale(variables: Mapping[str, str] = os.environ) -> str:
    """The locale of messages, as the environment names it."""
    return next((variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), "")


def language(variables: Mapping[str, str] = os.environ) -> str:
    """The language of the locale: Chinese, or English for all others."""
    return CHINESE if chosen_locale(variables).startswith("zh") else ENGLISH


_LONGEST_PART = 4096  # characters of a message in a shorter one, which may not show it


def table(value: Any) -> Dict[str, Any]:
    """The id and fields of each message in a document of JSON types, by its English text."""
    return {str(found): _as_json(found) for found in _found_in(value)}


def read(document: Any) -> Dict[str, Message]:
    """The messages that a document lists, by their English text; without those of other versions."""
    listed = document.get(KEY) if isinstance(document, Mapping) else None
    found = {}
    for text, row in listed.items() if isinstance(listed, Mapping) else ():
        try:
            made = _of_json(row, max(len(text), _LONGEST_PART))
            for one in LANGUAGES:  # templates have their own formats: what fills one may not fill the other
                render(made, one)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            continue
        if made == text:  # a document must not say one thing in English and another one in Chinese
            found[text] = made
    return found


def packed(text: str) -> Any:
    """`text` in JSON types: a message with its id and fields, another text as it is."""
    return {"text": str(text), **_as_json(text)} if isinstance(text, Message) else text


def unpacked(value: Any) -> str:
    """The text that `packed` gave; a plain one if it is a message of another version."""
    if isinstance(value, str):
        return value
    text: str = value["text"]
    return read({KEY: {text: value}}).get(text, text)


def _made(name: str, fields: Mapping[str, Any]) -> Message:
    made = Message(_filled(name, fields, ENGLISH))
    made.id, made.fields = name, fields
    return made


def _filled(name: str, fields: Mapping[str, Any], language: str) -> str:
    return _Formatter(language).vformat(template(name, language), (), fields)


def _found_in(value: Any) -> Iterator[Message]:
    if isinstance(value, Message):
        yield value
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _found_in(part)


def _as_json(value: Any) -> Any:
    if isinstance(value, Message):
        return {"id": value.id, "fields": {name: _as_json(part) for name, part in value.fields.items()}}
    return [_as_json(part) for part in value] if isinstance(value, (list, tuple)) else value


def _of_json(row: Mapping[str, Any], most: int) -> Message:
    """The message of a row; a ValueError if it has more than `most` characters, or a message in it has.

    A template that shows a field twice doubles its text: of a message in a message, some twenty deep, megabytes.
    """
    fields = {}
    for name, value in row["fields"].items():
        parts = [_of_json(part, most) if isinstance(part, Mapping) else part for part in _several(value)]
        fields[name] = parts if isinstance(value, list) else parts[0]
    made = _made(row["id"], fields)
    if len(made) > most:
        raise ValueError(f"a message of more than {most} characters")
    return made


def _several(value: Any) -> Any:
    return value if isinstance(value, list) else [value]
