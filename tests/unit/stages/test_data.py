"""The data stage: what later stages read is what the recipe asked for."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from edgepack import artifacts
from edgepack.artifacts import Row
from edgepack.console.console import Console
from edgepack.data.splits import load_splits
from edgepack.errors import RecipeInvalidError, StageFailedError
from edgepack.recipe.model import Calibration, Columns, Data
from edgepack.stages import data
from edgepack.stages.data import DataStage
from edgepack.stages.quantize import calibration_rows
from edgepack.stages.stage import Context
from edgepack_runtime.util.spans import Span

SPLITS = ("train", "dev", "test")


@pytest.fixture
def section(tmp_path: Path) -> Data:
    """1,000 rows of one label, one of another; both in test."""
    rows = {"train": 1000, "dev": 3, "test": 3}
    for split, count in rows.items():
        lines = [f"{split} {number}\tcommon" for number in range(count)]
        text = "\n".join(["text\tlabel", *lines, f"{split} seldom\trare", ""])
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    files = {split: str(tmp_path / f"{split}.tsv") for split in rows}
    return Data(**files, train_rows=50)


def test_the_same_seed_draws_the_same_rows(tmp_path: Path, section: Data) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder, seed in zip(folders, (0, 0, 1), strict=True):
        folder.mkdir()
        DataStage(section.model_copy(update={"seed": seed})).run(Context(), folder)
    first, again, other = ((folder / "train.jsonl").read_bytes() for folder in folders)
    assert first == again != other


def test_the_draw_is_the_same_on_every_machine_and_in_the_order_of_the_file(tmp_path: Path, section: Data) -> None:
    section = section.model_copy(update={"train_rows": 9})
    made = DataStage(section).run(Context(), tmp_path)
    drawn = [row.text.removeprefix("train ") for row in made.read("train")]
    assert drawn == ["31", "273", "278", "287", "299", "421", "557", "588", "919"]
    calibration = calibration_rows(made, Calibration(rows=8), 0)
    assert [row.text.removeprefix("train ") for row in calibration] == [*drawn[:7], "919"]


def test_without_a_sample_every_row_is_kept(tmp_path: Path, section: Data) -> None:
    made = DataStage(section.model_copy(update={"train_rows": None})).run(Context(), tmp_path)
    assert made.rows["train"] == 1001
    assert [row.text for row in made.read("dev")] == ["dev 0", "dev 1", "dev 2", "dev seldom"]


def test_labels_lengths_and_warnings_come_back_with_the_artifact(tmp_path: Path, section: Data) -> None:
    made = DataStage(section).run(Context(), tmp_path)
    assert made.labels == ("common", "rare")  # also where a sample misses one
    assert made.rows == {"train": 50, "dev": 4, "test": 4}
    assert "the label `rare` has 1 row in train" in made.warnings[0]
    assert made.token_counts["test"] == {4: 3, 5: 1}  # with [CLS] and [SEP]; `seldom` is two tokens
    artifacts.save(made)
    assert artifacts.load(artifacts.DataArtifact, tmp_path) == made


def test_repeated_rows_are_named_once(tmp_path: Path, section: Data) -> None:
    with Path(section.train).open("a", encoding="utf-8") as stream:
        stream.write("train 7\tcommon\n")
    made = DataStage(section).run(Context(), tmp_path)
    assert " ".join(made.warnings).count("left out") == 1


def test_built_in_data_are_written_like_files(tmp_path: Path) -> None:
    made = DataStage(Data(train="builtin:reviews-zh", train_rows=100)).run(Context(), tmp_path)
    assert made.rows == {"train": 100, "dev": 500, "test": 1000}
    assert len(made.read("test")) == sum(made.token_counts["test"].values()) == 1000


def test_many_rows_have_a_bar(tmp_path: Path, section: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "BAR_FROM_ROWS", 1009)
    monkeypatch.setattr(data, "_ROWS_PER_UPDATE", 100)
    said = io.StringIO()
    DataStage(section).run(Context(progress=Console(stdout=io.StringIO(), stderr=said)), tmp_path)
    assert "writing, rows: 1009/1009 in " in said.getvalue()


def written(folder: Path, content: dict[str, list[str]], columns: Columns, suffix: str, **more: str) -> Data:
    for name, lines in content.items():
        (folder / f"{name}.{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Data(**{name: str(folder / f"{name}.{suffix}") for name in content}, columns=columns, **more)


def test_pairs_are_laid_down(tmp_path: Path) -> None:
    lines = {n: ["text\ttext_pair\tlabel", *(f"{n} 问 {i}\t{n} 答 {i}\t{i % 2}" for i in range(20))] for n in SPLITS}
    made = DataStage(written(tmp_path, lines, Columns(text_pair="text_pair"), "tsv")).run(Context(), tmp_path)
    assert (made.task, made.multi_label, made.labels) == ("text-pair-classification", False, ("0", "1"))
    assert made.read("test")[1] == Row("test 问 1", "1", "test 答 1")
    assert made.token_counts["test"] == {9: 20}  # three tokens of each text, [CLS] and two [SEP]


def test_several_labels_are_laid_down(tmp_path: Path) -> None:
    cells = ("", "b", "b;a")
    lines = {n: ["text\ttopics", *(f"{n} {i}\t{cells[i % 3]}" for i in range(30))] for n in SPLITS}
    section = written(tmp_path, lines, Columns(labels="topics"), "tsv", label_separator=";")
    made = DataStage(section).run(Context(), tmp_path)
    assert (made.task, made.multi_label, made.labels) == ("text-classification", True, ("a", "b"))
    assert [row.label for row in made.read("train")[:3]] == [(), ("b",), ("a", "b")]
    artifacts.save(made)
    assert artifacts.load(artifacts.DataArtifact, tmp_path) == made


def test_tagged_sentences_are_laid_down(tmp_path: Path) -> None:
    lines = {n: [f"{n[:2]} O\n{i} O\n北 B-x\n京 I-x\n" for i in range(20)] for n in SPLITS}
    made = DataStage(written(tmp_path, lines, Columns(spans="spans"), "conll")).run(Context(), tmp_path)
    assert (made.task, made.labels, made.model_labels) == ("token-classification", ("x",), ("O", "B-x", "I-x"))
    assert made.read("dev")[0] == Row("de 0北京", (Span(4, 6, "x"),))


def test_unlabelled_texts_are_laid_down_without_those_that_are_held_out(tmp_path: Path, section: Data) -> None:
    (tmp_path / "more.txt").write_text("新的文本\ndev 1\ntest seldom\nsome text\n", encoding="utf-8")
    said = io.StringIO()
    console = Console(stdout=io.StringIO(), stderr=said)
    with_texts = section.model_copy(update={"unlabelled": str(tmp_path / "more.txt")})
    made = DataStage(with_texts).run(Context(progress=console), tmp_path)
    assert made.rows["unlabelled"] == 2
    assert made.read("unlabelled") == [Row("新的文本", ()), Row("some text", ())]
    assert "2 of 4 texts left out: dev or test holds the same, or nearly" in made.warnings[-1]
    assert "data: 50 train, 4 dev, 4 test, 2 unlabelled; labels common, rare" in " ".join(said.getvalue().split())


def test_the_rest_of_the_training_rows_may_be_unlabelled(tmp_path: Path, section: Data) -> None:
    made = DataStage(section.model_copy(update={"unlabelled": section.train})).run(Context(), tmp_path)
    trained = {row.text for row in made.read("train")}
    assert (len(trained), made.rows["unlabelled"]) == (50, 951)
    assert not trained & {row.text for row in made.read("unlabelled")}


def test_unlabelled_texts_go_with_built_in_data_too(tmp_path: Path) -> None:
    held = next(row.text for row in DataStage(Data(train="builtin:reviews-zh")).run(Context(), tmp_path).read("test"))
    (tmp_path / "more.txt").write_text(f"新的文本\n{held}\n", encoding="utf-8")
    section = Data(train="builtin:reviews-zh", unlabelled=str(tmp_path / "more.txt"))
    assert DataStage(section).run(Context(), tmp_path).read("unlabelled") == [Row("新的文本", ())]


def test_unlabelled_texts_that_cannot_be_used_stop_the_build(tmp_path: Path, section: Data) -> None:
    section = section.model_copy(update={"unlabelled": str(tmp_path / "absent.txt")})
    with pytest.raises(RecipeInvalidError, match="1 error"):
        DataStage(section).run(Context(), tmp_path)


def test_unlabelled_texts_that_change_while_they_are_read_are_an_error(tmp_path: Path, section: Data) -> None:
    more = tmp_path / "more.txt"
    more.write_text("新的文本\n", encoding="utf-8")
    splits = load_splits(section.model_copy(update={"unlabelled": str(more)}))
    assert splits.unlabelled is not None and list(splits.unlabelled) == [Row("新的文本", ())]
    more.write_text("另外的\n文本\n", encoding="utf-8")
    with pytest.raises(StageFailedError, match="was changed while it was read"):
        list(splits.unlabelled)
