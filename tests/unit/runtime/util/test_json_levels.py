"""JSON has as many levels as we say, and not as many as Python can read."""

from __future__ import annotations

import json

import pytest

from edgepack_runtime.util import json_levels
from edgepack_runtime.util.json_levels import MOST_LEVELS


@pytest.mark.parametrize("opened, closed", [("[", "]"), ('{"a":', "}")])
def test_a_level_more_than_the_most_is_an_error(opened: str, closed: str) -> None:
    fits = opened * MOST_LEVELS + "1" + closed * MOST_LEVELS
    assert json_levels.loads(fits) == json.loads(fits)
    with pytest.raises(ValueError, match="levels"):
        json_levels.loads(f"[{fits}]")


def test_many_brackets_side_by_side_are_no_levels() -> None:
    wide = json.dumps([[number, {"a": []}] for number in range(500)])
    assert json_levels.loads(wide) == json.loads(wide)
