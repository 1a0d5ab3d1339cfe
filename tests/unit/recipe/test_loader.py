"""Recipes: resolved when they are right, every finding at once when they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.golden import assert_golden
from tests.model_folders import write_model

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import Distill, Qat, Trimming
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.schema.gates import Limits

GOLDEN = Path(__file__).parents[1] / "golden" / "recipes"
TARGETS = {"jetpack6", "local"}
# What the golden recipes find in their environment; the third holds a byte that is not UTF-8, as the system gives it.
ENVIRONMENT = {
    "NUMBER": "3", "WORD": "many", "BYTES": "\udcff", "EMPTY": "", "DEVICE": "gpus", "RELEASE_NAME": "V2 final",
}  # fmt: skip
MINIMAL = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
student: {model: ernie-3.0-tiny-nano-v2-zh}
"""


def load(folder: Path, text: str) -> Recipe:
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    return load_recipe(folder / "recipe.yaml", TARGETS)


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, text)
    return [f"{finding.line}: {finding.key}" for finding in caught.value.findings]


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.yaml")))
def test_findings_are_those_of_the_golden_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the settings of NAME.set, one per line, where there is such a file."""
    monkeypatch.chdir(GOLDEN)
    settings = Path(f"{name}.set")
    lines = settings.read_text(encoding="utf-8").splitlines() if settings.exists() else []
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(Path(f"{name}.yaml"), TARGETS, lines, ENVIRONMENT)
    assert caught.value.exit_code == ExitCode.RECIPE_INVALID
    found = "".join(f"{finding}\n" for finding in caught.value.findings)
    found = found.replace(f"{GOLDEN}/", "").replace(str(GOLDEN), ".")  # paths are absolute
    assert_golden(found, Path(f"{name}.txt"))


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("trian.tsv", "did you mean `train.tsv`?"),
        ("train.csv", "did you mean `train.tsv`?"),
        ("nope.tsv", "give a path relative to the recipe's folder, or an absolute one"),
    ],
)
def test_a_file_is_suggested_by_its_name_and_not_by_its_suffix(tmp_path: Path, written: str, fix: str) -> None:
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n", encoding="utf-8")
    data = f"{{train: {written}, dev: dev.tsv, test: test.tsv}}"
    with pytest.raises(RecipeInvalidError) as caught:
        load(tmp_path, MINIMAL.replace("{train: builtin:reviews-zh}", data))
    assert [finding.fix for finding in caught.value.findings] == [fix]


def test_the_error_counts_its_findings_and_quotes_the_first() -> None:
    with pytest.raises(RecipeInvalidError, match=r"kinds\.yaml has 14 errors") as caught:
        load_recipe(GOLDEN / "kinds.yaml", TARGETS)
    assert caught.value.why.endswith("; ...")
    with pytest.raises(RecipeInvalidError, match=r"empty\.yaml has 1 error\n"):
        load_recipe(GOLDEN / "empty.yaml", TARGETS)


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    recipe = load(tmp_path, MINIMAL)
    assert recipe.data.train == "builtin:reviews-zh"
    assert recipe.student.model == "ernie-3.0-tiny-nano-v2-zh"
    assert recipe.data.calibration.rows == 256
    assert recipe.quantize.method == "ptq"
    assert recipe.targets == ("local",)


def test_without_a_teacher_nothing_is_distilled(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).student.distill is None
    from_teacher = MINIMAL.replace("ernie-3.0-tiny-nano-v2-zh", "{from: teacher, layers: 2}")
    assert refused(tmp_path, from_teacher) == ["5: student.model"]
    taught = load(tmp_path, MINIMAL + "teacher: {model: ernie-3.0-medium-zh}\n")
    assert taught.student.distill == Distill()
    plain = MINIMAL.replace("v2-zh}", "v2-zh, distill: null}") + "teacher: {model: ernie-3.0-medium-zh}\n"
    assert load(tmp_path, plain).student.distill is None


def test_a_recipe_of_all_sections_loads(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n很好\t1\n", encoding="utf-8")
    recipe = load(
        tmp_path,
        "edgepack: 1\nname: hotel-sentiment\nversion: 1.2.0\ntask: text-classification\n"
        "data:\n  train: train.tsv\n  dev: ./dev.tsv\n  test: test.tsv\n  calibration: {from: train, rows: 64}\n"
        "teacher: &t {model: ernie-3.0-medium-zh, epochs: 3, learning_rate: 3e-5}\n"
        "student: {<<: *t, model: {scratch: {layers: 4, hidden: 312, heads: 12}}, max_length: 64}\n"
        "targets: [local, jetpack6]\n"
        "gates: {accuracy: {min: 0.88}, latency: {p95_ms: 15, threads: 2}, cold_start: {ms: 1500}}\n",
    )
    assert recipe.data.dev == str(tmp_path / "dev.tsv")
    assert recipe.student.epochs == 3
    assert recipe.student.learning_rate == 3e-5
    assert recipe.targets == ("local", "jetpack6")
    assert recipe.gates.latency is not None
    assert recipe.gates.latency.threads == 2


@pytest.mark.parametrize(
    "gates",
    [
        "{}",
        "{latency: {}}",
        "{accuracy: {min: 0.8, confidence: 0.999}}",
        "{accuracy: {min: 0.8, confidence: 0.501}}",
        "{latency: {p95_ms: 15, p99_ms: 20, by_length: [{max_tokens: 32, p95_ms: 3}, {max_tokens: 64, p99_ms: 9}]}}",
        "{latency: {sustained: {seconds: 60, max_slowdown_percent: 15}}, memory: {peak_rss_mib: 250}}",
    ],
)
def test_a_device_understands_every_gate_of_a_recipe(tmp_path: Path, gates: str) -> None:
    recipe = load(tmp_path, MINIMAL + f"gates: {gates}\n")
    asked = recipe.gates.model_dump(mode="json")  # as a bundle carries them
    limits = Limits.parse(json.loads(json.dumps(asked)))
    latency = recipe.gates.latency
    assert limits.accuracy.confidence == (recipe.gates.accuracy.confidence if recipe.gates.accuracy else 0.95)
    assert len(limits.latency.by_length) == (len(latency.by_length) if latency else 0)
    assert (limits.latency.sustained is None) == (latency is None or latency.sustained is None)


@pytest.mark.parametrize("confidence", ["0.9991", "0.5"])
def test_a_confidence_that_tails_cannot_show_is_refused(tmp_path: Path, confidence: str) -> None:
    found = refused(tmp_path, MINIMAL + f"gates: {{accuracy: {{min: 0.8, confidence: {confidence}}}}}\n")
    assert found == ["6: gates.accuracy.confidence"]


def test_paths_start_at_the_recipe_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.csv").write_text("text,label\n", encoding="utf-8")
    text = MINIMAL.replace("builtin:reviews-zh", "../train.csv, dev: ../dev.csv, test: ../test.csv")
    (tmp_path / "recipes" / "recipe.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(Path("recipes/recipe.yaml"), TARGETS)
    assert recipe.data.test is not None
    assert Path(recipe.data.test).is_absolute()
    assert Path(recipe.data.test).samefile(tmp_path / "test.csv")


@pytest.mark.parametrize("written", ["./nano", "nano", "../{parent}/nano", "{absolute}"])
def test_a_local_model_folder_becomes_absolute(tmp_path: Path, written: str) -> None:
    write_model(tmp_path / "nano")
    source = written.format(parent=tmp_path.name, absolute=tmp_path / "nano")
    recipe = load(tmp_path, MINIMAL.replace("ernie-3.0-tiny-nano-v2-zh", source))
    assert isinstance(recipe.student.model, str)
    assert Path(recipe.student.model).is_absolute()
    assert Path(recipe.student.model).samefile(tmp_path / "nano")


@pytest.mark.parametrize("name", ["absent.yaml", ".", "nul\0.yaml"])
def test_a_file_that_is_not_there_is_a_finding(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(tmp_path / name, TARGETS)
    assert caught.value.findings[0].line is None


@pytest.mark.parametrize("value", ["a\0b", "x" * 5000, "./" + "x" * 5000, "~", "''", "' '"])
def test_odd_names_of_files_and_models_are_findings(tmp_path: Path, value: str) -> None:
    quoted = json.dumps(value) if "\0" in value else value
    text = MINIMAL.replace("builtin:reviews-zh", f"{quoted}, dev: {quoted}, test: {quoted}")
    assert refused(tmp_path, text.replace("ernie-3.0-tiny-nano-v2-zh", quoted))


def test_a_name_that_only_the_hub_knows_is_left_to_it(tmp_path: Path) -> None:
    recipe = load(tmp_path, MINIMAL.replace("ernie-3.0-tiny-nano-v2-zh", "someone/ernie"))
    assert recipe.student.model == "someone/ernie"


def test_a_folder_may_have_the_name_of_a_preset(tmp_path: Path) -> None:
    write_model(tmp_path / "ernie-3.0-tiny-nano-v2-zh", config='{"max_position_embeddings": 64}')
    assert refused(tmp_path, MINIMAL) == ["5: student.max_length"]  # the default of 128 counts, too
    assert load(tmp_path, MINIMAL.replace("v2-zh", "v2-zh, max_length: 64")).student.max_length == 64


def test_a_folder_nobody_may_read_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    text = MINIMAL.replace("builtin:reviews-zh", "train.tsv, dev: dev.tsv, test: test.tsv")
    assert len(refused(tmp_path, text)) == 3


@pytest.mark.parametrize(
    ("lines", "wanted", "given"),
    [
        ("", {"text": "text", "label": "label"}, set()),
        ("task: text-pair-classification", {"text": "text", "text_pair": "text_pair", "label": "label"}, set()),
        ("task: token-classification", {"text": "text", "spans": "spans"}, set()),
        (
            "task: token-classification\n  columns: {tokens: words, tags: ner}",
            {"tokens": "words", "tags": "ner"},
            {"tokens", "tags"},
        ),
        (
            "task: text-pair-classification\n  columns: {text_pair: b, labels: topics}",
            {"text": "text", "text_pair": "b", "labels": "topics"},
            {"text_pair", "labels"},
        ),
    ],
)
def test_the_task_sets_the_columns_that_are_read(
    tmp_path: Path, lines: str, wanted: dict[str, str], given: set[str]
) -> None:
    task, _, columns = lines.partition("\n")
    files = {name: f"{name}.jsonl" for name in ("train", "dev", "test")}
    for number, file in enumerate(files.values()):
        (tmp_path / file).write_text(str(number), encoding="utf-8")
    data = "\n".join(f"  {name}: {file}" for name, file in files.items())
    recipe = load(
        tmp_path,
        f"edgepack: 1\nname: a\nversion: 1.0.0\n{task}\ndata:\n{data}\n{columns}\nstudent: {{model: ernie-1.0}}\n",
    )
    assert recipe.data.columns.wanted == wanted
    assert recipe.data.columns.task == recipe.task
    assert recipe.data.columns.model_fields_set == given


def test_unlabelled_texts_are_found_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("x", encoding="utf-8")
    taught = MINIMAL.replace("zh}\nstudent", "zh, unlabelled: more.txt}\nteacher: {model: ernie-1.0}\nstudent")
    assert load(tmp_path, taught).data.unlabelled == str(tmp_path / "more.txt")


@pytest.mark.parametrize(
    ("task", "columns", "gate", "metric"),
    [
        ("text-classification", "{}", "{min: 0.5}", "accuracy"),
        ("text-classification", "{labels: topics}", "{min: 0.5}", "micro_f1"),
        ("token-classification", "{}", "{min: 0.5}", "entity_f1"),
        ("token-classification", "{}", "{min: 0.5, metric: accuracy}", "accuracy"),
    ],
)
def test_a_gate_measures_what_its_task_is_compared_by(
    tmp_path: Path, task: str, columns: str, gate: str, metric: str
) -> None:
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.jsonl").touch()
    data = f"{{train: train.jsonl, dev: dev.jsonl, test: test.jsonl, columns: {columns}}}"
    text = MINIMAL.replace("{train: builtin:reviews-zh}", data) + f"task: {task}\ngates: {{accuracy: {gate}}}\n"
    accuracy = load(tmp_path, text).gates.accuracy
    assert accuracy is not None
    assert accuracy.metric == metric


def test_a_vocabulary_is_kept_unless_it_is_to_be_trimmed(tmp_path: Path) -> None:
    (tmp_path / "field.txt").write_text("a text\n", encoding="utf-8")

    def trimming(written: str) -> Trimming | None:
        return load(tmp_path, MINIMAL.replace("nano-v2-zh}", f"nano-v2-zh, vocabulary: {written}}}")).student.trimming

    assert load(tmp_path, MINIMAL).student.trimming is trimming("keep") is None
    assert trimming("trim") == trimming("{trim: {}}") == Trimming()
    assert trimming("{trim: {characters: all}}") == Trimming(characters="all")
    assert trimming("{trim: {texts: field.txt}}") == Trimming(texts=str(tmp_path / "field.txt"))


def test_a_quantized_training_is_resolved_where_it_is_asked_for(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).quantize.qat is None
    assert load(tmp_path, f"{MINIMAL}quantize: {{method: qat}}\n").quantize.qat == Qat()
    asked = load(tmp_path, f"{MINIMAL}quantize: {{method: qat, qat: {{quanter: lsq}}}}\n")
    assert asked.quantize.qat == Qat(quanter="lsq")

    for method in ("", "method: ptq, ", "method: auto, "):
        assert refused(tmp_path, f"{MINIMAL}quantize: {{{method}qat: {{epochs: 2}}}}\n") == ["6: quantize.qat"]


@pytest.mark.parametrize("method", ["none", "fp16"])
def test_weights_of_7_bits_are_refused_where_no_candidate_is_int8(tmp_path: Path, method: str) -> None:
    text = f"{MINIMAL}quantize: {{method: {method}, reduced_range: true}}\n"
    assert refused(tmp_path, text) == ["6: quantize.reduced_range"]
    assert not load(tmp_path, text.replace("true", "false")).quantize.reduced_range
    text = f"{MINIMAL}quantize: {{reduced_range: true}}\nsearch: {{over: {{quantize.method: [none, ptq]}}}}\n"
    assert all(one.recipe.quantize.reduced_range for one in load(tmp_path, text).candidates)


@pytest.mark.parametrize("mode", ["ensemble", "cascade", "only"])
def test_a_linear_model_is_refused_where_there_is_none(tmp_path: Path, mode: str) -> None:
    text = f"{MINIMAL}linear: {mode}\n"
    assert load(tmp_path, text).linear == mode
    assert "6: linear" in refused(tmp_path, f"{text}task: token-classification\n")


def test_no_cascade_is_sure_of_a_number(tmp_path: Path) -> None:
    text = MINIMAL.replace("train: builtin:reviews-zh", "train: a.tsv, dev: a.tsv, test: a.tsv")
    assert "6: linear" in refused(tmp_path, f"{text}linear: cascade\ntask: text-regression\n")
    assert "6: linear" not in refused(tmp_path, f"{text}linear: ensemble\ntask: text-regression\n")


def test_tokens_have_no_linear_model_and_need_no_key(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).linear == "auto" and load(tmp_path, MINIMAL).has_linear
    assert not load(tmp_path, f"{MINIMAL}linear: off\n").has_linear
    assert not load(tmp_path, MINIMAL).model_copy(update={"task": "token-classification"}).has_linear
