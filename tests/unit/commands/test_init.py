"""`edgepack init`: from a data file to a recipe that `edgepack check` passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgepack import cli
from edgepack_runtime.errors import ExitCode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data file; the commands run in it."""
    rows = [f"{'房间很大' if n % 2 else '太吵了'}，第{n}次\t{n % 2}" for n in range(60)]
    (tmp_path / "reviews.tsv").write_text("\n".join(["text\tlabel", *rows, ""]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def test_a_draft_passes_the_check_and_a_second_needs_force(folder: Path) -> None:
    result = run("init", "reviews.tsv")
    assert result.exit_code == 0, result.output
    assert "reviews.tsv: UTF-8, tab-separated, with a header; text in `text`, label in `label`" in result.output
    assert "wrote recipe.yaml" in result.output
    assert result.output.endswith("edgepack check recipe.yaml\n")
    checked = run("check", "recipe.yaml")
    assert checked.exit_code == 0, checked.output
    assert "valid (34 train, 8 dev, 18 test rows)" in checked.output
    again = run("init", "reviews.tsv")
    assert again.exit_code == ExitCode.USAGE
    assert "recipe.yaml exists" in again.output
    assert run("init", "reviews.tsv", "--force").exit_code == 0


def test_names_of_files_and_columns_forge_no_line(folder: Path) -> None:
    name = "a\nsigned by release.csv"
    (folder / name).write_text('"te\nRows: 9999 train\nxt",label\n' + "".join(f"很好{n},{n % 2}\n" for n in range(60)))
    result = run("init", name, "--output", "r.yaml")
    lines = [line.strip() for line in result.output.splitlines()]
    assert not [line for line in lines if line.startswith(("signed by", "Rows: 9999"))], result.output


def test_a_draft_of_data_with_an_error_ends_in_what_to_mend(folder: Path) -> None:
    rows = (folder / "reviews.tsv").read_text(encoding="utf-8")
    (folder / "dev.tsv").write_text(rows.replace("第", "其"), encoding="utf-8")
    (folder / "my test.tsv").write_text(rows.replace("第", "共") + "奇怪的一行\t9\n", encoding="utf-8")
    result = run("init", "reviews.tsv", "--dev", "dev.tsv", "--test", "my test.tsv", "--output", "my recipe.yaml")
    assert "error: the label `9` (1 row) is not in the train split" in result.output
    closing = "fix the errors above in my test.tsv, then:\n  edgepack check 'my recipe.yaml'\n"
    assert result.output.endswith(closing), result.output


PAIRS = [f"怎么还第{n}期的款\t第{n}期如何{'还款' if n % 3 else '延期'}\t{int(n % 3 > 0)}" for n in range(60)]
TAGGED = "\n".join(
    f"{'北' if n % 2 else '南'} B-city\n京 I-city\n" + "\n".join(f"{c} O" for c in f"有{n}家") + "\n" for n in range(60)
)
SEVERAL = [f"{'房间很大' if n % 2 else '太吵了'}，第{n}次\t{';'.join(('房间', '噪声')[: n % 3])}" for n in range(60)]


@pytest.mark.parametrize(
    ("content", "task", "columns", "written"),
    [
        (
            "\n".join(["one\tother\tsame", *PAIRS]),
            "text-pair-classification",
            "{text: text, text_pair: text_pair, label: label}",
            "train.tsv",
        ),
        (TAGGED, "token-classification", "{text: text, spans: spans}", "train.jsonl"),
        ("\n".join(["text\ttopics", *SEVERAL]), "text-classification", "{text: text, labels: labels}", "train.jsonl"),
    ],
)
def test_every_task_is_drafted(folder: Path, content: str, task: str, columns: str, written: str) -> None:
    (folder / "other.txt").write_text(content, encoding="utf-8")
    result = run("init", "other.txt")
    assert result.exit_code == 0, result.output
    assert f"wrote {written}" in result.output
    drafted = (folder / "recipe.yaml").read_text(encoding="utf-8")
    assert f"task: {task}\n" in drafted
    assert f"  columns: {columns}\n" in drafted
    checked = run("check", "recipe.yaml")
    assert checked.exit_code == 0, checked.output
    assert "valid (33 train, 9 dev, 18 test rows)" in checked.output


def test_a_wrong_column_names_the_place_in_the_recipe_and_the_name_that_is_meant(folder: Path) -> None:
    rows = "".join(f"{'好' * length}\t1\n{'差' * length}\t0\n" for length in range(1, 20))
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text(f"review\tlabels_of_it\n{rows}", encoding="utf-8")
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        "edgepack: 1\nname: a\nversion: 0.1.0\ndata:\n  train: train.tsv\n  dev: dev.tsv\n  test: test.tsv\n"
        "  columns: {text: reviews, label: labels_of_it}\nstudent: {model: ernie-3.0-tiny-nano-v2-zh}\n"
    )
    result = CliRunner().invoke(cli.main, ["check", str(recipe)])
    assert result.exit_code == ExitCode.RECIPE_INVALID
    output = " ".join(result.output.split())
    assert "the column `reviews` is not in the header" in output
    assert f"did you mean `review`? set `data.columns.text` ({recipe}:8) to the name of the column" in output
