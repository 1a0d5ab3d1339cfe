"""Recipes: resolved when they are right, every finding at once when they are not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.load import MODEL_FILES, load_recipe
from edgepack.recipe.model import Distill, Recipe
from edgepack_runtime.exit_codes import ExitCode

GOLDEN = Path(__file__).parents[1] / "golden" / "recipes"
EXAMPLES = Path(__file__).parents[3] / "recipes"
TARGETS = ("jetpack6", "linux-x86_64-cpu")
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
    return [f"{finding.line}: {finding.reason}" for finding in caught.value.findings]


def test_the_golden_recipes_were_found() -> None:
    assert len(list(GOLDEN.glob("*.yaml"))) > 15


@pytest.mark.parametrize("name", sorted(file.stem for file in GOLDEN.glob("*.yaml")))
def test_findings_read_as_written_down(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN)
    with pytest.raises(RecipeInvalidError) as caught:
        load_recipe(Path(f"{name}.yaml"), TARGETS)
    assert caught.value.exit_code == ExitCode.RECIPE_INVALID
    found = "".join(f"{finding}\n" for finding in caught.value.findings)
    assert found == Path(f"{name}.txt").read_text(encoding="utf-8")


def test_the_error_says_how_many_and_the_first_reasons() -> None:
    with pytest.raises(RecipeInvalidError, match=r"kinds\.yaml has 14 errors") as caught:
        load_recipe(GOLDEN / "kinds.yaml", TARGETS)
    assert caught.value.why.endswith("; ...")
    with pytest.raises(RecipeInvalidError, match=r"empty\.yaml has 1 error$"):
        load_recipe(GOLDEN / "empty.yaml", TARGETS)


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_lack_nothing_but_the_reader_s_own_files(example: Path) -> None:
    try:
        load_recipe(example, TARGETS)
    except RecipeInvalidError as error:
        for finding in error.findings:
            assert re.search(r"there is no (file|folder) '(data|\./weights)/", finding.reason), finding


def test_defaults_are_filled_in(tmp_path: Path) -> None:
    recipe = load(tmp_path, MINIMAL)
    assert recipe.data.train == "builtin:reviews-zh"
    assert recipe.data.calibration.rows == 256
    assert recipe.quantize.method == "ptq"
    assert recipe.targets == ("linux-x86_64-cpu",)


def test_without_a_teacher_nothing_is_distilled(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).student.distill is None
    taught = load(tmp_path, MINIMAL + "teacher: {model: ernie-3.0-medium-zh}\n")
    assert taught.student.distill == Distill()
    plain = MINIMAL.replace("v2-zh}", "v2-zh, distill: null}") + "teacher: {model: ernie-3.0-medium-zh}\n"
    assert load(tmp_path, plain).student.distill is None


def test_the_design_s_kind_of_recipe_loads(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\n很好\t1\n", encoding="utf-8")
    recipe = load(
        tmp_path,
        "edgepack: 1\nname: hotel-sentiment\nversion: 1.2.0\ntask: text-classification\n"
        "data:\n  train: train.tsv\n  dev: ./dev.tsv\n  test: test.tsv\n  calibration: {from: train, rows: 64}\n"
        "teacher: &t {model: ernie-3.0-medium-zh, epochs: 3, learning_rate: 3e-5}\n"
        "student: {<<: *t, model: {scratch: {layers: 4, hidden: 312, heads: 12}}, max_length: 64}\n"
        "targets: [linux-x86_64-cpu, jetpack6]\n"
        "gates: {accuracy: {min: 0.88}, latency: {p95_ms: 15, threads: 2}, cold_start: {ms: 1500}}\n",
    )
    assert recipe.data.dev == str(tmp_path / "dev.tsv")
    assert recipe.student.epochs == 3
    assert recipe.student.learning_rate == 3e-5
    assert recipe.targets == ("linux-x86_64-cpu", "jetpack6")
    assert recipe.gates.latency is not None
    assert recipe.gates.latency.threads == 2


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


def model_folder(folder: Path, config: str = '{"max_position_embeddings": 512}') -> None:
    folder.mkdir()
    for name in MODEL_FILES:
        (folder / name).write_text(config if name.endswith(".json") else "", encoding="utf-8")


@pytest.mark.parametrize("written", ["./nano", "nano", "../{parent}/nano", "{absolute}"])
def test_a_local_model_folder_becomes_absolute(tmp_path: Path, written: str) -> None:
    model_folder(tmp_path / "nano")
    source = written.format(parent=tmp_path.name, absolute=tmp_path / "nano")
    recipe = load(tmp_path, MINIMAL.replace("ernie-3.0-tiny-nano-v2-zh", source))
    assert isinstance(recipe.student.model, str)
    assert Path(recipe.student.model).is_absolute()
    assert Path(recipe.student.model).samefile(tmp_path / "nano")


def test_a_hub_name_stays_a_name(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL).student.model == "ernie-3.0-tiny-nano-v2-zh"


def test_a_damaged_model_config_is_found(tmp_path: Path) -> None:
    model_folder(tmp_path / "nano", config="{")
    found = refused(tmp_path, MINIMAL.replace("ernie-3.0-tiny-nano-v2-zh", "./nano"))
    assert found == ["5: `student.model`: './nano' holds a config.json that is no JSON object"]


def test_built_in_data_brings_all_splits(tmp_path: Path) -> None:
    found = refused(tmp_path, MINIMAL.replace("reviews-zh}", "reviews-zh, dev: dev.tsv}"))
    assert found == ["4: `data.dev` is set, but built-in data brings its own dev split"]


def test_a_key_that_could_not_be_read_is_reported_once(tmp_path: Path) -> None:
    assert len(refused(tmp_path, MINIMAL.replace("version: 1.2.0", "version: !v 1.2.0"))) == 1


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


KEYS = st.sampled_from([
    "edgepack", "name", "version", "task", "data", "train", "dev", "test", "columns", "text",
    "label", "calibration", "from", "rows", "seed", "teacher", "student", "model", "scratch",
    "layers", "hidden", "heads", "distill", "temperature", "quantize", "method", "observer",
    "targets", "gates", "accuracy", "min", "latency", "p50_ms", "p95_ms", "size", "serve", "epochs",
    "device", "precision", "from_", "str", "FromScratch",
])  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["builtin:reviews-zh", "train.tsv", "./", "..", "/", "gpu:0", "ptq", "1.2.0", "none"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=14,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_recipe_loads_or_is_refused(tmp_path: Path, data: dict[str, object]) -> None:
    """Nothing but a Recipe or findings, each with a reason and a fix."""
    base = {"edgepack": 1, "name": "a", "version": "1.0.0", "data": {"train": "builtin:reviews-zh"}}
    (tmp_path / "recipe.yaml").write_text(json.dumps({**base, **data}), encoding="utf-8")
    try:
        recipe = load_recipe(tmp_path / "recipe.yaml", TARGETS)
    except RecipeInvalidError as error:
        assert error.findings
        assert all(found.reason and found.fix and found.severity == "error" for found in error.findings)
    else:
        assert isinstance(recipe, Recipe)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
def test_any_file_loads_or_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "recipe.yaml").write_bytes(raw)
    with pytest.raises(RecipeInvalidError):
        load_recipe(tmp_path / "recipe.yaml", TARGETS)
