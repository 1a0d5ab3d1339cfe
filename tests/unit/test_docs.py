"""What the docs promise is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from edgepack.recipe.model import Recipe
from edgepack.recipe.training import FromScratch, Scratch
from edgepack_runtime.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]


def keys(section: type[BaseModel]) -> set[str]:
    """Every key a recipe may hold, at any depth."""
    found: set[str] = set()
    for name, field in section.model_fields.items():
        found.add(field.alias or name)
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel) and part is not FromScratch:
                found |= keys(part)
    return found


def test_the_recipe_page_names_every_key() -> None:
    page = (ROOT / "docs" / "10-recipe.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z0-9_]+", page))
    wanted = keys(Recipe) | keys(Scratch)
    assert "peak_rss_mib" in wanted
    assert sorted(wanted - words) == []


def test_the_exit_code_page_has_every_code_once() -> None:
    page = (ROOT / "docs" / "40-exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, flags=re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code.value, code.name) for code in ExitCode]


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_links_of_the_readmes_exist(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
