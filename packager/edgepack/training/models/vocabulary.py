"""Vocabularies: built from texts for an encoder from scratch, or trimmed. Imports no Paddle.

Trimming chooses the tokens that keep their row of the word embedding. WordPiece takes the longest matching piece.
Without pieces that never occur in a set of texts, it splits these texts into the same tokens as before.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from edgepack.recipe.training import Trimming
from edgepack.util.text_digests import composed
from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import MASK_TOKEN, ErnieTokenizer

SPECIAL_TOKENS: Final = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]")  # the attention mask needs [PAD] as 0
_WHOLE: Final = sys.maxsize  # tokens: texts are counted as they are, not as they are cut for the model
_AT_ONCE: Final = 1000  # texts that are encoded together
_CONTINUED: Final = "##"


def count(tokenizer: ErnieTokenizer, texts: Sequence[str]) -> Counter[int]:
    """Count the tokens of `texts` by id.

    A word that becomes [UNK] also counts the pieces before it failed. Without them shorter pieces might match, and the
    word would be split in another way.
    """
    counts: Counter[int] = Counter()
    stuck: Counter[str] = Counter()
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        rows = tokenizer.encode(some, _WHOLE)
        counts.update(number for row in rows for number in row)
        holding = [text for text, row in zip(some, rows, strict=True) if tokenizer.unk_id in row]
        stuck.update(_unknown_words(tokenizer, holding))
    for word, times in stuck.items():
        for number in tokenizer.begun(word):
            counts[number] += times
    return counts


def _unknown_words(tokenizer: ErnieTokenizer, texts: Sequence[str]) -> Iterator[str]:
    """The words of `texts` whose tokens are [UNK]."""
    if not texts:
        return
    rows, offsets = tokenizer.encode_with_offsets(texts, _WHOLE)
    for text, row, places in zip(texts, rows, offsets, strict=True):
        for number, (start, end) in zip(row, places, strict=True):
            if number == tokenizer.unk_id:
                yield text[start:end]


def choose(entries: Sequence[str], counts: Mapping[int, int], always: Collection[int], trimming: Trimming) -> list[int]:
    """The ids that stay, ascending.

    Args:
        entries: the vocabulary. Of duplicate entries the last one counts, as in the tokenizer.
        counts: number of occurrences of each id.
        always: ids that stay in any case.
        trimming: the recipe's settings.
    """
    last = {entry: number for number, entry in enumerate(entries)}
    stay = {number for number in last.values() if counts.get(number, 0) >= trimming.min_count}
    stay.update(number for entry, number in last.items() if _is_ascii_piece(entry))
    if trimming.characters == "all":
        stay.update(number for entry, number in last.items() if len(entry) == 1 and is_ideograph(entry))
    return sorted(stay.union(always))


def special_tokens(config: TokenizerConfig) -> list[str]:
    """The special tokens of the model and the tokenizer."""
    return [config.pad_token, config.cls_token, config.sep_token, config.unk_token, MASK_TOKEN, *config.kept_tokens]


def _is_ascii_piece(entry: str) -> bool:
    """Whether `entry` is a single letter, digit or sign, into which unknown words and numbers are split."""
    character = entry.removeprefix(_CONTINUED)
    return len(character) == 1 and character.isascii() and character.isprintable() and not character.isspace()


def build(texts: Iterable[str], most: int) -> list[str]:
    """Special tokens, then single characters by falling frequency, at most `most` entries.

    Chinese characters, punctuation and symbols are tokens of their own in ERNIE's tokenizer; letters and digits
    form words, so each gets an entry for the start of a word (`a`) and one for its continuation (`##a`).
    """
    counts: Counter[str] = Counter()
    for text in texts:
        previous_is_word = False
        for character in composed("NFD", text.lower()):
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
