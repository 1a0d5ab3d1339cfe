"""Students that keep a part of their teacher's width: what is chosen, and that all that comes after works with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.integration.conftest import Project, write_rows
from tests.integration.trainings import ONE, SETTINGS, SPANS, classifier_of, data_of, learn

from edgepack.artifacts import Row
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT
from edgepack.recipe.training import Distill, FromScratch
from edgepack.training import environment
from edgepack.training.checkpoint import Arrays
from edgepack.training.models.width_pruning import Importance, choose
from edgepack_runtime.tasks.registry import task_by_name
from edgepack_runtime.tasks.task import Task

pytestmark = pytest.mark.integration
ONE_LABEL = task_by_name("text-classification")
FOUR_HEADS = FromScratch.model_validate({"scratch": {"layers": 2, "hidden": 16, "heads": 4, "dropout": 0}})
ABLY = SETTINGS.model_copy(update={"epochs": 12.0, "learning_rate": 2e-2})
LEARNT: dict[str, Arrays] = {}
ALIVE = ([0, 3], [1, 2])  # heads of the two layers whose output is read


def logits_of(classifier: Any, rows: Sequence[Row] = ONE) -> list[npt.NDArray[np.float32]]:
    from edgepack.training.models.predict import logits

    classifier.network.eval()
    return logits(classifier, classifier.encode(rows), SILENT, "")


def apart(one: Any, other: Any, rows: Sequence[Row] = ONE) -> float:
    pairs = zip(logits_of(one, rows), logits_of(other, rows), strict=True)
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def importances(classifier: Any, rows: Sequence[Row] = ONE) -> list[Importance]:
    from edgepack.tasks.registry import task_of_data
    from edgepack.training import importance

    classifier.network.eval()
    data = data_of(rows, Path("unused"))
    return importance.measure(classifier, task_of_data(data), rows, balanced=False, progress=SILENT)


def taught(folder: Path, rows: Sequence[Row] = ONE) -> Any:
    """A teacher of four heads a layer, trained and saved. Each task is learnt once."""
    teacher = classifier_of(rows, folder, FOUR_HEADS)
    if teacher.task not in LEARNT:
        LEARNT[teacher.task] = learn(rows, folder, classifier=teacher, settings=ABLY).weights
    teacher.network.set_state_dict(LEARNT[teacher.task])
    teacher.network.eval()
    teacher.save(folder)
    return teacher


def pruned(
    teacher: Path,
    name: str,
    width: float,
    task: Task = ONE_LABEL,
    layers: Any = 2,
    measured: Callable[..., list[Importance]] = importances,
) -> Any:
    """A student of the teacher that was saved, next to it."""
    from edgepack.training.models import classifiers

    folder = teacher.parent / name
    folder.mkdir(exist_ok=True)
    rows = SPANS if task.per_token else ONE
    labels = data_of(rows, folder).model_labels
    found = measured(classifiers.load(teacher, labels, 16, task), rows)
    return classifiers.cut(teacher, layers, labels, 16, folder, task, choose(found, width))


def test_the_whole_width_is_the_cut_of_today(tmp_path: Path) -> None:
    taught(tmp_path / "teacher")
    from edgepack.training.models import classifiers

    (tmp_path / "cut").mkdir()
    cut = classifiers.cut(tmp_path / "teacher", [2], ("a", "b"), 16, tmp_path / "cut", ONE_LABEL)
    assert apart(cut, pruned(tmp_path / "teacher", "whole", 1.0, layers=[2])) == 0


@pytest.mark.parametrize("rows", [ONE, SPANS], ids=["one label", "spans"])
def test_what_nobody_reads_is_what_goes(tmp_path: Path, rows: Sequence[Row]) -> None:
    """Half of the heads and neurons put out nothing: without them, the teacher answers as before."""
    teacher = taught(tmp_path / "teacher", rows)
    weights = {name: value.numpy() for name, value in teacher.network.state_dict().items()}
    for layer, heads in enumerate(ALIVE):
        dead = [column for head in range(4) if head not in heads for column in range(4 * head, 4 * head + 4)]
        weights[f"ernie.encoder.layers.{layer}.self_attn.out_proj.weight"][dead] = 0
        weights[f"ernie.encoder.layers.{layer}.linear2.weight"][layer::2] = 0
    teacher.network.set_state_dict(weights)
    teacher.save(tmp_path / "teacher")
    kept = choose(importances(teacher, rows), 0.5)
    assert [layer.heads.tolist() for layer in kept] == list(ALIVE)
    assert [layer.neurons.tolist() for layer in kept] == [list(range(1, 64, 2)), list(range(0, 64, 2))]
    student = pruned(tmp_path / "teacher", "student", 0.5, teacher.task)
    assert student.parameters < teacher.parameters
    assert apart(teacher, student, rows) < 1e-5

    def least(*asked: Any) -> list[Importance]:
        return [Importance(-layer.heads, -layer.neurons) for layer in importances(*asked)]

    assert apart(teacher, pruned(tmp_path / "teacher", "least", 0.5, teacher.task, measured=least), rows) > 1e-2


def test_importance_foretells_what_the_loss_loses(tmp_path: Path) -> None:
    """Against its definition: the slope of every row's loss in a factor before one head and one neuron."""
    teacher = taught(tmp_path / "teacher")
    found = importances(teacher)
    before = {name: value.numpy().copy() for name, value in teacher.network.state_dict().items()}

    def losses() -> npt.NDArray[np.float64]:
        scores = np.stack(logits_of(teacher)).astype(np.float64)
        right = scores[np.arange(len(ONE)), ["ab".index(str(row.label)) for row in ONE]]
        return np.asarray(np.log(np.exp(scores).sum(axis=1)) - right)

    def slope(name: str, rows: slice) -> float:
        at = []
        for factor in (0.98, 1.02):
            weights = {key: value.copy() for key, value in before.items()}
            weights[name][rows] *= factor
            teacher.network.set_state_dict(weights)
            at.append(losses())
        return float(np.abs((at[1] - at[0]) / 0.04).mean())

    layer = "ernie.encoder.layers.0."
    head = slope(f"{layer}self_attn.out_proj.weight", slice(8, 12))
    neuron = int(found[0].neurons.argmax())
    assert head == pytest.approx(found[0].heads[2], rel=0.02)
    assert slope(f"{layer}linear2.weight", slice(neuron, neuron + 1)) == pytest.approx(
        found[0].neurons[neuron], rel=0.02
    )


