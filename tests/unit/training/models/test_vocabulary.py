"""Which tokens of a vocabulary stay, and that the texts they were chosen on are cut as before."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgepack.recipe.training import Trimming
from edgepack.training.models.vocabulary import choose, count, special_tokens
from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import MAX_WORD_CHARS, ErnieTokenizer, read_vocab

LOWER, AS_WRITTEN = TokenizerConfig(), TokenizerConfig(lower_case=False)
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
# Few letters and many pieces of several, so that words are cut in many ways and get stuck at many places.
LETTERS = "abcΑ한"
pieces = st.text(LETTERS, min_size=1, max_size=3).flatmap(lambda piece: st.sampled_from([piece, f"##{piece}"]))
others = st.sampled_from(["好", "差", "店", "，", "$", "##好", "a", "##b", "[unused1]", ""])
texts = st.lists(st.text(LETTERS + "É\u0301ᄒ好差店坏，$ \u200b1" + "[PAD]", max_size=12), min_size=1, max_size=6)


def tokenizer_of(entries: list[str], config: TokenizerConfig, *, ended: bool = True) -> ErnieTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(entries) + "\n" * ended, encoding="utf-8")
        assert read_vocab(file)[: len(entries)] == entries or not entries[-1]
        return ErnieTokenizer(file, config)


def kept_of(entries: list[str], config: TokenizerConfig, some: list[str], trimming: Trimming) -> list[int]:
    tokenizer = tokenizer_of(entries, config, ended=False)
    ids = {entry: number for number, entry in enumerate(entries)}
    always = [ids[token] for token in special_tokens(config) if token in ids]
    return choose(entries, count(tokenizer, some), always, trimming)


@st.composite
def vocabularies(draw: st.DrawFn) -> list[str]:
    """Special tokens anywhere, [UNK] perhaps last; entries that stand twice; an end of the file without a newline."""
    entries = draw(st.lists(pieces | others, max_size=25))
    for token in SPECIAL:
        entries.insert(draw(st.integers(0, len(entries))), token)
    entries.insert(draw(st.sampled_from([0, len(entries) // 2, len(entries)])), "[UNK]")
    return entries


@given(vocabularies(), texts, st.sampled_from([LOWER, AS_WRITTEN]), st.booleans())
@example([*SPECIAL, "abc", "ab", "a", "##c", "##cb", "##b", "[UNK]"], ["abca", "ab", "cba acb"], LOWER, False)
@example([*SPECIAL, "ᄒ", "ᄒ\u1161", "##\u1161ᆫ", "[UNK]"], ["한a", "하", "ᄒ"], LOWER, False)
def test_the_texts_are_cut_as_before(
    entries: list[str], some: list[str], config: TokenizerConfig, every_character: bool
) -> None:
    trimming = Trimming(characters="all" if every_character else "none")
    kept = kept_of(entries, config, some, trimming)
    assert kept == sorted(set(kept))
    before, after = tokenizer_of(entries, config), tokenizer_of([entries[number] for number in kept], config)
    assert [[kept[number] for number in row] for row in after.encode(some, 100)] == before.encode(some, 100)
    offsets = [one.encode_with_offsets(some, 100)[1] for one in (before, after)]
    assert offsets[0] == offsets[1]
    pairs = [one.encode_pairs(some, some[::-1], 9) for one in (before, after)]
    assert [[kept[number] for number in row] for row in pairs[1][0]] == pairs[0][0]


@pytest.mark.parametrize(
    ("trimming", "more"),
    [
        (Trimming(), ["好", "店", "##ok"]),
        (Trimming(min_count=2), ["好"]),
        (Trimming(min_count=4), []),
        (Trimming(min_count=4, characters="all"), ["好", "店", "差"]),
    ],
)
def test_what_stays(trimming: Trimming, more: list[str]) -> None:
    always = [*SPECIAL, "[UNK]", "a", "##a", "7", "##7", "!", "###", "A", "##A"]
    never = ["[unused1]", "##好", "あ", "hotel", "", "  "]
    entries = [*never[:3], *always, "好", "店", "差", "##ok", *never[3:]]
    kept = kept_of(entries, LOWER, ["好店 7ok", "好", "好"], trimming)
    stays = {*always, *more}
    assert [entries[number] for number in kept] == [entry for entry in entries if entry in stays]


CHINESE = [chr(0x4E00 + number) for number in range(50)]


@pytest.mark.parametrize(
    ("entries", "some", "kept"),
    [
        # `abc` takes the first three letters and nothing goes on with d; without it, `ab` and `##cd` would fit.
        (["ab", "##cd", "abc", "好"], ["abcd", "ab", "ab abx"], [5, 7]),
        (["$", "好", "好", "$"], ["$ 好"], [7, 8]),  # of an entry that stands twice the row that is used
        # Continued characters of Chinese never occur: each stands alone.
        ([*CHINESE, *(f"##{character}" for character in CHINESE)], ["".join(CHINESE)], list(range(5, 55))),
    ],
)
def test_what_no_text_can_need_goes(entries: list[str], some: list[str], kept: list[int]) -> None:
    assert kept_of([*SPECIAL, "[UNK]", *entries], LOWER, some, Trimming()) == [*range(5), *kept]


def test_rows_that_are_kept_in_any_case_keep_their_place() -> None:
    assert choose(["x1", "x2", "x3"], Counter({2: 1}), [0], Trimming()) == [0, 2]


def test_an_unknown_word_is_read_once_and_no_further_than_the_tokenizer_reads() -> None:
    tokenizer = tokenizer_of([*SPECIAL, "[UNK]", "q", "##q"], LOWER)
    assert len(tokenizer.begun("q" * 32_000)) == MAX_WORD_CHARS
    assert tokenizer.begun("qq" + "ŵ" + "q") == tokenizer.encode(["qq"], 8)[0][1:-1]
    lookups = 0

    class Counted(dict[str, int]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal lookups
            lookups += 1
            return super().get(key, default)

    tokenizer._vocabulary, tokenizer._continuations = Counted(tokenizer._vocabulary), Counted(tokenizer._continuations)
    tokenizer.begun("q" * 99 + "z")
    assert lookups < 100 * tokenizer._longest_entry  # every prefix by itself would take some 100 times as many
