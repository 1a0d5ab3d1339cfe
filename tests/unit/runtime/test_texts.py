"""Texts on a command line."""

from __future__ import annotations

import os

import pytest

from edgepack_runtime import texts
from edgepack_runtime.errors import UsageError


def test_a_pair_on_the_command_line_is_two_texts() -> None:
    assert texts.one_pair(["a", "b"]) == ("a", "b")
    for wrong, why in (["a"], "one text was given"), (["a", "b", "c"], "3 texts were given"):
        with pytest.raises(UsageError, match="takes pairs of texts") as caught:
            texts.one_pair(wrong)
        assert caught.value.why == why


def test_arguments_are_utf8_whatever_the_locale() -> None:
    assert texts.from_arguments([os.fsdecode("很好".encode())]) == ["很好"]
    with pytest.raises(UsageError, match="text 2 is not UTF-8"):
        texts.from_arguments(["a", "\udcff"])
    with pytest.raises(UsageError, match="text 2 is empty"):
        texts.from_arguments(["a", " "])
