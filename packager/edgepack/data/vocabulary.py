"""A WordPiece vocabulary for an ERNIE from scratch, built from its training texts."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

SPECIAL_TOKENS = (
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK]",
)  # [PAD] is 0: the attention mask compares with 0


def build(texts: Iterable[str], most: int) -> list[str]:
    """Special tokens, then single characters by falling frequency, at most `most` entries.

    Chinese characters, punctuation and symbols are tokens of their own in ERNIE's tokenizer; letters and digits
    form words, so each gets an entry for the start of a word (`a`) and one for its continuation (`##a`).
    """
    counts: Counter[str] = Counter()
    for text in texts:
        previous_is_word = False
        for character in unicodedata.normalize("NFD", text.lower()):
            category = unicodedata.category(character)
            if character.isspace() or category[0] == "C" or category == "Mn":
                previous_is_word = previous_is_word and category == "Mn"
                continue
            in_word = category[0] in "LN" and not is_ideograph(character)
            counts[f"##{character}" if in_word and previous_is_word else character] += 1
            previous_is_word = in_word
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return [*SPECIAL_TOKENS, *ranked[: max(0, most - len(SPECIAL_TOKENS))]]


def write(tokens: Sequence[str], file: Path) -> None:
    """One token a line; the line number from 0 is the id."""
    file.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def is_ideograph(character: str) -> bool:
    """Whether BERT's tokenizers split around the character: the CJK ideograph blocks, without kana and hangul."""
    code = ord(character)
    return (
        0x3400 <= code <= 0x4DBF or 0x4E00 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x2FA1F
    )
