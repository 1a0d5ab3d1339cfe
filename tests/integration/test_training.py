"""What the settings of a training do, on small models of the real stack."""

from __future__ import annotations

import itertools
import os
import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.test_resume import Killed, Killing
from tests.integration.test_vocabulary import rows_on_disk
from tests.integration.trainings import (
    ABLE,
    ANSWERS,
    CALM,
    INTENTS,
    MANY,
    NUMBERS,
    ONE,
    PAIRS,
    SETTINGS,
    SPANS,
    Ended,
    classifier_of,
    learn,
)
from tests.stage_context import context_of

from edgepack.artifacts import ModelArtifact, Row
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import SILENT
from edgepack.recipe.model import Data
from edgepack.recipe.training import Distill, Student, Training
from edgepack.stages.data import DataStage
from edgepack.stages.train import StudentStage
from edgepack.training.checkpoint import Arrays, Checkpoint
from edgepack_runtime.tasks.registry import task_by_name

ROWS = DataStage(Data(train="builtin:reviews-zh"))
pytestmark = pytest.mark.integration


def distance(one: Arrays, other: Arrays) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def weights_of(classifier: Any) -> Arrays:
    return {name: value.numpy().copy() for name, value in classifier.network.state_dict().items()}


def calm(folder: Path, **changed: Any) -> Ended:
    """A training without dropout, which follows from its settings alone."""
    settings = SETTINGS.model_copy(update=changed)
    return learn(ONE, folder, classifier=classifier_of(ONE, folder, CALM), settings=settings)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return calm(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    "rows",
    [ONE, PAIRS, MANY, SPANS, NUMBERS, INTENTS, ANSWERS],
    ids=["one label", "pairs", "many labels", "spans", "numbers", "intents", "answers"],
)
def test_every_task_is_learnt(rows: Sequence[Row], tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"epochs": 30.0, "learning_rate": 3e-3})
    classifier = classifier_of(rows, tmp_path, ABLE, settings)
    assert learn(rows, tmp_path, classifier=classifier, settings=settings).best_score > 0.9


@pytest.mark.parametrize("parts", [3, 8])
def test_the_parts_of_a_step_make_no_difference(plain: Ended, tmp_path: Path, parts: int) -> None:
    ended = calm(tmp_path, gradient_accumulation=parts)
    assert distance(ended.weights, plain.weights) < 1e-4
    assert ended.usage.gradient_accumulation == parts


def short_of_memory(folder: Path, most: int) -> Ended:
    """`calm`, on a machine that runs out of memory, as Paddle says it, with more than `most` rows at once."""
    classifier = classifier_of(ONE, folder, CALM)

    def exhaust(network: Any, inputs: tuple[Any, ...]) -> None:
        if network.training and inputs[0].shape[0] > most:
            raise MemoryError("(ResourceExhausted) Fail to alloc memory of 281474976710656 size")

    classifier.network.register_forward_pre_hook(exhaust)
    return learn(ONE, folder, classifier=classifier)


def test_out_of_memory_goes_on_in_smaller_parts(plain: Ended, tmp_path: Path) -> None:
    ended = short_of_memory(tmp_path, most=3)
    assert distance(ended.weights, plain.weights) < 1e-4
    assert ended.usage.gradient_accumulation == 4
    assert [line.partition(";")[0] for line in ended.said] == [
        f"out of memory: the 8 rows of a step now run in {parts} parts" for parts in (2, 4)
    ]


def test_out_of_memory_with_one_row_is_the_end(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match="out of memory with a single row"):
        short_of_memory(tmp_path, most=0)


def test_lower_layers_move_less(plain: Ended, tmp_path: Path) -> None:
    start = {
        name: value.numpy() for name, value in classifier_of(ONE, tmp_path / "a", CALM).network.state_dict().items()
    }
    ended = calm(tmp_path / "b", layer_decay=0.1)

    def moved(weights: Arrays, name: str) -> float:
        return float(np.abs(weights[name] - start[name]).mean())

    embeddings, head = "ernie.embeddings.word_embeddings.weight", "classifier.weight"
    assert moved(ended.weights, embeddings) < 0.05 * moved(plain.weights, embeddings)
    assert moved(ended.weights, head) > 0.5 * moved(plain.weights, head)


def test_the_schedule_decides(plain: Ended, tmp_path: Path) -> None:
    assert distance(calm(tmp_path, schedule="cosine").weights, plain.weights) > 1e-4


