"""Digests of texts, exact and normalised, by which rows are compared; names of labels with visible escapes."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final, Literal

from edgepack_runtime.util.texts import UNSEEN

# Shorter texts are equal by chance: `好的！` and `好的。` are no sign of a leak.
MIN_NORMALISED: Final = 6
DIGEST_BYTES: Final = 8  # the probability of a collision among 3 million rows is 2.5e-7
NO_DIGEST: Final = bytes(DIGEST_BYTES)
_BETWEEN: Final = "\x1f"  # between the two texts of a pair
_LONGEST_RUN: Final = 2000
_LONG_RUN: Final = re.compile(rf"[^\x00-\u02ff\u4e00-\u9fff\uac00-\ud7a3]{{{_LONGEST_RUN}}}")
_NO_WORD: Final = re.compile(r"[\W_]+")
_UNSEEN: Final = re.compile(f"[{UNSEEN}]+")
# The same without the space, and characters that are drawn onto the one before: marks, parts of syllables.
_ESCAPED: Final = re.compile(rf"(?! )[{UNSEEN}\u0300-\u036f\u1100-\u11ff\u3099\u309a\ue000-\uf8ff]")


def normalise(text: str) -> str:
    """`text` in NFKC form and lower case, with letters, digits and ideographs only.

    Full-width forms, case, punctuation, symbols, white space, emoji and combining marks make no difference.
    """
    return _NO_WORD.sub("", composed("NFKC", text).lower())


def composed(form: Literal["NFKC", "NFD"], text: str) -> str:
    """`text` in a normal form of Unicode. Long runs of other characters than Latin, Chinese and Korean are cut.

    A run of combining marks takes the square of its length: a cell of them would hold the program for days.
    """
    if not _LONG_RUN.search(text):
        return unicodedata.normalize(form, text)
    pieces = (text[start : start + _LONGEST_RUN] for start in range(0, len(text), _LONGEST_RUN))
    return "".join(unicodedata.normalize(form, piece) for piece in pieces)


def digest(text: str) -> bytes:
    """DIGEST_BYTES of BLAKE2b, which unlike `hash` are the same on every machine and in every process."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=DIGEST_BYTES).digest()


def digests(text: str, text_pair: str | None = None) -> tuple[bytes, bytes]:
    """Digests of a text or pair: without surrounding white space, and normalised.

    The second is NO_DIGEST if fewer than MIN_NORMALISED characters are left. Of a pair in the other order it is the
    same: what a model saw of the one tells it of the other.
    """
    normalised = normalise(text)
    if text_pair is None:
        return digest(text.strip()), digest(normalised) if len(normalised) >= MIN_NORMALISED else NO_DIGEST
    second = normalise(text_pair)
    exact = digest(f"{text.strip()}{_BETWEEN}{text_pair.strip()}")
    if len(normalised) + len(second) < MIN_NORMALISED:
        return exact, NO_DIGEST
    return exact, digest(_BETWEEN.join(sorted((normalised, second))))


def without_unseen(text: str) -> str:
    """`text` without white space and invisible characters."""
    return _UNSEEN.sub("", text)


def visible(text: str) -> str:
    """`text` with escapes, such as `\\u200b`, for characters that are invisible or look like another one."""
    text = "".join(c if c.isascii() or unicodedata.is_normalized("NFC", c) else _escape(c) for c in text)
    return _ESCAPED.sub(lambda match: _escape(match.group()), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shortened(label: str) -> str:
    """A label as printed in messages."""
    label = visible(label)
    return label if len(label) <= 40 else label[:37] + "..."
