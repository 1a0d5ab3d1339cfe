"""Students that lose tokens of their vocabulary: they answer as before, and all that comes after works with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.conftest import RECIPE, Project, write_rows
from tests.integration.test_build import device
from tests.integration.trainings import CALM, NUMBERS, ONE, PAIRS, SPANS, Heard, classifier_of, data_of
from tests.stage_context import context_of
from tests.stage_lists import begun, known

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, Score, TrimmedArtifact, Usage
from edgepack.errors import RecipeInvalidError
from edgepack.progress import SILENT
from edgepack.recipe.model import Columns, Data
from edgepack.recipe.training import Student, Trimming
from edgepack.stages.data import DataStage
from edgepack.stages.train import StudentStage
from edgepack.stages.vocabulary_trimming import VocabularyTrimmingStage
from edgepack.targets.this_machine import base_python
from edgepack_runtime.inference.tokenizer import read_vocab
from edgepack_runtime.tasks.registry import task_by_name

pytestmark = pytest.mark.integration
FOREIGN = "丁丂七丄丅丆万丈三上下丌不与丏丐丑丒专且丕世丗丘丙业丛东丝丞丟丠両丢丣两严並丧丨"
UNUSED_ROWS = 7  # of the embedding, beyond the lines of the vocabulary


def rows_on_disk(folder: Path, rows: Sequence[Row]) -> DataArtifact:
    """The last rows are those of dev and test; they hold a character that no training text holds."""
    data = data_of(rows, folder)
    folder.mkdir(parents=True)
    unseen = [replace(row, text=f"{row.text}丨") for row in rows[-12:]]
    for split, some in {"train": rows[:-12], "dev": unseen, "test": unseen}.items():
        lines = (json.dumps(row.document(data.text_task.answer_key), ensure_ascii=False) for row in some)
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return replace(data, rows={"train": len(rows) - 12, "dev": 12, "test": 12})


def student_of(folder: Path, rows: Sequence[Row]) -> ModelArtifact:
    """Not trained, with a vocabulary of more than these texts, `$` twice in it, and more rows than lines."""
    made = classifier_of([*rows, Row(FOREIGN, rows[0].label, rows[0].text_pair)], folder, CALM)
    from paddlenlp.transformers import ErnieConfig

    from edgepack.training.models import classifiers
    from edgepack.training.models import tokenizer_files as tokens
    from edgepack.training.models.classifiers import Classifier

    vocabulary = folder / "vocab.txt"
    entries = read_vocab(vocabulary)
    entries = [*entries[:20], "$", *entries[20:], "$"]
    vocabulary.write_text("\n".join(entries), encoding="utf-8")
    config = made.network.config.to_dict() | {"vocab_size": len(entries) + UNUSED_ROWS}
    network = classifiers.build(made.task, ErnieConfig.from_dict(config))
    classifier = Classifier(network, tokens.open_tokenizer(folder), made.task, made.labels, made.max_length)
    classifier.save(folder)
    score = Score(0.5, 0.4, 0.6, 12, 0.95)
    usage = Usage("cpu", "fp32", 1.0, 0.0, 1.0, 1)
    return ModelArtifact(
        folder, made.labels, made.max_length, classifier.parameters, 1, 10, 1.0, score, score, {}, 1, 1, usage, None
    )


def logits_of(model: ModelArtifact, data: DataArtifact, rows: Sequence[Row]) -> Any:
    from edgepack.training.finetune import reopen
    from edgepack.training.models.predict import logits

    classifier = reopen(model, data)
    return logits(classifier, classifier.encode(rows), SILENT, "")


def trimmed(
    folder: Path, rows: Sequence[Row], trimming: Trimming
) -> tuple[ModelArtifact, TrimmedArtifact, DataArtifact]:
    data, student = rows_on_disk(folder / "data", rows), student_of(folder / "student", rows)
    return student, run_trimming(trimming, data, student, folder / "trimmed"), data


def run_trimming(trimming: Trimming, data: DataArtifact, student: ModelArtifact, out: Path) -> TrimmedArtifact:
    out.mkdir()
    rows = DataStage(Data(train="builtin:reviews-zh"))
    trained = StudentStage(Student(model="any"), rows)
    ctx = context_of({rows: data, trained: student}, Heard())
    return VocabularyTrimmingStage(trimming, Columns(), rows, trained).run(ctx, out)


@pytest.mark.parametrize("rows", [ONE, PAIRS, SPANS], ids=["one label", "pairs", "spans"])
def test_training_texts_are_answered_as_before(tmp_path: Path, rows: Sequence[Row]) -> None:
    student, made, data = trimmed(tmp_path, rows, Trimming())
    before, after = (logits_of(model, data, data.read("train")) for model in (student, made))
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    assert made.tokens == len(read_vocab(made.folder / "vocab.txt")) < made.tokens_before - 30
    assert made.tokens_before == len(read_vocab(student.folder / "vocab.txt")) + UNUSED_ROWS
    assert made.unknown_before == 0 < made.unknown  # of the dev rows, what no training text holds
    assert student.parameters - made.parameters == 16 * (made.tokens_before - made.tokens)
    assert (made.steps, made.dev_score_before) == (student.steps, student.dev_score)
    assert json.loads((made.folder / "config.json").read_text(encoding="utf-8"))["vocab_size"] == made.tokens


def test_characters_and_further_texts_stay(tmp_path: Path) -> None:
    student, made, data = trimmed(tmp_path, ONE, Trimming(characters="all"))
    assert set(FOREIGN) <= set(read_vocab(made.folder / "vocab.txt"))
    before, after = (logits_of(model, data, data.read("dev")) for model in (student, made))
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    more = tmp_path / "more.txt"
    held_out = data.read("dev")[0].text
    more.write_text(f"丁丂\n{held_out}\n", encoding="utf-8")  # what dev holds has no say
    _, made, _ = trimmed(tmp_path / "more", ONE, Trimming(texts=str(more)))
    assert set(FOREIGN) & set(read_vocab(made.folder / "vocab.txt")) == {"丁", "丂", "不"}
    more.write_text(f"{held_out}\n", encoding="utf-8")
    with pytest.raises(RecipeInvalidError, match="cannot be used") as caught:
        trimmed(tmp_path / "empty", ONE, Trimming(texts=str(more)))
    assert "in dev or test, too" in caught.value.findings[0].reason


def test_the_padding_keeps_its_row_wherever_it_stands(tmp_path: Path) -> None:
    """In the config of the smaller model, too: attention hides it by its id."""
    from edgepack.training.models import classifiers
    from edgepack.training.models import tokenizer_files as tokens

    student = student_of(tmp_path / "student", ONE)
    whole = classifiers.load(student.folder, student.labels, student.max_length, task_by_name("text-classification"))
    whole.network.config.pad_token_id = 9
    (tmp_path / "trimmed").mkdir()
    smaller = classifiers.with_tokens(whole, student.folder, [0, 1, 2, 3, 4, 7, 9, 11], tmp_path / "trimmed")
    assert smaller.network.config.pad_token_id == 6
    assert smaller.network.ernie.pad_token_id == 6
    words = [one.network.ernie.embeddings.word_embeddings.weight.numpy() for one in (whole, smaller)]
    assert np.array_equal(words[1], words[0][[0, 1, 2, 3, 4, 7, 9, 11]])
    assert read_vocab(tmp_path / "trimmed" / "vocab.txt")[5] == read_vocab(student.folder / "vocab.txt")[7]
    assert tokens.config_of(tmp_path / "trimmed") == tokens.config_of(student.folder)


def test_numbers_have_the_same_error_with_fewer_tokens(tmp_path: Path) -> None:
    """The head of a saved model answers in the unit of the rows: here in hundreds."""
    data, student = rows_on_disk(tmp_path / "data", NUMBERS), student_of(tmp_path / "student", NUMBERS)
    found, rows = run_trimming(Trimming(), data, student, tmp_path / "trimmed"), data.read("test")
    answers = np.array(logits_of(student, data, rows)).reshape(len(rows))
    error = np.abs(answers - [row.label for row in rows]).mean()
    assert found.test_scores["mae"].value == pytest.approx(error, rel=1e-3) and error > 100


SEARCH = """\
linear: off
search:
  over:
    student.vocabulary: [keep, {trim: {min_count: 4}}]
  tolerance_points: 100