@pytest.mark.parametrize("task", [ONE_LABEL, task_by_name("token-classification")], ids=["one label", "spans"])
def test_a_pruned_student_is_saved_and_opened_again(tmp_path: Path, task: Task) -> None:
    rows = SPANS if task.per_token else ONE
    teacher = taught(tmp_path / "teacher", rows)
    student = pruned(tmp_path / "teacher", "student", 0.5, task)
    student.save(tmp_path / "student")
    from edgepack.recipe.encoder_shapes import parameters, shape_of_folder
    from edgepack.training.models import classifiers

    again = classifiers.load(tmp_path / "student", student.labels, 16, task)
    ours, theirs = ({n: v.numpy() for n, v in one.network.state_dict().items()} for one in (student, again))
    assert all(np.array_equal(theirs[name], ours[name]) for name in ours)
    assert ours.keys() == theirs.keys()
    assert apart(student, again, rows) == 0
    shape = shape_of_folder(tmp_path / "student")
    assert shape is not None
    assert (shape.heads, shape.head_size, shape.feed_forward) == (2, 4, 32)
    assert parameters(shape, len(student.labels)) == again.parameters < teacher.parameters
    # A model to go on with in another recipe, and to be pruned again.
    (tmp_path / "next").mkdir()
    following = classifiers.create(str(tmp_path / "student"), student.labels, 16, [], 0, tmp_path / "next", task)
    assert apart(student, following, rows) == 0
    narrower = pruned(tmp_path / "student", "narrower", 0.5, task)
    assert narrower.network.ernie.encoder.layers[1].self_attn.num_heads == 1


def test_a_pruned_model_that_says_it_wrongly(tmp_path: Path) -> None:
    taught(tmp_path / "teacher")
    student = pruned(tmp_path / "teacher", "student", 0.5)
    student.save(tmp_path / "student")
    config = tmp_path / "student" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "kept_attention_heads": 5}), encoding="utf-8")
    from edgepack.training.models import classifiers

    with pytest.raises(StageFailedError, match="kept_attention_heads` is 5"):
        classifiers.load(tmp_path / "student", student.labels, 16, ONE_LABEL)


