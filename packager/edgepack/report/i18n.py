"""Messages in both languages on a page, which shows the one that its reader selects."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from markupsafe import Markup, escape

from edgepack.messages import Message, message, render, template
from edgepack.util.text import metric_name
from edgepack_runtime.messages import LANGUAGES, chosen_locale, language, message_or

ON: Final = "on "  # before the name of a target, in the ledger


def language_of_reader(labels: Iterable[str], variables: Mapping[str, str] = os.environ) -> str:
    """ "zh" or "en": that of the locale, or without one that of the labels."""
    if chosen_locale(variables).partition(".")[0] not in ("", "C", "POSIX"):
        return language(variables)
    return "zh" if any("\u4e00" <= character <= "\u9fff" for label in labels for character in label) else "en"


def metric(name: str) -> str:
    """The name of a metric; that of one without words, of a later version, as the terminal has it."""
    return message_or(f"metric.{name}", metric_name(name))


def stage(name: str) -> str:
    """The name of a row of the ledger; that of one without words, of a later version, as it is."""
    if name.startswith(ON):
        return message("stage.on", target=name.removeprefix(ON))
    return message_or(f"stage.{name}", name)


def part(name: str) -> str:
    """The name of a part of a bundle; that of one without words, of a later version, as it is."""
    return message_or(f"part.{name}", name)


def in_languages(text: str) -> tuple[str, ...]:
    """A text in each language; one that is the same in all languages once."""
    texts = [render(text, language) if isinstance(text, Message) else text for language in LANGUAGES]
    return tuple(dict.fromkeys(texts))


def t(name: str, /, **fields: object) -> Markup:
    """A message in both languages, each in an element of its class. Fields are escaped unless they are markup."""

    def filled(language: str) -> Markup:
        shown = {key: render(value, language) if isinstance(value, Message) else value for key, value in fields.items()}
        return escape(template(name, language)).format(**shown)

    return both(*map(filled, LANGUAGES))


def both(english: str, chinese: str) -> Markup:
    """Words in both languages, each in an element of its class."""
    return Markup('<span class="en">{}</span><span class="zh" lang="zh">{}</span>').format(english, chinese)


def shown(value: Any) -> Any:
    """A value of a template: a message in both languages, anything else as it is."""
    return both(*(render(value, language) for language in LANGUAGES)) if isinstance(value, Message) else value
