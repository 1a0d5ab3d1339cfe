"""Tags of tokens in the dialects of tools, as those of BIO and BIOES: `B-x`, `I-x`, `E-x`, `S-x`, `O`.

A tag has its form before the type (`B-x`, `B_x`) or after it (`x-B`, `x_B`, as in PaddleNLP's examples). BMES calls `I`
M; BILOU calls `E` L and `S` U; BMEWO calls `S` W.
"""

from __future__ import annotations

import re
from typing import Final

from edgepack_runtime.util.spans import OUTSIDE

_FORMS: Final = {"B": "B", "I": "I", "E": "E", "S": "S", "M": "I", "L": "E", "U": "S", "W": "S"}
_BEFORE: Final = re.compile(rf"([{''.join(_FORMS)}])[-_](\S.*)", re.DOTALL)
_AFTER: Final = re.compile(rf"(.*\S)[-_]([{''.join(_FORMS)}])", re.DOTALL)


class TagReader:
    """Reads the tags of one file, in which all forms are on the same side of their types."""

    def __init__(self) -> None:
        self._after: bool | None = None
        self._first = ""  # the first tag that has a form

    def read(self, tag: str) -> tuple[str, tuple[str, str] | None]:
        """The tag of BIO or BIOES, and None; or "", and reason and fix of one that cannot be read."""
        if tag == OUTSIDE:
            return tag, None
        before, after = _BEFORE.fullmatch(tag), _AFTER.fullmatch(tag)
        found = after if self._after or before is None else before
        if found is None or (self._after is False and found is after):
            if before or after:
                reason = f"`{tag[:40]}` and `{self._first[:40]}` have their forms on different sides"
                return "", (reason, "write all tags as in `B-x`, or all of them as in `x-B`")
            reason = f"`{tag[:40]}` is not a tag of BIO, BIOES or BMES"
            return "", (reason, "write `O`, `B-x`, `I-x`, and where there are such `E-x`, `S-x`, `M-x`")
        if self._after is None:
            self._after, self._first = found is after, tag
        form, name = found[1], found[2]
        if found is after:
            form, name = name, form
        return f"{_FORMS[form]}-{name}", None


def is_tag(tag: str) -> bool:
    """Whether `tag` is one in any dialect."""
    return tag == OUTSIDE or bool(_BEFORE.fullmatch(tag) or _AFTER.fullmatch(tag))
