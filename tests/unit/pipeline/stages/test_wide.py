"""Stage `wide`: the sum and the cascade that it fits, what it ships, and what ledger and report make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.conftest import wide_of
from tests.unit.pipeline.stages.test_linear import BAD, GOOD, data_of, made
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack.artifacts import DataArtifact, Gain, Row, WideArtifact, WideFit, load, save
from edgepack.pipeline.stages import wide
from edgepack.pipeline.stages.wide import Scored
from edgepack.progress import SILENT
from edgepack.recipe.model import WideMode
from edgepack.results import Build
from edgepack_runtime.bundle.model_config import WideConfig


@pytest.fixture
def data(tmp_path: Path) -> DataArtifact:
    return data_of(tmp_path / "data", GOOD * 10, BAD * 10)


@pytest.fixture
def exported(tmp_path: Path) -> Any:
    write_model_folder(tmp_path / "export" / "onnx-float", labels=("bad", "good"))
    (tmp_path / "export" / "texts.txt").write_text("店很好\n店很差\n" * 10, encoding="utf-8")
    return SimpleNamespace(folder=tmp_path / "export", shipped_model=SimpleNamespace(folder="onnx-float"))


def ran(mode: WideMode, data: DataArtifact, exported: Any, folder: Path) -> WideArtifact:
    (folder / "wide").mkdir()
    return wide.run(mode, 0.5, data, made(data, folder / "linear"), exported, folder / "wide", SILENT)


def scored(encoder: list[float], linear: list[float], right: list[int]) -> Scored:
    """Rows with two labels; logits of the second one, those of the first are their negatives."""
    data = DataArtifact(Path(), ("a", "b"), {"dev": len(right)}, ())
    rows = [Row(str(number), data.labels[label]) for number, label in enumerate(right)]
    both = [np.stack([-np.array(one), np.array(one)], axis=1) for one in (encoder, linear)]
    return Scored(data, rows, np.array(right)[:, None] == np.arange(2), *both)


def test_every_way_is_scored_and_timed(data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    found = ran("auto", data, exported, tmp_path)
    assert [way.name for way in found.ways] == ["encoder", "ensemble", "cascade", "linear"]
    assert found.way("linear").test_scores["accuracy"].value == 1.0
    assert found.way("encoder").share == 0.0 < found.way("cascade").share < found.way("linear").share == 1.0
    assert all(0 < way.mean_ms < 1000 for way in found.ways)
    assert found.way("linear").weight_bytes + found.way("encoder").weight_bytes == found.way("cascade").weight_bytes
    assert found.way("linear").gains["accuracy"].points == 0.0
    gain = found.way("encoder").gains["accuracy"]
    assert gain.low <= gain.points <= gain.high and gain.points <= 0
    save(found)
    assert load(WideArtifact, found.folder) == found
    assert list(found.folder.iterdir()) == [found.folder / "artifact.json"]


@pytest.mark.parametrize(
    ("mode", "name"), [("baseline", "encoder"), ("ensemble", "ensemble"), ("cascade", "cascade"), ("only", "linear")]
)
def test_a_named_way_ships(mode: WideMode, name: str, data: DataArtifact, exported: Any, tmp_path: Path) -> None:
    found = ran(mode, data, exported, tmp_path)
    assert (found.chosen, found.why) == (name, f"the recipe has `wide: {mode}`")
    assert (None if found.config is None else found.config.mode) == {"encoder": None, "linear": "only"}.get(name, name)


def test_the_fastest_of_the_best_on_dev_ships(built: Build) -> None:
    found = wide_of(built).wide
    assert found is not None
    encoder, ensemble, cascade, linear = found.ways
    assert wide.choose("auto", found.ways)[0] == "cascade"
    slow = replace(cascade, mean_ms=2.0)
    assert wide.choose("auto", (encoder, ensemble, slow, linear))[0] == "ensemble"
    best = replace(encoder, dev_value=0.92)
    assert wide.choose("auto", (best, ensemble, cascade, linear))[0] == "encoder"
    late = replace(ensemble, dev_value=best.dev_value, mean_ms=best.mean_ms / 2)
    assert wide.choose("auto", (best, late, cascade, linear))[0] == "encoder"
    idle = replace(cascade, share=0.0, mean_ms=0.0)
    assert wide.choose("auto", (encoder, ensemble, idle, linear))[0] == "ensemble"
    lucky = replace(cascade, noise_points=1.3)
    assert wide.choose("auto", (encoder, ensemble, lucky, linear))[0] == "ensemble"
    assert wide.choose("auto", (encoder, replace(ensemble, noise_points=1.3), lucky, linear))[0] == "encoder"
    right = replace(linear, dev_value=1.0)
    assert wide.choose("auto", (encoder, ensemble, cascade, right))[0] == "cascade"  # the encoder is not dropped


def test_a_cascade_has_the_lowest_limit_that_loses_nothing() -> None:
    """The encoder is right everywhere; the linear model is wrong in its two least sure rows of ten."""
    right = [0, 1] * 5
    signs = np.where(np.array(right), 1.0, -1.0)
    lead = np.arange(10, 0, -1)
    linear = signs * lead * np.where(np.arange(10) < 8, 1, -1) / 2
    dev = scored(list(signs * 4), list(linear), right)
    fit = wide.fitted(dev, 0.0)
    assert fit.encoder_weight > fit.linear_weight
    assert dev.value(dev.cascade(fit)) == 1.0
    assert (dev.lead >= fit.least_lead).sum() == 8
    loses = wide.fitted(dev, 0.1)
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
    greedy, careful = wide.fitted(dev, 0.0), wide.fitted(dev, 0.0, beyond_noise=True)
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
    assert wide.as_good(0.9 + points / 100, 0.9, noise_points) == good


def test_the_linear_model_answers_at_most_nine_tenths_alone() -> None:
    right = [0, 1] * 50
    signs = np.where(np.array(right), 1.0, -1.0)
    dev = scored(list(signs), list(signs * np.linspace(1, 2, 100)), right)
    assert (dev.lead >= wide.fitted(dev, 0.0).least_lead).mean() == pytest.approx(wide.MOST_ALONE, abs=0.02)


def test_a_linear_model_that_is_always_wrong_never_answers_alone() -> None:
    right = [0, 1] * 10
    signs = np.where(np.array(right), 1.0, -1.0)
    dev = scored(list(signs), list(-signs * np.linspace(1, 2, 20)), right)
    fit = wide.fitted(dev, 0.0)
    assert not (dev.lead >= fit.least_lead).any()
    assert fit.linear_weight == 0.0


def test_parameters_become_the_configuration_of_the_device() -> None:
    fit = WideFit(0.8, 0.5, 2.25)
    assert fit.config("encoder") is None
    assert fit.config("linear") == WideConfig("only")
    assert fit.config("ensemble") == WideConfig("ensemble", 0.8, 0.5)
    assert fit.config("cascade") == WideConfig("cascade", 0.8, 0.5, 2.25)


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (Gain(1.34, 0.21, 2.4, 0.95), "is better than a linear model by 1.3 points (0.2 to 2.4)"),
        (Gain(-2.0, -3.5, -0.5, 0.95), "is worse than a linear model by 2.0 points (0.5 to 3.5)"),
        (Gain(0.4, -0.7, 1.5, 0.95), "is not shown to be better than a linear model: +0.4 points (-0.7 to +1.5)"),
        (Gain(0.0, 0.0, 0.0, 0.95), "is not shown to be better than a linear model: +0.0 points (+0.0 to +0.0)"),
    ],
)
def test_a_gain_is_claimed_only_where_it_is_shown(gain: Gain, text: str) -> None:
    assert gain.over("a linear model") == text


def test_the_linear_model_alone_is_advised_where_what_ships_is_not_shown_to_be_better(built: Build) -> None:
    found = wide_of(built).wide
    assert found is not None
    assert found.advice == (
        "the cascade is not shown to be better than the linear model alone: +0.5 points (-0.4 to +1.4); `wide: only` "
        "would be 9.1 x as fast on average, without ONNX Runtime, 0.21 MiB of weights in place of 11.1"
    )
    better = replace(found.way("cascade"), gains={"accuracy": Gain(1.34, 0.21, 2.4, 0.95)})
    assert replace(found, ways=(better, found.way("linear"))).advice == ""
    worse = replace(better, gains_over_encoder={"accuracy": Gain(-3.4, -5.6, -1.2, 0.95)})
    assert replace(found, ways=(worse, found.way("linear"))).advice == (
        "the cascade is worse than the encoder alone by 3.4 points (1.2 to 5.6); `wide: baseline` ships the encoder"
    )
    assert replace(found, chosen="encoder").advice.startswith("the encoder is not shown to be better")
    assert replace(found, chosen="linear").advice == ""


def test_the_ledger_begins_with_the_linear_model_and_its_models_end_with_the_way_that_ships(built: Build) -> None:
    build = wide_of(built)
    assert build.wide is not None
    first, *others, chosen, gated = build.ledger
    assert (first.stage, first.mean_ms, first.model_mib) == ("linear", 0.052, 0.211)
    assert (
        first.note
        == "20000 n-grams; the encoder is not shown to be better than a linear model: -0.7 points (-2.4 to +1.1)"
    )
    *rows, bundle_alone = built.ledger
    assert others == rows
    assert gated.note.startswith(
        f"{bundle_alone.note}; cascade ships: the fastest of the best on dev beyond noise (encoder 90.0 %"
    )
    assert bundle_alone.note.endswith(": INT8 ships")
    assert build.wide.chosen == "cascade"
    alone = replace(build, wide=replace(build.wide, chosen="linear", why="the recipe has `wide: only`"))
    assert alone.ledger[-1].note == "gate: inconclusive; linear ships: the recipe has `wide: only`"
    assert (chosen.stage, chosen.score.value, chosen.mean_ms) == ("cascade", 0.907, 0.472)
    assert chosen.note == (
        "the linear model answers 67% alone; "
        "the cascade is not shown to be better than a linear model: +0.5 points (-0.4 to +1.4), "
        "and is not shown to be better than the encoder: +1.1 points (-0.1 to +2.4)"
    )
    assert build.ledger_of(build.deliveries[0]) == (first, *others, chosen, gated)
