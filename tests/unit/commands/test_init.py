"""`edgepack init`: from a data file to a recipe that `edgepack check` passes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgepack import cli
from edgepack.errors import EnvironmentUnfitError
from edgepack.training import environment
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
    assert "reviews.tsv: UTF-8, separated by tabs, with a header; text in `text`, label in `label`" in result.output
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
    (folder / "my test.tsv").write_text(
        rows.replace("第", "共") + "".join(f"奇怪的一行 {n}\t9\n" for n in range(20)), encoding="utf-8"
    )
    result = run("init", "reviews.tsv", "--dev", "dev.tsv", "--test", "my test.tsv", "--output", "my recipe.yaml")
    assert "error: the label `9` (20 rows, the first here) is not in the train split" in result.output
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


def test_columns_that_init_would_recognise_are_named_ready_to_paste(folder: Path) -> None:
    rows = "".join(f"{n},房间很{'好' * n}，早餐也不错,{'好评' if n % 2 else '差评'}\n" for n in range(1, 30))
    recipe = folder / "recipe.yaml"
    head = "edgepack: 1\nname: a\nversion: 0.1.0\nlinear: only\ndata:\n  train: train.csv\n  dev: dev.csv\n"
    for split in ("train", "dev", "test"):
        new = rows.replace("早餐", {"train": "早餐", "dev": "服务", "test": "位置"}[split])
        (folder / f"{split}.csv").write_text(f"序号,评论 内容,情感\n{new}", encoding="utf-8")
    recipe.write_text(f"{head}  test: test.csv\n", encoding="utf-8")
    output = run("check", "recipe.yaml").output
    columns = 'columns: {text: "评论 内容", label: 情感}'
    assert f"fix: write below `data` (recipe.yaml:5): `{columns}`" in output
    recipe.write_text(f"{head}  test: test.csv\n  {columns}\n", encoding="utf-8")
    assert run("check", "recipe.yaml").exit_code == 0
    recipe.write_text(f"{head}  test: test.csv\n  columns: {{label: 序号}}\n", encoding="utf-8")
    assert 'columns: {text: "评论 内容", label: 序号}' in run("check", "recipe.yaml").output  # what is there is kept


def test_a_trained_folder_is_named_with_a_recipe_to_paste(folder: Path) -> None:
    trained = folder / "output sentiment"
    trained.mkdir()
    (trained / "config.json").write_text("{}")
    (trained / "model_state.pdparams").write_bytes(b"")
    result = run("init", trained.name)
    assert result.exit_code == ExitCode.RECIPE_INVALID
    assert "output sentiment is a trained model, and not rows" in result.output
    lines = [line.strip() for line in result.output.splitlines()]
    recipe = lines[lines.index("edgepack: 1") :]
    assert recipe == [
        "edgepack: 1",
        "name: output-sentiment",
        "version: 0.1.0",
        'model: {folder: "output sentiment"}',
        "data: {test: ROWS.xlsx, columns: {text: TEXT, label: LABEL}}",
    ]
    assert not (folder / "recipe.yaml").exists()
    (folder / "recipe.yaml").write_text("\n".join(recipe), encoding="utf-8")
    checked = run("check", "recipe.yaml").output
    assert "recipe.yaml:4:9: error: `model.folder`: it cannot be converted: it lacks vocab.txt" in checked


@pytest.mark.parametrize(("linear", "missing"), [("auto", True), ("only", False)])
def test_a_missing_paddle_is_a_warning_with_the_fix_of_the_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch, linear: str, missing: bool
) -> None:
    assert run("init", "reviews.tsv").exit_code == 0
    monkeypatch.setattr(environment, "_version", lambda name: None)
    monkeypatch.setitem(sys.modules, "paddle", None)  # nothing imports it
    for command in ("check", "plan"):
        result = run(command, "recipe.yaml", "--set", f"linear={linear}")
        assert result.exit_code == 0, result.output
        output = " ".join(result.output.split())
        assert ("warning: paddlepaddle is not installed: training, quantization and export" in output) == missing
        assert (" ".join(environment.FIX.split()) in output) == missing
        assert ("downloads: none, everything is on this machine" in output) <= (not missing)
    if missing:
        with pytest.raises(EnvironmentUnfitError) as error:
            environment.versions()
        assert (error.value.what, error.value.fix) == ("paddlepaddle is not installed", environment.FIX)
        planned = json.loads(run("plan", "recipe.yaml", "--json").output)
        assert planned["downloads"]["uninstalled"] == list(environment.PACKAGES)
