"""What `/predict` is asked."""

from __future__ import annotations

from typing import Any

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