def test_a_training_without_a_gain_ends_early_with_its_best_epoch(tmp_path: Path) -> None:
    scores = iter([0.5, 0.7, 0.6, 0.7, 0.9])
    settings = SETTINGS.model_copy(update={"epochs": 9.0, "patience": 2})
    ended = learn(ONE, tmp_path, settings=settings, score=lambda classifier: next(scores))
    assert (ended.best_score, ended.epochs) == (0.7, 4)
    assert ended.said == ["train: ended after 4 epochs, 2 without a gain"]


def test_patience_counts_once_the_model_is_above_the_floor(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"epochs": 9.0, "patience": 2})

    def stopped(folder: Path, scores: Iterator[float], checkpoint: Checkpoint | None = None) -> Ended:
        return learn(
            ONE, folder, settings=settings, score=lambda classifier: next(scores), floor=0.5, checkpoint=checkpoint
        )

    scores = (0.5, 0.5, 0.4, 0.5, 0.7, 0.6, 0.7, 0.9)
    ended = stopped(tmp_path / "whole", iter(scores))
    assert (ended.best_score, ended.epochs) == (0.7, 7)
    rest, folder = iter(scores), tmp_path / "killed"
    with pytest.raises(Killed):
        stopped(folder, rest, Killing(folder / "checkpoint", 25))  # in the fourth epoch of 7 steps
    resumed = stopped(folder, rest, Checkpoint(folder / "checkpoint", seconds=1e9))
    assert resumed.epochs == ended.epochs
    assert distance(resumed.weights, ended.weights) == 0


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(ONE, id="one label"),
        pytest.param(MANY, id="many labels", marks=pytest.mark.sweep),
        pytest.param(PAIRS, id="pairs", marks=pytest.mark.sweep),
    ],
)
def test_a_training_that_learns_nothing_fails_and_names_settings_that_learn(
    rows: Sequence[Row], tmp_path: Path
) -> None:
    data = rows_on_disk(tmp_path / "data", rows)
    settings = {"model": ABLE.model_dump(), "distill": None, "max_length": 16, "batch_size": 8, "device": "cpu"}

    def train(**more: float) -> ModelArtifact:
        folder = tmp_path / f"student-{len(more)}"
        folder.mkdir()
        section = Student.model_validate(settings | more)
        ctx = context_of({ROWS: data}, checkpoint=folder / "checkpoint")
        return StudentStage(section, ROWS).run(ctx, folder)

    with pytest.raises(StageFailedError, match="learnt nothing") as failed:
        train(epochs=1, learning_rate=1e-7, patience=1)
    assert failed.value.why == "1 of 1 epochs ran (5 steps), learning rate 1e-07, patience 1"
    assert "linear=only" in failed.value.fix
    named = dict(re.findall(r"--set student\.(\w+)=([\d.e-]+)", failed.value.fix))
    assert train(**{key: float(number) for key, number in named.items()}).dev_score.value > 0.7


def test_rare_labels_get_their_say(tmp_path: Path) -> None:
    rows = [Row("好", "a")] * 44 + [Row("好", "b")] * 4  # nothing tells them apart
    settings = SETTINGS.model_copy(update={"epochs": 20.0, "learning_rate": 1e-2})

    def share_of_b(**changed: Any) -> float:
        from edgepack.training.models.predict import logits

        folder = tmp_path / str(len(changed))
        chosen = settings.model_copy(update=changed)
        classifier = classifier_of(rows, folder, CALM, chosen)
        epochs = itertools.count()  # the last is to be kept: accuracy is the same in all of them
        learn(rows, folder, classifier=classifier, settings=chosen, score=lambda classifier: next(epochs))
        found = np.exp(logits(classifier, classifier.encode(rows[:1]), SILENT, "")[0])
        return float(found[1] / found.sum())

    assert share_of_b() == pytest.approx(4 / 48, abs=0.05)
    assert share_of_b(class_weights="balanced") == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("wanted", ["hidden", "relations"])
def test_the_inside_of_a_teacher_is_matched(tmp_path: Path, wanted: str) -> None:
    settings = SETTINGS.model_copy(update={"epochs": 12.0, "learning_rate": 5e-3})
    teacher = classifier_of(ONE, tmp_path / "teacher", CALM)
    learn(ONE, tmp_path / "teacher", classifier=teacher)
    before = weights_of(teacher)

    def gap(distill: Distill, folder: Path) -> float:
        import paddle

        from edgepack.training.distillation import Match
        from edgepack.training.models.batches import Batch, pad

        other = settings.model_copy(update={"seed": 8})
        student = classifier_of(ONE, folder, CALM, other)
        learn(ONE, folder, classifier=student, settings=other, distill=distill, teacher=teacher)
        ids = paddle.to_tensor(pad([row.ids for row in student.encode(ONE)]))
        match = Match(student.network, teacher.network, Distill(relations=True))
        student.network.train()
        student.network(ids, paddle.zeros_like(ids))
        return float(match.loss([], Batch(ids, paddle.zeros_like(ids), None, None)).mean())

    alone = gap(Distill(), tmp_path / "alone")
    matched = gap(Distill.model_validate({wanted: True, "match_weight": 10}), tmp_path / "matched")
    # Hidden states that agree through a projection relate tokens alike, if less directly.
    assert matched < (0.5 if wanted == "relations" else 1.0) * alone
    assert distance(before, weights_of(teacher)) == 0


