"""Texts on a command line, and those that show nothing."""

from __future__ import annotations

import os

import pytest

from edgepack_runtime.errors import UsageError
from edgepack_runtime.rows import items
from edgepack_runtime.util.texts import is_unseen


def test_arguments_are_utf8_whatever_the_locale() -> None:
    assert items.from_arguments([os.fsdecode("很好".encode())]) == ["很好"]
    with pytest.raises(UsageError, match="text 2 is not UTF-8"):
        items.from_arguments(["a", "\udcff"])
    with pytest.raises(UsageError, match="text 2 is empty"):
        items.from_arguments(["a", " "])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\u3000",
        "\u200b \ufeff\u00ad",
        "\u2060\x00\x7f",
        "\ufe0f\ufe0e",
        "\U000e0100",
        "\u202e\u2066",
        "\u3164\u115f",
        "\u2800",
    ],
    ids=ascii,
)
def test_a_text_that_shows_nothing_is_empty(text: str) -> None:
    assert is_unseen(text)
    for shown in (f"{text}好", f"☺{text}", f"{text}."):
        assert items.require_text(shown, "it") == shown
    for item in ((text,), ("好", text), (text, "好")):
        with pytest.raises(UsageError, match="is empty"):
            items.item_from_fields(item, "line 1")
    with pytest.raises(UsageError, match=r"line 1 is empty\n  why: .* show nothing: U\+200B, U\+FE0F$"):
        items.require_text(" \u200b\ufe0f\n", "line 1")
