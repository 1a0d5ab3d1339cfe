"""What `/predict` is asked."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.serve import requests
from edgepack_runtime.serve.http_errors import HttpError

_KEYS = st.sampled_from(["text", "text_pair", "texts", "scores", "other"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=5), max_leaves=8
)


@given(st.dictionaries(_KEYS, _JSON) | _JSON, st.booleans())
def test_any_json_is_read_or_refused(document: Any, pairs: bool) -> None:
    try:
        found = requests.parse(document, pairs=pairs, max_texts=3)
    except HttpError as error:
        assert error.status == 422
        assert all(str(word) not in error.message for word in _texts(document) if len(word) > 60)
    else:
        assert 1 <= len(found.items) <= 3
        for item in found.items:
            assert isinstance(item, tuple if pairs else str)
            assert all(text.strip() for text in (item if isinstance(item, tuple) else (item,)))


def _texts(document: Any) -> list[str]:
    if isinstance(document, str):
        return [document]
    inside = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return [text for value in inside for text in _texts(value)]


def test_a_document_of_too_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MOST_VALUES", 10)
    assert requests.parse_json(b"[" + b"1," * 8 + b"1]") == [1] * 9
    for raw in (b"[" + b"1," * 20 + b"1]", b"[" * 20 + b"]" * 20, b'{"a":' * 20 + b"1" + b"}" * 20):
        with pytest.raises(HttpError, match="values"):
            requests.parse_json(raw)


def test_integers_of_many_digits_are_refused_by_every_python() -> None:
    """The limit of this Python is off, as in Pythons that have none: they take minutes for a body of digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert requests.parse_json(b"[" + b"9" * 4300 + b"]") == [10**4300 - 1]
        for raw in (b"9" * 4301, b"[-" + b"9" * 4300 + b"]"):
            with pytest.raises(HttpError, match="not JSON"):
                requests.parse_json(raw)
    finally:
        sys.set_int_max_str_digits(limit)


def test_bodies_on_their_way_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_MOST_UNFINISHED", 100)

    class Sent:
        headers: ClassVar = {"content-length": "60"}

        async def stream(self) -> Any:
            for _ in range(6):
                yield b"x" * 10

    async def both() -> list[Any]:
        monkeypatch.setattr(requests, "_unfinished", 90)  # of others
        return await asyncio.gather(requests._read(Sent(), 60), return_exceptions=True)  # type: ignore[arg-type]

    [refused] = asyncio.run(both())
    assert isinstance(refused, HttpError)
    assert (refused.status, requests._unfinished) == (503, 90)
    monkeypatch.setattr(requests, "_unfinished", 0)
    assert asyncio.run(requests._read(Sent(), 60)) == b"x" * 60  # type: ignore[arg-type]
    assert requests._unfinished == 0
