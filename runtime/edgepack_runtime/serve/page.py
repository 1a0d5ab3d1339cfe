"""The page at `/`: one file without external resources, and its Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

_SOURCE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")


def _digest(element: str) -> str:
    """The policy's hash of the only `element` of that kind in the page; the browser accepts no other."""
    (inside,) = re.findall(rf"<{element}>(.*?)</{element}>", _SOURCE, re.DOTALL)
    return "'sha256-" + base64.b64encode(hashlib.sha256(inside.encode("utf-8")).digest()).decode("ascii") + "'"


POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {_digest('script')}",
        f"style-src {_digest('style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HTML = _SOURCE.encode("utf-8")
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
