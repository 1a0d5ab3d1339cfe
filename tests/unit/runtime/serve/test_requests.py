"""What `/predict` is asked."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.inference.loaded_model import GraphInputs
from edgepack_runtime.serve import requests
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.settings import Settings

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
    monkeypatch.setattr(requests, "MOST_VALUES", 10)
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


def test_items_count_by_their_memory() -> None:
    for document in ([[1]] * 9000, [{"a": 1}] * 9000, [[[[1]]]] * 9000, list(range(9000))):
        raw = json.dumps(document, separators=(",", ":")).encode()
        tracemalloc.start()
        items = json.loads(raw)
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        found = requests.memory_bytes(raw, [items])
        assert found > 5 * len(raw)
        assert used <= found <= 3 * used
    escaped = raw.replace(b"[", b"\\u005b").replace(b",", b"\\u002C")  # of JSON that is text in a tensor
    assert requests.memory_bytes(escaped, [items]) >= used


def test_items_without_parsed_json_count_by_their_bytes() -> None:
    commas = b"," * 1000
    assert requests.memory_bytes(commas, [commas]) == 1000
    assert 1000 <= requests.memory_bytes(commas, [commas.decode()]) < 1100
    assert requests.memory_bytes(commas, [("\U0001f600" * 300, "a")]) > 1200
    inputs = {"x": Tensor(bytes(8000), (1000,), "int64")}
    assert requests.memory_bytes(commas, [GraphInputs("model", inputs, 1)]) == 8000


def test_requests_that_wait_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose bodies arrived when there was still room."""
    monkeypatch.setattr(requests, "_MOST_HELD", 0)
    settings = Settings(max_body_kib=1)
    one, other = requests.Reservation(), requests.Reservation()
    one.hold(5000, settings)
    with pytest.raises(HttpError, match="wait for an answer") as caught:
        other.hold(1, settings)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    other.release()
    assert requests._held == 5000
    one.hold(6000, settings)  # an answer in place of its request, while nobody else holds anything
    assert requests._held == 6000
    one.hold(1024, settings)
    other.hold(1024, settings)
    assert requests._held == 2048
    with pytest.raises(HttpError):
        other.hold(1025, settings)
    one.release()
    other.release()
    assert requests._held == 0