def test_a_layer_map_must_fit(tmp_path: Path) -> None:
    classifier_of(ONE, tmp_path, CALM)
    from edgepack.training.distillation import Match

    network = classifier_of(ONE, tmp_path / "b", CALM).network
    for layers in ((1,), (1, 3)):
        with pytest.raises(StageFailedError, match=r"distill\.layers"):
            Match(network, network, Distill(hidden=True, layers=layers))


def test_texts_without_labels_are_learnt_from_the_teacher(tmp_path: Path) -> None:
    """Two labelled rows say little; what the teacher says of the others is enough."""
    settings = SETTINGS.model_copy(update={"epochs": 60.0, "learning_rate": 5e-3, "batch_size": 32})
    teacher = classifier_of(ONE, tmp_path / "teacher", CALM)
    teaching = Training(epochs=30, batch_size=8, learning_rate=5e-3, max_length=16)
    learn(ONE, tmp_path / "teacher", classifier=teacher, settings=teaching)
    few = [Row("第0间房不干净", "a"), Row("第1间房很干净", "b")]
    more = [Row(row.text, ()) for row in ONE[:40]]

    def right(folder: Path, unlabelled: Sequence[Row]) -> float:
        from edgepack.training.models.predict import logits

        student = classifier_of(ONE, folder, CALM, settings)
        learn(
            few,
            folder,
            classifier=student,
            settings=settings,
            distill=Distill(),
            teacher=teacher,
            unlabelled=unlabelled,
        )
        rest = ONE[40:]
        found = logits(student, student.encode(rest), SILENT, "")
        return sum("ab"[int(one.argmax())] == row.label for one, row in zip(found, rest, strict=True)) / len(rest)

    assert right(tmp_path / "more", more) == 1.0


def test_a_student_cut_out_of_its_teacher(tmp_path: Path) -> None:
    teacher = classifier_of(ONE, tmp_path / "teacher")
    learn(ONE, tmp_path / "teacher", classifier=teacher)
    teacher.save(tmp_path / "teacher")
    from edgepack.training.models import classifiers

    def cut(layers: Any, name: str) -> Any:
        (tmp_path / name).mkdir()
        task = task_by_name("text-classification")
        return classifiers.cut(tmp_path / "teacher", layers, ("a", "b"), 16, tmp_path / name, task)

    whole, top, one = cut(2, "whole"), cut(1, "top"), cut([1], "one")
    weights = weights_of(teacher)
    assert distance(weights, weights_of(whole)) == 0
    key = "ernie.encoder.layers.{}.linear1.weight"
    assert np.array_equal(top.network.state_dict()[key.format(0)].numpy(), weights[key.format(1)])
    assert np.array_equal(one.network.state_dict()[key.format(0)].numpy(), weights[key.format(0)])
    assert whole.encode(ONE) == teacher.encode(ONE)
    with pytest.raises(StageFailedError, match="the teacher has 2 layers"):
        cut([3], "none")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_needs_a_gpu(tmp_path: Path, precision: str) -> None:
    """On a CPU, Paddle would train in float32 all the same."""
    import paddle

    if paddle.is_compiled_with_cuda():
        pytest.skip("this Paddle is built with CUDA")
    with pytest.raises(EnvironmentUnfitError, match=precision) as caught:
        calm(tmp_path, precision=precision)
    assert "auto or fp32" in caught.value.fix


def test_code_in_the_files_of_a_model_does_not_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    classifier_of(ONE, tmp_path / "loads-paddle", CALM)
    from edgepack.training.models import classifiers

    classifier_of(ONE, tmp_path).save(tmp_path)
    (tmp_path / "model_state.pdparams").write_bytes(pickle.dumps({"weight": Runs(), "as large as": bytes(1 << 20)}))
    with pytest.raises(StageFailedError, match="cannot be used"):
        classifiers.probe(str(tmp_path))
    (tmp_path / "model_state.pdparams").write_bytes(pickle.dumps({}))
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"weight": "code.pdparams"}}')
    with pytest.raises(StageFailedError, match="in parts"):
        classifiers.probe(str(tmp_path))
    assert not (tmp_path / "made").exists()
