"""Messages of the report in English and Chinese, by id, from the catalogue `messages.toml`.

A page holds both languages and shows the one that its reader selects.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

from edgepack.util import toml
from edgepack.util.text import metric_name

# id ("section.name") -> {"en": template, "zh": template}
MESSAGES: Final[dict[str, dict[str, str]]] = {
    f"{section}.{name}": texts
    for section, messages in toml.loads((Path(__file__).parent / "messages.toml").read_text(encoding="utf-8")).items()
    for name, texts in messages.items()
}
_FIGURES: Final = tuple(message for message in MESSAGES if message.startswith("figure."))


def language_of_reader(labels: Iterable[str], variables: Mapping[str, str] = os.environ) -> str:
    """ "zh" or "en": that of the locale, or without one that of the labels."""
    chosen = next((variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), "")
    if chosen.partition(".")[0] not in ("", "C", "POSIX"):
        return "zh" if chosen.startswith("zh") else "en"
    return "zh" if any("\u4e00" <= character <= "\u9fff" for label in labels for character in label) else "en"


def text(language: str, message: str, /, **fields: object) -> str:
    """A message in one language, "en" or "zh", as plain text."""
    return MESSAGES[message][language].format(**fields)


def metric(language: str, name: str) -> str:
    """The name of a metric in one language; that of one without words, of a later version, as the terminal has it."""
    message = f"metric.{name}"
    return text(language, message) if message in MESSAGES else metric_name(name)


def t(message: str, /, **fields: object) -> Markup:
    """A message in both languages, each in an element of its class. Fields are escaped unless they are markup."""
    return both(*(escape(MESSAGES[message][language]).format(**fields) for language in ("en", "zh")))


def both(english: str, chinese: str) -> Markup:
    """Words in both languages, each in an element of its class."""
    return Markup('<span class="en">{}</span><span class="zh" lang="zh">{}</span>').format(english, chinese)


def figure(shown: str) -> Markup:
    """A figure in both languages, from its English text: `0.25 points`, `120.0 % or more`."""
    for message in _FIGURES:
        words = text("en", message, value="")
        if shown.endswith(words):
            return t(message, value=figure(shown.removesuffix(words)))
    return escape(shown)
