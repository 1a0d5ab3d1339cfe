"""What makes two texts alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.datasets.texts import DIGEST_BYTES, digest, normalise, shortened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("酒店，很 好！", "酒店很好"),
        ("ＷｉＦｉ　１０Ｍ", "wifi10m"),
        ("WiFi_10-M", "wifi10m"),
        ("5㎏ ①", "5kg1"),
        ("😀～～★", ""),
        ("ΑΒΓ Straße", "αβγstraße"),
        ("かな カナ ｶﾅ", "かなカナカナ"),
    ],
)
def test_only_letters_digits_and_ideographs_are_compared(text: str, expected: str) -> None:
    assert normalise(text) == expected


@given(st.text())
def test_normalising_never_fails_and_leaves_words_alone(text: str) -> None:
    assert all(character.isalnum() for character in normalise(text))


def test_a_digest_is_the_same_in_every_process() -> None:
    assert digest("很好").hex() == "ce81334eec98785e"
    assert len(digest("")) == DIGEST_BYTES


def test_long_labels_are_shortened() -> None:
    assert shortened("x" * 40) == "x" * 40
    assert shortened("x" * 41) == "x" * 37 + "..."
