"""Both languages of the report's pages: a page holds English and Chinese, and shows what its reader asks for.

What a build or a device said itself is in both by `said.py`, as far as its form is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

from edgepack import toml

CHINESE: Final[dict[str, str]] = toml.loads((Path(__file__).parent / "chinese.toml").read_text(encoding="utf-8"))


def both(words: str, *values: object) -> Markup:
    """`words` in both languages, each in an element of its class; `{}` are filled with the escaped values.

    Raises:
        KeyError: nobody has said it in Chinese.
    """
    english, chinese = (Markup(escape(text)).format(*map(escape, values)) for text in (words, CHINESE[words]))
    return Markup('<span class="en">{}</span><span class="zh" lang="zh">{}</span>').format(english, chinese)
