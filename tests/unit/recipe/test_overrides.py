"""`--set`: what it puts into a recipe, and that it wins over the file, which wins over the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.overrides import apply
from edgepack.recipe.yaml import MAX_BYTES, Document, parse

FILE = Path("recipe.yaml")
TARGETS = {"local"}
TEXT = b"""\
name: hotel
teacher:
  model: ernie-1.0
  epochs: 3
student: &s {model: {scratch: {layers: 4}}, distill: null}
copy: *s
targets: [a, b]
"""


def document() -> Document:
    parsed, findings = parse(TEXT, FILE)
    assert findings == []
    assert parsed is not None
    return parsed


def put(*settings: str) -> Document:
    made, findings = apply(document(), settings)
    assert findings == []
    return made


def refused(setting: str) -> Finding:
    before = document()
    made, (finding,) = apply(before, [setting])
    assert made.data == before.data
    assert finding.line is None
    return finding


@pytest.mark.parametrize(
    ("setting", "path", "expected"),
    [
        ("teacher.epochs=5", "teacher.epochs", 5),
        ("teacher.epochs=1.5", "teacher.epochs", 1.5),
        ("teacher.epochs=3e-5", "teacher.epochs", 3e-5),
        ("teacher.epochs='5'", "teacher.epochs", "5"),
        ("teacher.epochs=", "teacher.epochs", None),
        ("teacher.epochs=a=b", "teacher.epochs", "a=b"),
        ("teacher=null", "teacher", None),
        ("teacher={model: ernie-1.0}", "teacher", {"model": "ernie-1.0"}),
        ("targets=[c, 1]", "targets", ["c", 1]),
        ("targets=[]", "targets", []),
        ("student.model.scratch.layers=2", "student.model.scratch", {"layers": 2}),
        ("student.model.scratch.heads=2", "student.model.scratch", {"layers": 4, "heads": 2}),
        ("student.distill.temperature=3", "student.distill", {"temperature": 3}),
        ("gates.accuracy.min=0.9", "gates", {"accuracy": {"min": 0.9}}),
        ("name=${HOME} $X $$", "name", "${HOME} $X $$"),
        ("name=酒店 # a comment", "name", "酒店"),
    ],
)
def test_a_setting_puts_a_value_at_its_path(setting: str, path: str, expected: object) -> None:
    found = put(setting).get(*path.split("."))
    assert found == expected
    assert type(found) is type(expected)


def test_what_is_not_set_stays_and_the_later_setting_counts() -> None:
    before = document()
    made = put("teacher.epochs=5", "student.model.scratch.layers=2")
    assert before.get("teacher", "epochs") == 3  # the document that was given is not changed
    assert made.get("teacher", "model") == "ernie-1.0"
    assert made.get("copy", "model", "scratch", "layers") == 4
    assert made.places[("teacher", "model")].line == 3
    assert put("teacher.epochs=5", "teacher.epochs=7").get("teacher", "epochs") == 7
    assert put("teacher=null", "teacher.epochs=7").get("teacher") == {"epochs": 7}
    assert put("teacher.epochs=7", "teacher=null").get("teacher") is None


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("targets.x.y=c", "`targets` is a list"),
        ("teacher.model.scratch.layers=3", "`teacher.model` is a single value"),
        ("name=- a", "a list or section needs brackets here"),
        ("name=a\n---\nb", "this is not YAML"),
        ("name=a\x07", "character U+0007 is not allowed in YAML"),
        ("name=" + "[" * 99 + "]" * 99, "it is nested too deeply"),
        ("a\udcff=1", "the key holds bytes that are not UTF-8"),
        ("name=a\udcff", "character U+DCFF is not allowed in YAML"),
        ("name=" + "x" * MAX_BYTES, "this setting has"),
    ],
    ids=lambda text: text[:20].encode("ascii", "replace").decode(),
)
def test_what_cannot_be_put_in_is_a_finding(setting: str, reason: str) -> None:
    """Beside what the golden recipes set-*.yaml show."""
    finding = refused(setting)
    assert finding.reason.startswith(reason)
    assert finding.fix


def test_findings_name_the_setting_on_one_line() -> None:
    assert refused("teacher.epochs").place == "--set teacher.epochs"
    assert refused("a\nb\udcff").place == "--set a\\nb\\udcff"
    assert refused("name=[" + "x" * 200).place == "--set name=[" + "x" * 74 + "..."


def test_the_place_of_what_stands_below_a_setting() -> None:
    made = put("gates.accuracy={min: 2}", "data.seed=1")
    assert made.error(("gates", "accuracy", "min"), "", "").place == "--set gates.accuracy={min: 2}"
    assert made.error(("gates", "latency"), "", "").place == "--set gates.accuracy={min: 2}"
    assert made.error(("data", "train"), "", "").place == "--set data.seed=1"
    assert made.error(("teacher", "model"), "", "").place == "recipe.yaml:3:3"
    assert made.error(("version",), "", "").place == "recipe.yaml:1:1"


RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data:
  train: builtin:reviews-zh
  seed: ${SEED}
teacher:
  model: ernie-3.0-medium-zh
  seed: ${SEED}
student: {model: ernie-3.0-tiny-nano-v2-zh}
"""


def test_defaults_then_the_file_then_the_settings(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = load_recipe(tmp_path / "r.yaml", TARGETS, ["teacher.seed=7"], {"SEED": "5"})
    assert recipe.teacher is not None
    assert (recipe.student.seed, recipe.data.seed, recipe.teacher.seed) == (0, 5, 7)


def test_a_variable_in_a_replaced_value_need_not_be_set(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    recipe = load_recipe(tmp_path / "r.yaml", TARGETS, ["teacher.seed=7", "data={train: 'builtin:reviews-zh'}"], {})
    assert recipe.teacher is not None
    assert recipe.teacher.seed == 7
    with pytest.raises(RecipeInvalidError, match="has 1 error") as caught:
        load_recipe(tmp_path / "r.yaml", TARGETS, ["teacher.seed=7"], {})
    assert [finding.line for finding in caught.value.findings] == [6]


def test_the_environment_of_the_process_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.setenv("SEED", "11")
    assert load_recipe(tmp_path / "r.yaml", TARGETS).data.seed == 11
    monkeypatch.delenv("SEED")
    with pytest.raises(RecipeInvalidError, match="has 2 errors"):
        load_recipe(tmp_path / "r.yaml", TARGETS)
