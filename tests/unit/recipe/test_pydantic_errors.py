"""The three templates: unknown key, wrong type, out of range. Their words are in the golden files of recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding
from edgepack.recipe.loader import load_recipe

RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
student: {model: ernie-3.0-tiny-nano-v2-zh}
"""


def found(folder: Path, more: str) -> list[Finding]:
    (folder / "recipe.yaml").write_text(RECIPE + more, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(folder / "recipe.yaml", {"local"})
    return list(caught.value.findings)


@pytest.mark.parametrize(
    ("more", "key", "column", "fix"),
    [
        ("quantise: {}\n", "quantise", 1, "did you mean `quantize`?"),
        ("max_length: 8\n", "max_length", 1, "it belongs below `teacher` or `student`: indent it there"),
        ("handler: a.py\n", "handler", 1, "it is for recipes with `task: custom`"),
        ("student.epochs: 8\n", "student.epochs", 1, "write `epochs:` below the section it belongs to, indented"),
        ("quantize: {method: ptqq}\n", "quantize.method", 12, "did you mean `ptq`?"),
        ("teacher: {model: 3}\n", "teacher.model", 11, "write keys below it, indented: `scratch`"),
    ],
)
def test_the_fix_of_a_key(tmp_path: Path, more: str, key: str, column: int, fix: str) -> None:
    (finding,) = found(tmp_path, more)
    assert (finding.line, finding.column, finding.key, finding.fix) == (6, column, key, fix)
    assert finding.place == f"{tmp_path / 'recipe.yaml'}:6:{column}"


def test_text_that_looks_like_a_number_is_put_in_quotes_if_that_is_enough(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "targets: [3]\n")
    assert (finding.key, finding.fix) == ("targets[0]", 'put it in quotes: `"3"`')
    assert "quotes" not in found(tmp_path, "interpreter: {path: a, sha256: 12}\n")[-1].fix


def test_each_wrong_value_is_found_once(tmp_path: Path) -> None:
    more = "teacher: {model: {scratch: {layers: 0, hidden: x, head: 2}}}\ngates: {memory: {}}\n"
    keys = [(finding.line, finding.key) for finding in found(tmp_path, more)]
    below = "teacher.model.scratch"
    assert sorted(keys) == [
        (6, f"{below}.head"), (6, f"{below}.heads"), (6, f"{below}.hidden"), (6, f"{below}.layers"),
        (7, "gates.memory.peak_rss_mib"),
    ]  # fmt: skip
