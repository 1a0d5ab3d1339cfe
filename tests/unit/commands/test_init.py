"""`edgepack init`: from a data file to a recipe that `edgepack check` passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgepack import cli
from edgepack_runtime.exit_codes import ExitCode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data file; the commands run in it."""
    rows = [f"{'房间很大' if n % 2 else '太吵了'}，第{n}次\t{n % 2}" for n in range(60)]
    (tmp_path / "reviews.tsv").write_text("\n".join(["text\tlabel", *rows, ""]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def test_a_draft_passes_the_check(folder: Path) -> None:
    result = run("init", "reviews.tsv")
    assert result.exit_code == 0, result.output
    assert "reviews.tsv: UTF-8, tab-separated, with a header; text in `text`, label in `label`" in result.output
    assert "wrote recipe.yaml" in result.output
    assert result.output.endswith("edgepack check recipe.yaml\n")
    checked = run("check", "recipe.yaml")
    assert checked.exit_code == 0, checked.output
    assert "valid (48 train, 6 dev, 6 test rows)" in checked.output


def test_a_second_draft_needs_force(folder: Path) -> None:
    assert run("init", "reviews.tsv").exit_code == 0
    again = run("init", "reviews.tsv")
    assert again.exit_code == ExitCode.USAGE
    assert "recipe.yaml is there already" in again.output
    assert run("init", "reviews.tsv", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("text\ttext_pair\tlabel\n" + "如何还款\t怎么还款\t1\n怎么开通\t如何关闭\t0\n" * 9, "pairs of texts"),
        ("北 B-city\n京 I-city\n大 O\n" * 9, "token classification"),
    ],
)
def test_other_tasks_exit_3(folder: Path, content: str, what: str) -> None:
    (folder / "other.tsv").write_text(content, encoding="utf-8")
    result = run("init", "other.tsv")
    assert result.exit_code == ExitCode.RECIPE_INVALID
    assert what in result.output
    assert "which this version cannot train" in result.output
    assert not (folder / "recipe.yaml").exists()
