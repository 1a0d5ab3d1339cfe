"""What two texts are compared by: digests of 8 bytes, of a text as it is and of what is left of it when normalised."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

# Shorter ones coincide by chance: `好的！` and `好的。` are no sign of a leak.
MIN_NORMALISED: Final = 6
DIGEST_BYTES: Final = 8  # among 3 million rows the chance that any two texts share a digest by accident is 2.5e-7
NO_DIGEST: Final = bytes(DIGEST_BYTES)
_BETWEEN: Final = "\x1f"  # the two texts of a pair
_NO_WORD: Final = re.compile(r"[\W_]+")


def normalise(text: str) -> str:
    """`text` in Unicode's NFKC form and in lower case, without everything that is no letter, digit or ideograph.

    Full-width forms, case, punctuation, symbols, white space, emoji and combining marks thus make no difference.
    """
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", text).lower())


def digest(text: str) -> bytes:
    """DIGEST_BYTES of BLAKE2b: the same on every machine, and never those of `hash`, which differ in each process."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=DIGEST_BYTES).digest()


def digests(text: str, text_pair: str | None = None) -> tuple[bytes, bytes]:
    """What a text, or a pair in its order, is compared by: as it is but for white space around it, and normalised.

    The second is NO_DIGEST where less than MIN_NORMALISED characters are left.
    """
    normalised = normalise(text)
    if text_pair is None:
        return digest(text.strip()), digest(normalised) if len(normalised) >= MIN_NORMALISED else NO_DIGEST
    second = normalise(text_pair)
    exact = digest(f"{text.strip()}{_BETWEEN}{text_pair.strip()}")
    if len(normalised) + len(second) < MIN_NORMALISED:
        return exact, NO_DIGEST
    return exact, digest(f"{normalised}{_BETWEEN}{second}")


def shortened(label: str) -> str:
    """A label as messages name it."""
    return label if len(label) <= 40 else label[:37] + "..."
