"""Stage `combine`: the sum and the cascade that it fits, what it ships, and what ledger and report make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.stage_context import context_of
from tests.unit.conftest import KEEPS, MISSES, combined_of, gained, having
from tests.unit.runtime.tiny_model import write_model_folder
from tests.unit.stages.test_linear import BAD, GOOD, data_of, made

from edgepack.artifacts import CombineArtifact, CombineFit, DataArtifact, Gain, Judged, Row, load, save
from edgepack.gating.on_rows import Judge
from edgepack.messages import render
from edgepack.progress import SILENT
from edgepack.recipe.gates import AccuracyGate, Gates
from edgepack.recipe.model import Data, LinearMode
from edgepack.results import Build
from edgepack.stages import combine
from edgepack.stages.chain import Candidates, Chain
from edgepack.stages.combine import CombineStage, Scored
from edgepack.stages.data import DataStage
from edgepack.stages.export import ExportStage
from edgepack.stages.linear import LinearStage
from edgepack.stages.stage import StageResult
from edgepack_runtime.bundle.model_config import LinearConfig


@pytest.fixture
def data(tmp_path: Path) -> DataArtifact:
    return data_of(tmp_path / "data", GOOD * 10, BAD * 10)


@pytest.fixture
def exported(tmp_path: Path) -> Any:
    write_model_folder(tmp_path / "export" / "onnx-float", labels=("bad", "good"))
    (tmp_path / "export" / "texts.txt").write_text("店很好\n店很差\n" * 10, encoding="utf-8")
    model = SimpleNamespace(folder="onnx-float")
    return SimpleNamespace(folder=tmp_path / "export", shipped_model=model, float_model=model)


def ran(mode: LinearMode, data: DataArtifact, exported: Any, folder: Path, **accuracy: Any) -> CombineArtifact:
    (folder / "combine").mkdir()
    gates = Gates(accuracy=AccuracyGate(**accuracy)) if accuracy else Gates()
    rows = DataStage(Data(train="builtin:reviews-zh"))
    linear, export = LinearStage(rows), cast(ExportStage, "export")
    recipe = SimpleNamespace(quantize=SimpleNamespace(max_drop_points=0.5))
    candidates = Candidates({"": cast(Chain, SimpleNamespace(recipe=recipe, export=export, last=export))}, None)
    ctx = context_of({rows: data, linear: made(data, folder / "linear")})
    ctx = ctx.with_result(export, StageResult("export", exported, "", {}))
    return CombineStage(mode, gates, rows, linear, candidates).run(ctx, folder / "combine")


def scored(encoder: list[float], linear: list[float], right: list[int]) -> Scored:
    """Rows with two labels; logits of the second one, those of the first are their negatives."""
    data = DataArtifact(Path(), ("a", "b"), {"dev": len(right)}, ())
    rows = [Row(str(number), data.labels[label]) for number, label in enumerate(right)]
    both = [np.stack([-np.array(one), np.array(one)], axis=1) for one in (encoder, linear)]
    judge = Judge.of(Gates(), data, rows, None, SILENT)
    return Scored(data, rows, np.array(right)[:, None] == np.arange(2), *both, judge)


def test_every_way_is_scored_and_timed(data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    found = ran("auto", data, exported, tmp_path)
    assert [method.name for method in found.methods] == ["encoder", "ensemble", "cascade", "linear"]
    assert found.method("linear").test_scores["accuracy"].value == 1.0
    assert found.method("encoder").share == 0.0 < found.method("cascade").share < found.method("linear").share == 1.0
    assert all(0 < method.mean_ms < 1000 for method in found.methods)
    assert (
        found.method("linear").weight_bytes + found.method("encoder").weight_bytes
        == found.method("cascade").weight_bytes
    )
    assert found.method("linear").gains["accuracy"].points == 0.0
    gain = found.method("encoder").gains["accuracy"]
    assert gain.low <= gain.points <= gain.high and gain.points <= 0
    save(found)
    assert load(CombineArtifact, found.folder) == found
    assert list(found.folder.iterdir()) == [found.folder / "artifact.json"]


@pytest.mark.parametrize(("mode", "name"), [("baseline", "encoder"), ("ensemble", "ensemble"), ("cascade", "cascade")])
def test_a_named_way_ships(mode: LinearMode, name: str, data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    found = ran(mode, data, exported, tmp_path)
    assert (found.chosen, found.why) == (name, f"the recipe has `linear: {mode}`")
    assert (None if found.config is None else found.config.mode) == {"encoder": None}.get(name, name)


def test_the_fastest_of_the_best_on_dev_ships(built: Build) -> None:
    found = combined_of(built).combined
    assert found is not None
    encoder, ensemble, cascade, linear = found.methods
    assert combine.choose("auto", found.methods)[0] == "cascade"
    slow = replace(cascade, mean_ms=2.0)
    assert combine.choose("auto", (encoder, ensemble, slow, linear))[0] == "ensemble"
    best = replace(encoder, dev_value=0.92)
    assert combine.choose("auto", (best, ensemble, cascade, linear))[0] == "encoder"
    late = replace(ensemble, dev_value=best.dev_value, mean_ms=best.mean_ms / 2)
    assert combine.choose("auto", (best, late, cascade, linear))[0] == "encoder"
    idle = replace(cascade, share=0.0, mean_ms=0.0)
    assert combine.choose("auto", (encoder, ensemble, idle, linear))[0] == "ensemble"
    lucky = replace(cascade, noise_points=1.3)
    assert combine.choose("auto", (encoder, ensemble, lucky, linear))[0] == "ensemble"
    assert combine.choose("auto", (encoder, replace(ensemble, noise_points=1.3), lucky, linear))[0] == "encoder"
    right = replace(linear, dev_value=1.0)
    assert combine.choose("auto", (encoder, ensemble, cascade, right))[0] == "cascade"  # the encoder is not dropped


FAILS = Judged("fail", ("accuracy.min 80 %, limit 90 %",))


@pytest.mark.parametrize(
    ("judged", "chosen"),
    [
        ({}, "cascade"),
        ({"cascade": MISSES}, "ensemble"),
        ({"cascade": FAILS}, "ensemble"),
        ({"cascade": MISSES, "ensemble": FAILS}, "encoder"),
        ({"encoder": MISSES, "cascade": MISSES}, "ensemble"),
        ({"encoder": MISSES, "cascade": MISSES, "ensemble": MISSES}, "cascade"),  # as without gates
        ({"encoder": FAILS, "ensemble": FAILS, "cascade": FAILS}, "cascade"),
        ({"encoder": FAILS, "ensemble": MISSES, "cascade": FAILS}, "ensemble"),
    ],
)
def test_auto_prefers_what_keeps_the_gates_on_dev(built: Build, judged: dict[str, Judged], chosen: str) -> None:
    found = combined_of(built).combined
    assert found is not None
    methods = [replace(method, on_dev=judged.get(method.name, KEEPS)) for method in found.methods]
    name, why = combine.choose("auto", methods)
    assert name == chosen
    assert all(f"{method} " in why for method in judged) and why.count(" on dev: ") == len(judged)
    chinese = render(why, "zh")
    assert not any(method in chinese for method in combine.METHODS)
    names = {"encoder": "编码器", "ensemble": "集成", "cascade": "级联"}
    assert all(f"；{names[method]}在 dev 上" in chinese for method in judged)


def test_a_way_is_judged_by_the_code_of_the_device(data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    """The linear model is always right, so the encoder is below any method that asks it; `min` is above the encoder."""
    found = ran("baseline", data, exported, tmp_path, min=0.9, max_drop_points=0.5)
    encoder, linear = found.method("encoder"), found.method("linear")
    assert encoder.dev_value == 1.0 and linear.on_dev == linear.on_test
    assert {method.on_dev.rank for method in found.methods} == {0}
    judge = Judge.of(
        Gates(accuracy=AccuracyGate(min=0.9, max_drop_points=0.5)),
        data, data.read("dev"), [row.label for row in data.read("dev")], SILENT,
    )  # fmt: skip
    all_good = judge(["good"] * 80)
    assert (all_good.verdict, all_good.rank) == ("fail", 2)
    gates = [text.split()[0] for text in all_good.missed]
    assert gates == ["accuracy.min", "accuracy.max_drop_points"]
    assert [text.split()[0] for text in judge(["good"] * 80, against_float=False).missed] == ["accuracy.min"]
    one_off = judge(["good" if row.label == "bad" and number == 79 else row.label
                     for number, row in enumerate(data.read("dev"))])  # fmt: skip
    assert (one_off.verdict, one_off.rank) == ("inconclusive", 1)  # 1.25 points lost, of 80 rows


def test_a_named_way_ships_whatever_the_gates_and_says_so(data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (data.folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()]
    for row in lines[:20]:
        row["label"] = "bad"  # which no model answers
    (data.folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines), encoding="utf-8")
    found = ran("ensemble", data, exported, tmp_path, min=0.99)
    assert found.chosen == "ensemble"
    assert "ensemble is shown to miss on dev: accuracy.min 75 %, limit 99 %" in found.why


def test_a_cascade_has_the_lowest_limit_that_loses_nothing() -> None:
    """The encoder is right everywhere; the linear model is wrong in its two least sure rows of ten."""
    right = [0, 1] * 5
    signs = np.where(np.array(right), 1.0, -1.0)
    lead = np.arange(10, 0, -1)
    linear = signs * lead * np.where(np.arange(10) < 8, 1, -1) / 2
    dev = scored(list(signs * 4), list(linear), right)
    fit = combine.fitted(dev, 0.0)
    assert fit.encoder_weight > fit.linear_weight
    assert dev.value(dev.cascade(fit)) == 1.0
    assert (dev.lead >= fit.least_lead).sum() == 8
    loses = combine.fitted(dev, 0.1)
    assert (dev.lead >= loses.least_lead).sum() == 9
    assert dev.value(dev.cascade(loses)) == 0.9


def test_auto_does_not_trust_an_equal_score_that_chance_explains() -> None:
    """Of 100 rows the encoder errs in the 4 most sure ones of the linear model, which errs in the 4 next ones."""
    right = [0, 1] * 50
    signs = np.where(np.array(right), 1.0, -1.0)
    lead = np.linspace(10, 1, 100)
    linear = signs * lead * np.where((np.arange(100) >= 4) & (np.arange(100) < 8), -1, 1) / 200  # too small for the sum
    encoder = signs * np.where(np.arange(100) < 4, -4, 4)
    dev = scored(list(encoder), list(linear), right)
    greedy, careful = combine.fitted(dev, 0.0), combine.fitted(dev, 0.0, beyond_noise=True)
    assert (dev.lead >= greedy.least_lead).sum() == 90
    assert dev.value(dev.cascade(greedy)) == dev.value(dev.encoder) == 0.96
    assert dev.noise_points(dev.cascade(greedy)) == pytest.approx(100 * 8**0.5 / 100)
    assert (dev.lead >= careful.least_lead).sum() == 5
    assert dev.value(dev.cascade(careful)) == 0.99  # 3 points ahead, with a standard error of 2.2


@pytest.mark.parametrize(
    ("points", "noise_points", "good"),
    [(0.0, 0.0, True), (-0.2, 0.0, True), (-0.3, 0.0, False), (0.0, 0.3, False), (1.0, 1.2, True)],
)
def test_a_score_is_as_good_where_its_lead_less_one_standard_error_loses_little(
    points: float, noise_points: float, good: bool
) -> None:
    assert combine.as_good(0.9 + points / 100, 0.9, noise_points) == good


def test_the_linear_model_answers_at_most_nine_tenths_alone() -> None:
    right = [0, 1] * 50
    signs = np.where(np.array(right), 1.0, -1.0)
    dev = scored(list(signs), list(signs * np.linspace(1, 2, 100)), right)
    assert (dev.lead >= combine.fitted(dev, 0.0).least_lead).mean() == pytest.approx(combine.MOST_ALONE, abs=0.02)


def test_a_linear_model_that_is_always_wrong_never_answers_alone() -> None:
    right = [0, 1] * 10
    signs = np.where(np.array(right), 1.0, -1.0)
    dev = scored(list(signs), list(-signs * np.linspace(1, 2, 20)), right)
    fit = combine.fitted(dev, 0.0)
    assert not (dev.lead >= fit.least_lead).any()
    assert fit.linear_weight == 0.0


def test_parameters_become_the_configuration_of_the_device() -> None:
    fit = CombineFit(0.8, 0.5, 2.25)
    assert fit.config("encoder") is None
    assert fit.config("ensemble") == LinearConfig("ensemble", 0.8, 0.5)
    assert fit.config("cascade") == LinearConfig("cascade", 0.8, 0.5, 2.25)


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(1.34, 0.21, 2.4, 0.95), "it is better than a linear model by 1.3 points (0.2 to 2.4)"),
        (Gain(-2.0, -3.5, -0.5, 0.95), "it is worse than a linear model by 2.0 points (0.5 to 3.5)"),
        (Gain(0.4, -0.7, 1.5, 0.95), "no evidence that it beats a linear model (difference +0.4 points, -0.7 to +1.5)"),
        (Gain(0.0, 0.0, 0.0, 0.95), "no evidence that it beats a linear model (difference +0.0 points, +0.0 to +0.0)"),
    ],
)
def test_a_gain_is_claimed_only_where_it_is_shown(gain: Gain, text: str) -> None:
    assert gain.over("it", "a linear model") == text


def test_the_linear_model_is_advised_where_it_is_shown_to_lose_little_and_keeps_the_gates(built: Build) -> None:
    found = combined_of(built).combined
    assert found is not None and found.instead() is None  # up to 1.4 points may be lost

    def ships(
        gain: Gain, over_encoder: Gain = found.ships.gains_over_encoder["accuracy"], **methods: Any
    ) -> CombineArtifact:
        chosen = replace(
            found.method("cascade"), gains={"accuracy": gain}, gains_over_encoder={"accuracy": over_encoder}
        )
        others = [replace(found.method(name), **methods.get(name, {})) for name in ("encoder", "linear")]
        return replace(found, methods=(chosen, *others))

    worse, close, better = Gain(-2.0, -3.5, -0.5, 0.95), Gain(0.1, -0.3, 0.5, 0.95), Gain(0.4, 0.1, 0.7, 0.95)
    for gain in (worse, close):
        instead = ships(gain).instead()
        assert instead is not None and instead[0] == "linear"
        assert ships(gain, linear={"on_test": MISSES}).instead() is None
    assert ships(better).instead() is None
    below = Gain(-3.4, -5.6, -1.2, 0.95)
    instead = ships(better, below).instead()
    assert instead is not None and instead[0] == "encoder"
    assert ships(better, below, encoder={"on_test": MISSES}).instead() is None


def test_a_build_gives_one_piece_of_advice_as_a_command_that_loads(built: Build, tmp_path: Path) -> None:
    build = combined_of(built)
    assert build.combined is not None
    cascade = replace(build.combined.method("cascade"), gains=gained(0.1, -0.3, 0.4))
    combined = replace(build.combined, methods=(*build.combined.methods[:2], cascade, build.combined.method("linear")))
    poor = replace(built.teacher, test_score=replace(built.teacher.test_score, value=0.7, low=0.68, high=0.72))
    [warning] = having(build, combine=combined, teacher=poor).warnings("a b.yaml", ["linear=auto", "version=1.0.1"])
    settings = ["version=1.0.1", "linear=only", "gates.accuracy.max_drop_points=null"]
    assert warning.endswith(f": edgepack build 'a b.yaml' --set {' --set '.join(settings)}")
    [warning] = having(build, teacher=poor).warnings("recipe.yaml")
    assert warning.endswith(": edgepack build recipe.yaml --set teacher=null --set student.distill=null")
    near = replace(poor, test_score=replace(poor.test_score, high=0.95))
    assert having(build, teacher=near).warnings("recipe.yaml") == ()


def test_the_ledger_begins_with_the_linear_model_and_its_models_end_with_the_way_that_ships(built: Build) -> None:
    build = combined_of(built)
    assert build.combined is not None
    first, *others, chosen, gated = build.ledger
    assert (first.stage, first.mean_ms, first.model_mib) == ("linear", 0.052, 0.211)
    assert (
        first.note
        == "20000 n-grams; no evidence that the encoder beats a linear model (difference -0.7 points, -2.4 to +1.1)"
    )
    *rows, bundle_alone = built.ledger
    assert others == rows
    assert gated.note.startswith(
        f"{bundle_alone.note}; cascade ships: the fastest of the best on dev beyond noise (encoder 90.0 %"
    )
    assert bundle_alone.note.endswith(": INT8 ships")
    assert build.combined.chosen == "cascade"
    assert (chosen.stage, chosen.score.value, chosen.mean_ms) == ("cascade", 0.907, 0.472)
    assert chosen.note == (
        "the linear model answers 67% alone; "
        "no evidence that the cascade beats a linear model (difference +0.5 points, -0.4 to +1.4); "
        "no evidence that the cascade beats the encoder (difference +1.1 points, -0.1 to +2.4)"
    )
    assert build.ledger_of(build.target_results[0]) == (first, *others, chosen, gated)
