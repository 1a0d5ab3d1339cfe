"""One and many in words."""

from __future__ import annotations

import pytest

from edgepack_runtime.wording import counted


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0 minutes"), (1, "1 minute"), (2, "2 minutes"), (1.0, "1 minute"), (0.5, "0.5 minutes"), (90.0, "90 minutes"),
     (1_234_567, "1234567 minutes")],
)  # fmt: skip
def test_one_and_many(number: float, words: str) -> None:
    assert counted(number, "minute") == words
