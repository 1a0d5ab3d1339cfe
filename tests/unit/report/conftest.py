"""The report of a build with made-up figures."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report.pages import document


@pytest.fixture
def report(built: Any) -> dict[str, Any]:
    return document(built)
