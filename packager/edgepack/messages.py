"""The messages of the packager: `messages.toml` has their templates in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from edgepack.util import toml
from edgepack_runtime.messages import Message, add, joined, local, message, packed, render, template, unpacked

__all__ = ["TEMPLATES", "Message", "Sentence", "figure", "joined", "local", "message", "render", "template"]

TEMPLATES: Final[Mapping[str, tuple[str, str]]] = {
    f"{section}.{name}": (texts["en"], texts["zh"])
    for section, messages in toml.loads((Path(__file__).parent / "messages.toml").read_text(encoding="utf-8")).items()
    for name, texts in messages.items()
}
add(TEMPLATES)
_FIGURES: Final = tuple(name for name in TEMPLATES if name.startswith("figure."))


def _sentence(value: Any) -> str:
    if not isinstance(value.get("text") if isinstance(value, Mapping) else value, str):
        raise ValueError("it is not a text")
    return unpacked(value)


# A text of an artifact that keeps its id and fields if it is a message.
Sentence = Annotated[str, PlainValidator(_sentence), PlainSerializer(packed), WithJsonSchema({"type": "string"})]


def figure(shown: str) -> str:
    """A figure from its English text, as a message if it has words: `0.25 points`, `120.0 % or more`."""
    for name in _FIGURES:
        words = message(name, value="")
        if shown.endswith(words):
            return message(name, value=figure(shown.removesuffix(words)))
    return shown
