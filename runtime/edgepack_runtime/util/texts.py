"""Items of a model (a text or a pair of texts), numbers as text, and numbers with nouns."""

from __future__ import annotations

import json
import re
from typing import Any, List, Optional, Sequence, Tuple, Union

Item = Union[str, Tuple[str, str]]  # a text or a pair of texts
NOTHING = "-"  # shown where there is nothing
# White space, control characters, and what Unicode has shown as nothing (Default_Ignorable_Code_Point: joiners, marks
# of direction, fillers, variation selectors); also the annotations, and the blank of Braille. For a class of `re`.
UNSEEN = (
    r"\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SEEN = re.compile(f"[^{UNSEEN}]")
UTF8, GB18030, UTF16, BIG5 = ENCODINGS = ("utf-8", "gb18030", "utf-16", "big5")  # of files with texts
ENCODING_NAMES = {
    "gbk": GB18030, "gb2312": GB18030, "cp936": GB18030, "utf8": UTF8, "utf16": UTF16, "cp950": BIG5,
}  # other names  # fmt: skip


def is_unseen(text: str) -> bool:
    """Whether `text` is empty, or has only white space and invisible characters, such as U+200B and U+FEFF."""
    return _SEEN.search(text) is None


def has_surrogate(text: str) -> bool:
    r"""Whether `text` holds a lone surrogate, such as the escape `\ud83d`, which no file can hold."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def length(item: Any) -> int:
    """Size of an item: characters of a text, of a pair or of a JSON value; bytes of a file."""
    if isinstance(item, tuple):
        return sum(map(len, item))
    return len(item) if isinstance(item, (str, bytes)) else len(json.dumps(item))


def evenly(items: Sequence[Item], most: int) -> List[Item]:
    """At most `most` items, evenly spaced over `items`."""
    step = max(1.0, len(items) / most)
    return [items[int(index * step)] for index in range(min(most, len(items)))]


def whole(text: str, most_digits: int) -> int:
    """A decimal number. Pythons before 3.8.14 and 3.10.7 take minutes for millions of digits.

    Raises:
        ValueError: it has more digits than that, its sign included.
    """
    if len(text) > most_digits:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def counted(number: float, noun: str, plural: Optional[str] = None) -> str:
    """A number with its noun: `1 row`, `2 rows`, `0.5 minutes`. `plural` is for irregular nouns."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {plural or noun + 's'}"
