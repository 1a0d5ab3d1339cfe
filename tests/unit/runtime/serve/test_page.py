"""The page and the policy that goes with it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from edgepack_runtime.serve import page

TEXT = page.MODEL.html.decode("utf-8")
BOTH = pytest.mark.parametrize("shown", [page.MODEL, page.DOCS])


class Elements(HTMLParser):
    """Every element with its attributes, and what stands in scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style") and data.strip():
            self.inside.setdefault(self.found[-1][0], data)


@BOTH
def test_the_policy_allows_the_one_script_and_the_one_style(shown: page.Page) -> None:
    read, policy = Elements(), shown.headers["Content-Security-Policy"]
    read.feed(shown.html.decode("utf-8"))
    for kind in ("script", "style"):
        assert [tag for tag, _ in read.found].count(kind) == 1
        digest = base64.b64encode(hashlib.sha256(read.inside[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


@BOTH
def test_nothing_comes_from_elsewhere_and_nothing_runs_but_the_script(shown: page.Page) -> None:
    read, text = Elements(), shown.html.decode("utf-8")
    read.feed(text)
    for tag, attributes in read.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert not attributes.get("src")
        assert not (attributes.get("href") or "").startswith(("http", "//"))
    assert not re.search(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|localStorage)\b", text)


def test_both_languages_have_the_same_words() -> None:
    words = re.findall(r"^  (en|zh): \{(.*?)^  \},", TEXT, re.MULTILINE | re.DOTALL)
    keys = {language: set(re.findall(r'(?:^|[\s{])"?([a-z][\w-]*)"?: ["{]', inside)) for language, inside in words}
    codes = keys["zh"] - keys["en"]
    assert keys["en"] <= keys["zh"]
    assert codes >= {"queue_full", "timeout", "unauthorized"}  # the server itself speaks English
    for word in re.findall(r'data-say="(\w+)"|say\("(\w+)"\)', TEXT):
        assert (word[0] or word[1]) in keys["en"]