def test_no_more_than_one_layer_has_all_heads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that stay limit the memory, not those of the model before it was pruned."""
    environment.start()
    import paddle
    from paddlenlp.transformers import ErnieConfig

    from edgepack.training.models import classifiers

    made: list[Any] = []

    class Recorded(paddle.nn.TransformerEncoderLayer):  # type: ignore[misc, unused-ignore]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            assert all(layer.self_attn.q_proj.weight.shape == [16, 4] for layer in made)
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr(paddle.nn, "TransformerEncoderLayer", Recorded)
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 8, "vocab_size": 9}
    config = ErnieConfig(**sizes, num_hidden_layers=3, kept_attention_heads=1)
    encoder = classifiers.build(ONE_LABEL, config).ernie.encoder
    assert config.num_hidden_layers == encoder.num_layers == len(encoder.layers) == len(made) == 3
    assert [layer.self_attn.num_heads for layer in encoder.layers] == [1, 1, 1]


@pytest.mark.parametrize("wanted", ["hidden", "relations"])
def test_a_pruned_student_learns_from_inside_its_teacher(tmp_path: Path, wanted: str) -> None:
    teacher = taught(tmp_path / "teacher")
    student = pruned(tmp_path / "teacher", "student", 0.5)
    before = apart(student, teacher)
    distill = Distill.model_validate({wanted: True, "hard_weight": 0})
    settings = SETTINGS.model_copy(update={"epochs": 10.0, "learning_rate": 3e-3})
    learn(ONE, tmp_path, classifier=student, distill=distill, teacher=teacher, settings=settings)
    assert apart(student, teacher) < 0.5 * before


def test_the_choice_is_the_same_again(tmp_path: Path) -> None:
    """A build that was killed starts the student anew before it takes up its checkpoint."""
    one, other = (importances(taught(tmp_path / name)) for name in ("one", "other"))
    for ours, theirs in zip(one, other, strict=True):
        assert np.array_equal(ours.heads, theirs.heads)
        assert np.array_equal(ours.neurons, theirs.neurons)


def test_what_is_drawn_for_a_student_hangs_on_its_seed_alone(tmp_path: Path) -> None:
    """And not on what the process did before: trained the teacher, or found it."""
    teacher = taught(tmp_path / "teacher")
    import paddle

    from edgepack.training.distillation import Match

    drawn = []
    for before in (1, 2):
        paddle.seed(before)
        student = pruned(tmp_path / "teacher", "student", 0.5)
        drawn.append(Match(student.network, teacher.network, Distill(hidden=True)).projection.weight.numpy())
    assert np.array_equal(*drawn)


def test_relations_of_a_student_with_less_width_than_its_teacher_has_heads(tmp_path: Path) -> None:
    many = FromScratch.model_validate({"scratch": {"layers": 1, "hidden": 16, "heads": 16, "dropout": 0}})
    teacher = classifier_of(ONE, tmp_path / "teacher", many)
    teacher.save(tmp_path / "teacher")
    student = pruned(tmp_path / "teacher", "student", 0.2, layers=1)
    ended = learn(ONE, tmp_path, classifier=student, distill=Distill(relations=True), teacher=teacher)
    assert all(np.isfinite(value).all() for value in ended.weights.values())


RECIPE = """\
edgepack: 1
name: narrow
version: 0.1.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv, calibration: {from: train, rows: 32}}
teacher:
  model: {scratch: {layers: 2, hidden: 48, heads: 4}}
  epochs: 3
  learning_rate: 5e-3
  max_length: 24
student:
  model: {from: teacher, layers: 2, width: 0.5}
  distill: {hidden: true, relations: true}
  epochs: 1
  learning_rate: 1e-3
  max_length: 24
"""


def test_a_pruned_student_goes_all_the_way_to_int8(tmp_path: Path) -> None:
    import onnx

    write_rows(tmp_path)
    (tmp_path / "narrow.yaml").write_text(RECIPE, encoding="utf-8")
    done = Project(tmp_path).edgepack("build", "narrow.yaml", "--until", "export")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "student: every layer keeps 2 of 4 heads and 96 of 192 neurons, chosen on 480 training rows" in done.stderr
    (floats,) = (tmp_path / ".edgepack" / "export").glob("*/onnx-float")
    for name, kinds in (("onnx-float", {"MatMul"}), ("onnx-int8", {"MatMulIntegerToFloat"})):
        graph = onnx.load(str(floats.with_name(name) / "model.onnx")).graph
        shapes = {item.name: tuple(item.dims) for item in graph.initializer}
        read = [shapes[node.input[1]] for node in graph.node if node.op_type in kinds and node.input[1] in shapes]
        # Queries, keys and values of 2 heads x 12 are one product; in the last layer keys and values are.
        half = [(24, 48), (48, 96), (96, 48)]
        assert sorted(read) == sorted([(48, 72), *half, (48, 24), (48, 48), *half, (48, 48), (48, 2)])
