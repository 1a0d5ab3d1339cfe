"""Which method to quantize is taken, and which parts go back to float; the trials are made up."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.conftest import MakeModel
from tests.unit.onnx_graph.ernie_graphs import ranged

from edgepack.artifacts import NO_SCALE, DataArtifact, Quantization, Trial
from edgepack.export import selection
from edgepack.export.int8_search import Trials, choose, elsewhere
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.int8_ranges import WORDS, int8_parts
from edgepack.progress import SILENT
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

WHOLE = ranged()
ALL = int8_parts(WHOLE)


@dataclass
class MadeUp:
    """Trials of a model whose INT8 parts cost these points, and as many nats; one row is worth `row` points."""

    costs: dict[str, float]
    row: float = 0.01
    extra: dict[str, float] = field(default_factory=dict)  # of methods, points
    rows: tuple[int, ...] = tuple(range(100))
    names: list[str] = field(default_factory=list)

    def trial(self, name: str, encoder: Encoder) -> Trial:
        self.names.append(name)
        return Trial(name, self.extra.get(name, 0.0) + self.divergence(encoder), self.divergence(encoder))

    def divergence(self, encoder: Encoder) -> float:
        return sum(self.costs.get(part, 0.0) for part in int8_parts(encoder))

    def may_lose(self, limit_points: float | None) -> float:
        return math.inf if limit_points is None else max(limit_points, self.row)


def taken(trials: MadeUp, limit_points: float | None, *methods: Quantization) -> tuple[Encoder, Any]:
    given = [(method, WHOLE) for method in methods or (Quantization("ptq", "hist", ()),)]
    return choose(given, cast(Trials, trials), limit_points, SILENT)


def test_what_stays_within_the_limit_stays_int8() -> None:
    encoder, made = taken(MadeUp({"head": 0.4}), 0.5)
    assert int8_parts(encoder) == ALL
    assert made.kept_float == ()
    assert made.drop_points == pytest.approx(0.4)
    assert made.parts[0].part == "head"
    assert {part.part for part in made.parts} == set(ALL)


def test_the_dearest_parts_go_back_until_the_limit_holds() -> None:
    costs = {"layers.1.down": 0.3, "head": 0.9, WORDS: 0.6, "layers.0.up": 0.1}
    encoder, made = taken(MadeUp(costs), 0.5)
    assert made.kept_float == ("head", WORDS)
    assert made.drop_points == pytest.approx(0.4)
    assert set(int8_parts(encoder)) == set(ALL) - {"head", WORDS}
    assert not encoder.embeddings.int8


def test_a_limit_of_nothing_is_one_row() -> None:
    costs = {"head": 0.9, WORDS: 0.6}
    assert taken(MadeUp(costs, row=1.0), 0.0)[1].kept_float == ("head",)
    assert taken(MadeUp(costs, row=0.5), 0.0)[1].kept_float == ("head", WORDS)


def test_a_loss_of_the_limit_itself_is_within_it() -> None:
    costs = {"head": 0.1, WORDS: 0.2}
    assert sum(costs.values()) > 0.3  # in floating point
    assert taken(MadeUp(costs), 0.3)[1].kept_float == ()
    assert taken(MadeUp(costs), 0.299)[1].kept_float == (WORDS,)


def test_another_engine_that_loses_more_keeps_more_in_float() -> None:
    costs = {"head": 0.9, WORDS: 0.3, "layers.1.down": 0.1}
    first, made = taken(MadeUp(costs), 0.5)
    assert made.kept_float == ("head",)
    same, as_made = elsewhere(first, made, cast(Trials, MadeUp(costs)), SILENT)
    assert (int8_parts(same), as_made) == (int8_parts(first), made)
    worse = {name: 2 * cost for name, cost in costs.items()}
    there, made_there = elsewhere(first, made, cast(Trials, MadeUp(worse)), SILENT)
    assert made_there.kept_float == ("head", WORDS)
    assert made_there.drop_points == pytest.approx(0.2)
    assert set(int8_parts(there)) == set(ALL) - {"head", WORDS}
    assert replace(made_there, kept_float=made.kept_float, drop_points=made.drop_points) == made


def test_without_a_limit_nothing_goes_back() -> None:
    made = taken(MadeUp({"head": 90.0}), None)[1]
    assert made.kept_float == ()
    assert made.limit_points is None


def test_when_nothing_helps_everything_is_float_and_it_ends() -> None:
    class Stubborn(MadeUp):
        def trial(self, name: str, encoder: Encoder) -> Trial:
            return Trial(name, 7.0, 0.1)

    encoder, made = taken(Stubborn({}), 0.5)
    assert int8_parts(encoder) == ()
    assert set(made.kept_float) == set(ALL)
    assert made.drop_points == 7.0


def test_the_way_that_loses_least_is_taken_and_of_equals_the_one_that_diverges_least() -> None:
    methods = [Quantization("ptq", name, ()) for name in ("hist", "kl", "avg")] + [Quantization("dynamic", None, ())]
    trials = MadeUp({}, extra={"ptq (hist)": 0.3, "ptq (kl)": 0.1, "ptq (avg)": 0.2, "dynamic": 0.4})
    made = taken(trials, 0.5, *methods)[1]
    assert made.method == "ptq (kl)"
    assert [one.method for one in made.trials] == ["ptq (hist)", "ptq (kl)", "ptq (avg)", "dynamic"]

    class Equal(MadeUp):
        def trial(self, name: str, encoder: Encoder) -> Trial:
            return Trial(name, 0.25, {"ptq (hist)": 0.02, "dynamic": 0.01}.get(name, 0.03))

    assert taken(Equal({}), 0.5, *methods)[1].method == "dynamic"


TEXTS = ("房间很大", "服务不好", "脏", "很吵也脏")


@pytest.fixture
def float_model(tmp_path: Path, make_model: MakeModel) -> Predictor:
    return Predictor(make_model(tmp_path / "float", seed=1))


@pytest.fixture
def data(tmp_path: Path, float_model: Predictor) -> DataArtifact:
    """Four dev rows that the float model answers right."""
    rows = [{"text": text, "label": float_model.predict(text).label} for text in TEXTS]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return DataArtifact(tmp_path, ("0", "1"), {"dev": len(rows)}, ())


def trials(float_model: Predictor, data: DataArtifact, other: Predictor) -> Trials:
    return Trials(float_model, lambda encoder: other, data, SILENT)


def test_a_model_that_answers_alike_loses_nothing(float_model: Predictor, data: DataArtifact) -> None:
    encoder: Any = None
    trial = trials(float_model, data, float_model).trial("the same", encoder)
    assert (trial.method, trial.drop_points) == ("the same", 0.0)
    assert trial.divergence == pytest.approx(0.0, abs=1e-9)


def test_what_another_answers_wrong_is_lost(
    tmp_path: Path, make_model: MakeModel, float_model: Predictor, data: DataArtifact
) -> None:
    other = Predictor(make_model(tmp_path / "other", seed=2))
    wrong = sum(other.predict(text).label != float_model.predict(text).label for text in TEXTS)
    assert wrong  # or the lines below could not fail
    encoder: Any = None
    asked = trials(float_model, data, other)
    trial = asked.trial("other", encoder)
    assert trial.drop_points == 100 * wrong / len(TEXTS)
    assert trial.divergence == asked.divergence(encoder) > 0


def test_one_row_may_always_be_lost(float_model: Predictor, data: DataArtifact) -> None:
    asked = trials(float_model, data, float_model)
    assert [asked.may_lose(limit) for limit in (0.0, 0.5, 25.0, 30.0, None)] == [25.0, 25.0, 25.0, 30.0, math.inf]


class Counted:
    """Trials where the float model answers so many of the dev rows right, and another `lost` fewer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("edgepack.evaluation.answers", lambda right, *_: right)
        monkeypatch.setattr("edgepack.evaluation.logits", lambda right, rows: ())
        monkeypatch.setattr("edgepack.calibration.divergence", lambda *_, multi_label: 0.0)
        monkeypatch.setattr("edgepack.evaluation.value", lambda task, rows, right, classes: right / len(rows))
        monkeypatch.setattr("edgepack_runtime.device.info.half_flags", lambda: ("made up",))

    def refused(self, rows: int, right: int, lost: int, limit_points: float) -> bool:
        """Whether this is more than may be lost."""

        class Data:
            text_task, task, multi_label = task_by_name(ONE_TEXT), ONE_TEXT, False
            labels = model_labels = ("0", "1")
            scale = NO_SCALE

            def read(self, split: str) -> Sequence[int]:
                return range(rows)

        data: Any = Data()
        float_model: Any = right
        other: Any = right - lost
        encoder: Any = None
        asked = Trials(float_model, lambda encoder: other, data, SILENT)
        trial = asked.trial("float16", encoder)
        return bool(selection.caveats_of_float16(trial, asked.may_lose(limit_points)).refusal)


def test_one_row_may_be_lost_of_any_number_and_two_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for rows in range(1, 5001):
        right = max(2, rows - rows // 8)
        assert not counted.refused(rows, right, 1, 0.0), rows
        assert counted.refused(rows, right, 2, 0.0), rows


def test_what_is_lost_may_be_the_limit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for right in range(5, 1001):
        assert not counted.refused(1000, right, 5, 0.5), right
        assert counted.refused(1000, right, 5, 0.499), right
