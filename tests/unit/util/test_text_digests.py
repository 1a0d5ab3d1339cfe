"""What makes two texts alike."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.util import text_digests
from edgepack.util.text_digests import (
    DIGEST_BYTES,
    NO_DIGEST,
    digest,
    digests,
    normalise,
    shortened,
    visible,
)


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


def test_long_runs_of_marks_are_normalised_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes the square of its length."""
    longest = 0
    real = unicodedata.normalize

    def normalize(form: Any, text: str) -> str:
        nonlocal longest
        longest = max(longest, len(text))
        return real(form, text)

    monkeypatch.setattr(text_digests.unicodedata, "normalize", normalize)
    assert text_digests.normalise("好" + "\u0301\u0323" * 50_000 + "店") == "好店"
    assert longest <= 2000
    assert text_digests.normalise("Ａ" * 1999 + "。") == "a" * 1999
    assert text_digests.normalise("房间很大，" * 5000) == "房间很大" * 5000


def test_digests_are_the_same_in_every_process_and_of_pairs_in_either_order() -> None:
    assert digest("很好").hex() == "ce81334eec98785e"
    assert len(digest("")) == DIGEST_BYTES
    exact, normalised = digests(" 如何还款 ", "怎么还款")
    assert digests("如何还款", "怎么还款 ") == (exact, normalised)
    assert digests("如何还款！", "怎么还款")[0] != exact
    assert digests("如何还款！", "怎么还款")[1] == normalised
    reversed_pair = digests("怎么还款", "如何还款")  # another pair, which would leak
    assert reversed_pair[0] != exact and reversed_pair[1] == normalised
    assert not {exact, normalised} & set(digests("如何还款怎么还款"))
    assert digests("好的", "不好")[1] == NO_DIGEST


def test_long_labels_are_shortened() -> None:
    assert shortened("x" * 40) == "x" * 40
    assert shortened("x" * 41) == "x" * 37 + "..."


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("正面", "正面"),
        ("New York", "New York"),
        ("café ｶﾅ Ａ 가 ✓ 😀", "café ｶﾅ Ａ 가 ✓ 😀"),
        ("正面\u200b", "正面\\u200b"),
        ("\ufeff正面", "\\ufeff正面"),
        ("正\u3000面\u00a0", "正\\u3000面\\u00a0"),
        ("cafe\u0301", "cafe\\u0301"),
        ("\u212b \uf900 \U0002f800", "\\u212b \\uf900 \\U0002f800"),
        ("\u1100\u1161", "\\u1100\\u1161"),
        ("\x1b[31m", "\\u001b[31m"),
    ],
)
def test_what_cannot_be_seen_is_shown(label: str, shown: str) -> None:
    assert visible(label) == shown
    assert shortened(label) == shown


@given(st.text(max_size=20), st.text(max_size=20))
def test_labels_that_are_equal_on_screen_are_equal(one: str, other: str) -> None:
    if "\\" not in one + other and visible(one) == visible(other):
        assert one == other
