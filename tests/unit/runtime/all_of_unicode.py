"""Words and character data of all of Unicode, as digests. As a program for any Python: prints both."""

# ruff: noqa: B905, T201, UP006, UP035 (it runs on Python 3.8, and prints)

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any, Dict, List

from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference import unicode_data
from edgepack_runtime.inference.tokenizer import ErnieTokenizer

# Planes 0 to 3 and the assigned part of plane 14; the rest is unassigned or private use.
BLOCKS = [range(start, start + 0x400) for start in (*range(0, 0xD800, 0x400), *range(0xE000, 0x40000, 0x400), 0xE0000)]


class EveryWord(Dict[str, int]):
    """A vocabulary that holds every word: a new one gets the next id."""

    def get(self, word: str, default: Any = None) -> Any:
        return self.setdefault(word, len(self))


class Words:
    """Words that texts are split into, before WordPiece."""

    def __init__(self) -> None:
        special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
        with tempfile.TemporaryDirectory() as folder:
            vocab = Path(folder) / "vocab.txt"
            vocab.write_text("\n".join(special), encoding="utf-8")
            self._tokenizer = ErnieTokenizer(vocab, TokenizerConfig())
        self._known = EveryWord(zip(special, range(len(special))))
        self._tokenizer._vocabulary, self._tokenizer._longest_entry = self._known, 100

    def __call__(self, text: str) -> List[str]:
        """The words of `text`; [UNK] for one of more than 100 characters."""
        [ids] = self._tokenizer.encode([text], 2**53)
        known = list(self._known)
        return [known[number] for number in ids[1:-1]]


def words_digest() -> str:
    """Digest of the words that each character gives, behind a letter and before one."""
    words = Words()
    digest = hashlib.sha256()
    for block in BLOCKS:
        found = words("\n".join(f"a{chr(code)}b 2{chr(code)}" for code in block))
        # The digest holds U+11938 undecomposed.
        digest.update("|".join(found).replace("\U00011935\U00011930", "\U00011938").encode())
    return digest.hexdigest()


def data_digest() -> str:
    """Digest of what the tokenizer asks of `unicode_data`."""
    digest = hashlib.sha256()
    for block in BLOCKS:
        for character in map(chr, block):
            category = unicode_data.category(character)
            kind = category if category == "Mn" else {"P": "S", "M": "L", "N": "L"}.get(category[0], category[0])
            row = [kind]
            if kind != "C":
                decomposed = unicode_data.decomposed(character)
                row += [str(unicode_data.combining(character)), unicode_data.lower(character), decomposed]
            digest.update("|".join(row).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print(words_digest(), data_digest())
