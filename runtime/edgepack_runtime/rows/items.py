"""Validation of items: texts, or pairs of them.

An empty text is an error: it is usually a mistake, and a program that feeds a pipe counts the answers.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Callable, List, Sequence, Union

from edgepack_runtime.errors import UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.util.texts import Item, is_unseen

Where = Union[str, Callable[[], str]]  # what errors call a text; called only for an error
_SHOWN = 3  # characters in a message


def require_text(text: str, where: Where) -> str:
    """`text` without its line end.

    Raises:
        UsageError: it is empty, as `is_unseen` says; the message names `where`.
    """
    text = text.rstrip("\r\n")
    if is_unseen(text):
        shown = ", ".join(dict.fromkeys(f"U+{ord(one):04X}" for one in text.strip()[:_SHOWN]))
        name = where if isinstance(where, str) else where()
        raise UsageError(message("error.empty", name=name), why=message("error.unseen", shown=shown) if shown else "")
    return text


def item_from_fields(fields: Sequence[str], where: Where) -> Item:
    """One or two fields of a row as an item, as they are: so a model is trained. Raises as `require_text`."""
    for number, field in enumerate(fields, start=1):
        require_text(field, partial(_text_of, number, where) if len(fields) > 1 else where)
    return fields[0] if len(fields) == 1 else (fields[0], fields[1])


def from_arguments(arguments: Sequence[str]) -> List[str]:
    """Texts of the command line, decoded as UTF-8 in any locale.

    Raises:
        UsageError: one is empty or not UTF-8.
    """
    texts = []
    for number, argument in enumerate(arguments, start=1):
        try:
            text = os.fsencode(argument).decode("utf-8")
        except UnicodeDecodeError as error:
            what = message("error.encoding", name=message("error.text", n=number), encoding="UTF-8")
            raise UsageError(what, fix=message("error.utf8_terminal")) from error
        texts.append(require_text(text, partial(message, "error.text", n=number)))
    return texts


def _text_of(number: int, where: Where) -> str:
    return message("error.text_of", n=number, where=where if isinstance(where, str) else where())
