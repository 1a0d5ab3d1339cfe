"""Whatever the recipe, its bytes, the settings or the environment: a Recipe, or findings with a reason and a fix."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Recipe

TARGETS = {"jetpack6", "local"}
BASE = {"edgepack": 1, "name": "a", "version": "1.0.0", "data": {"train": "builtin:reviews-zh"}}
BASE_TEXT = "edgepack: 1\nname: a\nversion: 1.0.0\ndata: {train: builtin:reviews-zh}\nstudent: {model: ernie-1.0}\n"

KEYS = st.sampled_from([
    "edgepack", "name", "version", "task", "data", "train", "dev", "test", "columns", "text",
    "label", "calibration", "from", "rows", "seed", "teacher", "student", "model", "scratch",
    "layers", "hidden", "heads", "distill", "temperature", "quantize", "method", "observer",
    "targets", "gates", "accuracy", "min", "latency", "p50_ms", "p95_ms", "size", "serve", "epochs",
    "device", "precision", "from_", "str", "FromScratch", "search", "over", "student.model", "student.distill.hidden",
    "tolerance_points", "max_candidates",
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


SUPPRESSED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(
    folder: Path, content: bytes, sets: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Recipe | None:
    """The recipe, or None when it was refused as it should be: nothing but findings, each of which can be printed."""
    (folder / "recipe.yaml").write_bytes(content)
    try:
        return load_recipe(folder / "recipe.yaml", TARGETS, sets, environment or {})
    except RecipeInvalidError as error:
        assert error.findings
        for found in error.findings:
            assert found.reason and found.fix and found.severity == "error"
            assert found.line is None or found.setting is None
            if found.setting is not None:
                assert found.setting.isprintable()
                found.setting.encode()
        return None


@SUPPRESSED
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_recipe_loads_or_is_refused(tmp_path: Path, data: dict[str, object]) -> None:
    outcome(tmp_path, json.dumps({**BASE, **data}).encode())


@SUPPRESSED
@given(st.binary(max_size=200))
def test_any_file_is_refused(tmp_path: Path, raw: bytes) -> None:
    assert outcome(tmp_path, raw) is None


SCALARS = st.text(alphabet=" \t\n:-?{}[],&*#!|>'\"%@`<=~0123456789.eEn$oya\u9152\uff1a\\u\ufeff\x85\u2028", max_size=60)
NAMES = st.sampled_from(["A", "B_1", "HOME", "1", "", "a.b"])
REFERENCES = st.lists(
    NAMES.map("${{{}}}".format)
    | st.builds("${{{}:-{}}}".format, NAMES, SCALARS)
    | st.sampled_from(["$", "$$", "${", "$A", "}", ":-"])
    | SCALARS,
    max_size=6,
).map("".join)
VARIABLES = st.dictionaries(NAMES, SCALARS | st.text(st.characters(codec=None), max_size=8), max_size=4)


@SUPPRESSED
@given(REFERENCES, VARIABLES)
def test_any_environment_loads_or_is_refused(tmp_path: Path, text: str, environment: dict[str, str]) -> None:
    folded = text.replace("\n", "\n  ")
    outcome(tmp_path, f"{BASE_TEXT}quantize:\n  method: {folded}\n".encode(), environment=environment)
    outcome(
        tmp_path, (BASE_TEXT + json.dumps({"targets": [text]}).strip("{}") + "\n").encode(), environment=environment
    )


CHOICES = st.dictionaries(
    st.sampled_from(["student.model", "student.epochs", "student.distill", "student.distill.hidden", "student", "a.b"])
    | KEYS,
    st.lists(VALUES | st.sampled_from(["ernie-1.0", {"from": "teacher", "layers": 2}, 1, 2.5]), max_size=3) | VALUES,
    max_size=4,
)


@SUPPRESSED
@given(CHOICES, st.sampled_from([{}, {"max_candidates": 4}, {"tolerance_points": 3}, {"max_candidates": "x"}]))
def test_any_search_loads_or_is_refused(tmp_path: Path, over: dict[str, object], more: dict[str, object]) -> None:
    student = {"model": "ernie-1.0"}
    recipe = outcome(tmp_path, json.dumps({**BASE, "student": student, "search": {"over": over, **more}}).encode())
    if recipe is not None:
        assert len({candidate.name for candidate in recipe.candidates}) == len(recipe.candidates) > 0


PATHS = st.lists(KEYS | SCALARS, max_size=5).map(".".join)
SETTINGS = (
    st.builds("{}={}".format, PATHS, SCALARS | VALUES.map(json.dumps)) | SCALARS | st.text(st.characters(codec=None))
)


@SUPPRESSED
@given(st.lists(SETTINGS, max_size=4))
def test_any_settings_load_or_are_refused(tmp_path: Path, sets: list[str]) -> None:
    outcome(tmp_path, BASE_TEXT.encode(), sets)


@SUPPRESSED
@given(
    st.lists(st.tuples(st.sampled_from(["student.epochs", "student.seed", "data.seed"]), st.integers(1, 9)), max_size=5)
)
def test_the_last_setting_counts(tmp_path: Path, sets: list[tuple[str, int]]) -> None:
    recipe = outcome(tmp_path, BASE_TEXT.encode(), [f"{key}={value}" for key, value in sets])
    assert recipe is not None
    last = {"student.epochs": None, "student.seed": 0, "data.seed": 0, **dict(sets)}
    assert [recipe.student.epochs, recipe.student.seed, recipe.data.seed] == list(last.values())
