"""Vocabulary pruning: which tokens keep their row of the word embedding.

WordPiece takes the longest piece that fits. A vocabulary that has lost only pieces which some texts were never cut into
finds the same longest pieces in them: it cuts them as before. Texts and numbers alone, without Paddle.
"""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from edgepack.data.vocabulary import is_ideograph
from edgepack.recipe.training import Pruning
from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import MASK_TOKEN, ErnieTokenizer

_WHOLE: Final = sys.maxsize  # tokens: texts are counted as they are, not as they are cut for the model
_AT_ONCE: Final = 1000  # texts that are encoded together
_CONTINUED: Final = "##"


def count(tokenizer: ErnieTokenizer, texts: Sequence[str], *, lower_case: bool) -> Counter[int]:
    """How often `texts` are cut into each id.

    A word that ends as [UNK] counts for the pieces at which it was stuck, too. Without them shorter pieces might be
    found that go on where those did not, and the word would be cut in another way.

    Args:
        lower_case: whether the tokenizer lower-cases and decomposes characters.
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
        # Lower-casing comes first on the device as well; a syllable of hangul is several characters to WordPiece.
        plain = unicodedata.normalize("NFD", word) if lower_case else word
        for number in _beginning(tokenizer, plain):
            counts[number] += times
    return counts


def _unknown_words(tokenizer: ErnieTokenizer, texts: Sequence[str]) -> Iterator[str]:
    """What stands in `texts` where the tokens are [UNK]."""
    if not texts:
        return
    rows, offsets = tokenizer.encode_with_offsets(texts, _WHOLE)
    for text, row, places in zip(texts, rows, offsets, strict=True):
        for number, (start, end) in zip(row, places, strict=True):
            if number == tokenizer.unk_id:
                yield text[start:end]


def _beginning(tokenizer: ErnieTokenizer, word: str) -> list[int]:
    """The ids of the longest beginning of `word` that can be cut: longer ones are stuck where `word` is."""
    rows = tokenizer.encode([word[:end] for end in range(1, len(word))], _WHOLE)
    return next((row for row in reversed(rows) if tokenizer.unk_id not in row), [])


def choose(entries: Sequence[str], counts: Mapping[int, int], always: Collection[int], pruning: Pruning) -> list[int]:
    """The ids that stay, ascending, so that what stays is in its order.

    Args:
        entries: the vocabulary. Where an entry stands twice, the last one counts, as in the tokenizer.
        counts: how often each id is needed.
        always: ids that stay in any case.
        pruning: what else the recipe asks for.
    """
    last = {entry: number for number, entry in enumerate(entries)}
    stay = {number for number in last.values() if counts.get(number, 0) >= pruning.min_count}
    stay.update(number for entry, number in last.items() if _is_ascii_piece(entry))
    if pruning.characters == "all":
        stay.update(number for entry, number in last.items() if len(entry) == 1 and is_ideograph(entry))
    return sorted(stay.union(always))


def special_tokens(config: TokenizerConfig) -> list[str]:
    """The tokens that mean something to the model or the tokenizer, whether texts hold them or not."""
    return [config.pad_token, config.cls_token, config.sep_token, config.unk_token, MASK_TOKEN]


def _is_ascii_piece(entry: str) -> bool:
    """One letter, digit or sign, at the beginning of a word or inside: what unseen words and numbers are cut into."""
    character = entry.removeprefix(_CONTINUED)
    return len(character) == 1 and character.isascii() and character.isprintable() and not character.isspace()
