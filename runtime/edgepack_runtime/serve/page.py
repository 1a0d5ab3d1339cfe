"""The pages at `/` and `/docs`: files without external resources, each with its Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Dict


class Page:
    """A page in this folder.

    Attributes:
        html: the file.
        headers: those of an answer with it.
    """

    def __init__(self, name: str) -> None:
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        policy = (
            "default-src 'none'",
            f"script-src {_digest(text, 'script')}",
            f"style-src {_digest(text, 'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
        self.html = text.encode("utf-8")
        self.headers: Dict[str, str] = {
            "Content-Security-Policy": "; ".join(policy),
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


def _digest(text: str, element: str) -> str:
    """The policy's hash of the only `element` of that kind in a page; the browser accepts no other."""
    (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    return "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode("utf-8")).digest()).decode("ascii") + "'"


MODEL = Page("page.html")
DOCS = Page("docs.html")