"""


@pytest.mark.sweep
def test_a_trimmed_student_goes_all_the_way_to_an_answer(tmp_path: Path, device_environment: dict[str, str]) -> None:
    """Of two candidates that share one training, the one with fewer tokens alone keeps to a size, and is built on."""
    write_rows(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE + SEARCH, encoding="utf-8")
    project = Project(tmp_path)
    both = project.edgepack("build", "tiny.yaml", "--until", "select", "--json")
    assert both.returncode == 0, both.stderr[-4000:]
    assert both.stderr.count("student done in ") == 1
    keep, fewer = json.loads(both.stdout)["selection"]["candidates"]
    assert fewer["onnx_bytes"] < keep["onnx_bytes"]
    most = (keep["onnx_bytes"] + fewer["onnx_bytes"]) / 2 / 2**20
    (tmp_path / "tiny.yaml").write_text(
        (RECIPE + SEARCH).replace("model_mib: 5", f"model_mib: {most}"), encoding="utf-8"
    )
    done = project.edgepack("build", "tiny.yaml", "--until", "bundle", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "train " not in done.stderr
    told = json.loads(done.stdout)
    stages = [
        *("data", "teacher", "student", "quantize", "export"),
        *("vocabulary_trimming", "quantize", "export", "select", "bundle"),
    ]  # fmt: skip
    assert known(one["stage"] for one in told["stages"]) == stages
    assert told["selection"]["chosen"] == "vocabulary={trim: {min_count: 4}}"
    keep, fewer = told["selection"]["candidates"]
    assert fewer["parameters"] < keep["parameters"]
    assert "size.model_mib" in keep["missed"][0]
    assert [row["stage"] for row in told["ledger"]][:4] == ["teacher", "student", "trimmed", "static graph"]
    folders = {one["stage"]: tmp_path / one["folder"] for one in told["stages"]}
    tokens = json.loads((folders["vocabulary_trimming"] / "artifact.json").read_text(encoding="utf-8"))["tokens"]
    for form in ("onnx-float", "onnx-int8"):
        assert len(read_vocab(folders["export"] / form / "vocab.txt")) == tokens
    (bundle,) = folders["bundle"].glob("*.edgepack")
    # One epoch makes no student that an install accepts.
    answered = device(base_python(), bundle, "predict", "房间很干净，丨", env=device_environment)
    assert json.loads(answered.stdout)["label"] in ("正面", "负面"), answered.stderr
    again = project.edgepack("build", "tiny.yaml", "--until", "bundle")
    assert again.returncode == 0, again.stderr[-2000:]
    lines = begun(again.stderr)
    assert known(line.stage for line in lines) == stages
    assert {line.note for line in lines} == {"cached"}
    plain = project.edgepack(
        "build", "tiny.yaml", "--set", "search=null", "--set", "student.vocabulary={trim: {min_count: 4}}",
        "--until", "export", "--json",
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert tmp_path / json.loads(plain.stdout)["stages"][-1]["folder"] == folders["export"]
