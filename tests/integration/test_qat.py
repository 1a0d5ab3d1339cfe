"""Quantization-aware training: what is trained rounds as the INT8 graph does, and goes on where it was killed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from _pytest.mark import ParameterSet
from tests.integration.test_resume import Killed, Killing
from tests.integration.trainings import CALM, MANY, ONE, PAIRS, SETTINGS, SHAPE, SPANS, Heard, data_of

from edgepack.artifacts import DataArtifact, LinearScales, ModelArtifact, Row
from edgepack.onnx_graph.encoder import Range
from edgepack.onnx_graph.graph_writer import compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack.onnx_graph.int8_ranges import uint8_grid, with_ranges
from edgepack.onnx_graph.recognise import IDS, TYPES
from edgepack.onnx_graph.rewrite import rewrite
from edgepack.progress import SILENT
from edgepack.recipe.model import Quantize
from edgepack.recipe.training import FromScratch, Qat
from edgepack.training import environment

pytestmark = pytest.mark.integration

QUANTERS: Sequence[Any] = get_args(Qat.model_fields["quanter"].annotation)
RANGES = [(-1.0, 3.0), (-0.17, 5.0), (0.0, 2.0), (-3.0, 0.0), (-0.01, 0.02), (-7.0, 7.1)]
Float = npt.NDArray[np.float32]


def quanter_of(name: str, low: float, high: float) -> Any:
    environment.start()
    import paddle

    from edgepack.training.quantization.quanters import AbsMaxQuanter, LsqQuanter

    quanter = {"abs_max": AbsMaxQuanter, "lsq": LsqQuanter}[name](paddle.nn.Linear(2, 2))
    quanter.begin(low, high)
    return quanter


def as_the_graph(values: Float, seen: tuple[float, float]) -> Float:
    """`values` as QuantizeLinear has them, and back."""
    step, zero = uint8_grid(Range(*seen))
    return np.asarray((np.clip(np.rint(values / step) + zero, 0, 255) - np.float32(zero)) * step)


@pytest.mark.parametrize("name", QUANTERS)
@pytest.mark.parametrize("seen", RANGES, ids=str)
def test_a_quanter_rounds_to_the_values_of_the_graph(name: str, seen: tuple[float, float]) -> None:
    quanter = quanter_of(name, *seen)
    import paddle

    quanter.eval()
    low, high = quanter.range()
    step = (high - low) / 255
    assert abs(low - seen[0]) <= step and abs(high - seen[1]) <= step
    values = np.random.default_rng(0).uniform(2 * low - high, 2 * high - low, 4096).astype(np.float32)
    values[:3] = 0, low, high
    off = np.abs(quanter(paddle.to_tensor(values)).numpy() - as_the_graph(values, (low, high)))
    assert off[0] < 1e-4 * step, "zero is one of the values"
    assert np.mean(off > 1e-3 * step) < 1e-3, "but for values in the middle between two"


@pytest.mark.parametrize("name", QUANTERS)
def test_a_range_stays_one_that_the_graph_can_have(name: str) -> None:
    """Whatever is learnt: 0 in it, and never empty."""
    quanter = quanter_of(name, -1.0, 3.0)
    import paddle

    random = np.random.default_rng(1)
    for _ in range(20):
        for tensor in quanter.parameters():
            learnt = random.normal(0, 1, tensor.shape).astype(np.float32)
            tensor.set_value(paddle.to_tensor(np.abs(learnt) if tensor.stop_gradient else learnt))
        low, high = quanter.range()
        assert low <= 0 <= high and low < high


def test_the_moving_average_moves_by_what_passes_in_training_alone() -> None:
    quanter = quanter_of("abs_max", -1.0, 1.0)
    import paddle

    wide = paddle.to_tensor([[-2.0, 0.5, 1.0]])
    quanter.eval()
    quanter(wide)
    assert quanter.range() == pytest.approx((-1.0, 1.0), abs=0.01)
    quanter.train()
    quanter(wide)
    low, high = quanter.range()
    assert high - low == pytest.approx(2 * (0.9 * 1 + 0.1 * 2), rel=0.01)


def test_the_gradients_of_lsq_are_paddleslim_s() -> None:
    quanter = quanter_of("lsq", -1.0, 3.0)
    import paddle
    from paddleslim.quant.quanters.lsq_func import LsqPlusActFunc

    random = np.random.default_rng(2)
    values, weights = (random.normal(1, 2, (40, 16)).astype(np.float32) for _ in range(2))
    ours = paddle.to_tensor(values, stop_gradient=False)
    (quanter(ours) * paddle.to_tensor(weights)).sum().backward()
    low, high = quanter.range()
    step, offset = ((high - low) / 255, low + 128 * (high - low) / 255)
    theirs, alpha, beta = (paddle.to_tensor(v, dtype="float32") for v in (values, step, offset))
    for tensor in (theirs, alpha, beta):
        tensor.stop_gradient = False
    slow = 1 / np.sqrt(values.size * 127)
    (LsqPlusActFunc.apply(theirs, alpha, beta, slow, -128, 127) * paddle.to_tensor(weights)).sum().backward()
    assert np.allclose(ours.grad.numpy(), theirs.grad.numpy(), atol=1e-6)
    unit = step / 0.02
    assert float(quanter._scale.grad) == pytest.approx(float(alpha.grad) * unit, rel=1e-3)
    assert float(quanter._beta.grad) == pytest.approx(float(beta.grad) * unit, rel=1e-3)


def student_of(folder: Path, rows: Sequence[Row], shape: FromScratch = CALM) -> tuple[DataArtifact, ModelArtifact]:
    """A float student that was trained for some steps on `rows`, which are its dev and test rows too."""
    environment.start()
    from edgepack.training.distributed import ALONE
    from edgepack.training.finetune import TrainingJob, finetune

    (folder / "student").mkdir(parents=True)
    data = replace(data_of(rows, folder), rows=dict.fromkeys(("train", "dev", "test"), len(rows)))
    for split in data.rows:
        lines = [json.dumps(row.document(data.text_task.answer_key), ensure_ascii=False) for row in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    job = TrainingJob("student", shape, SETTINGS.model_copy(update={"epochs": 12.0, "learning_rate": 5e-3}))
    return data, finetune(job, data, folder / "student", SILENT, folder / "checkpoint", ALONE)


def relearnt(
    folder: Path,
    data: DataArtifact,
    student: ModelArtifact,
    said: Heard | None = None,
    *,
    reduced: bool = False,
    **settings: Any,
) -> tuple[LinearScales, ...]:
    """What QAT of it ends with; the weights lie in `folder`/weights."""
    from edgepack.training.quantization.qat import relearn

    learnt = Qat(**{"epochs": 2.0, "batch_size": 8, "learning_rate": 1e-3} | settings)
    section = Quantize(method="qat", qat=learnt, reduced_range=reduced)
    rows = data.read("train")[:16]
    folder.mkdir(exist_ok=True)
    training = SETTINGS.model_copy(update={"device": "cpu"})
    return relearn(section, training, data, student, rows, folder / "weights", said or Heard(), folder / "checkpoint")


def simulated(
    data: DataArtifact, trained: ModelArtifact, scales: Sequence[LinearScales], name: Any, *, reduced: bool = False
) -> list[Float]:
    """Logits of each dev row by Paddle, rounded with these ranges."""
    from edgepack.training.finetune import reopen
    from edgepack.training.models.predict import logits
    from edgepack.training.quantization.quanters import prepare

    classifier = reopen(trained, data)
    ranges = {item.layer: item.activation for item in scales if item.activation is not None}
    prepare(classifier.network, ranges, name, embeddings=True, reduced=reduced)
    return logits(classifier, classifier.encode(data.read("dev")), SILENT, "", batch_size=1)


def int8(
    data: DataArtifact, trained: ModelArtifact, scales: Sequence[LinearScales], folder: Path, *, reduced: bool = False
) -> list[Float]:
    """The same by ONNX Runtime, of the INT8 graph."""
    import onnx

    from edgepack.training.finetune import reopen
    from edgepack.training.models import export

    classifier, pairs = reopen(trained, data), data.task == "text-pair-classification"
    (folder / "paddle").mkdir(parents=True)
    export.static_graph(classifier, folder / "paddle")
    export.float_onnx(folder / "paddle", folder / "float.onnx")
    from edgepack.onnx_graph.utils import fold_constants

    layout = fastest(pairs=pairs, tokens=trained.max_length)
    encoder, _ = rewrite(fold_constants(onnx.load(str(folder / "float.onnx"))), layout)
    graph = compose(with_ranges(encoder, scales, embeddings=True), layout, OrtCpuForm(reduced=reduced))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    fed = ({IDS: np.array([row.ids]), TYPES: np.array([row.types])} for row in classifier.encode(data.read("dev")))
    return [session.run(None, {name: each[name] for name in names})[0][0] for each in fed]


def apart(found: Sequence[Float], expected: Sequence[Float]) -> float:
    """The median over texts of how far their logits are apart: where a value lies between two steps, what is below it
    rounds otherwise in few of them.
    """
    return float(np.median([np.abs(a - b).max() for a, b in zip(found, expected, strict=True)]))


one_quanter = pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.sweep) for name in QUANTERS[:-1]), QUANTERS[-1]]
)


def quanters_and_rows() -> list[ParameterSet]:
    """Every quanter with rows of one label, and the last one with rows of all tasks; the others are for sweeps."""
    tasks = {"one label": ONE, "pairs": PAIRS, "many labels": MANY, "spans": SPANS}
    return [
        pytest.param(
            name, rows, id=f"{task}-{name}", marks=[pytest.mark.sweep] * (name != QUANTERS[-1] and rows != ONE)
        )
        for task, rows in tasks.items()
        for name in QUANTERS
    ]


@pytest.mark.parametrize(("name", "rows"), quanters_and_rows())
@pytest.mark.usefixtures("eight_bits")
def test_what_was_trained_is_what_the_int8_graph_computes(name: str, rows: Sequence[Row], tmp_path: Path) -> None:
    """Both round alike: most texts come out as they do to float32, which a grid that is a little wider does not do. The
    measure is relative, for how far the logits of so short a training are apart depends on the processor.
    """
    data, student = student_of(tmp_path, rows)
    scales = relearnt(tmp_path, data, student, quanter=name)
    trained = replace(student, folder=tmp_path / "weights")
    expected = simulated(data, trained, scales, name)
    found = int8(data, trained, scales, tmp_path)
    wider = [
        replace(item, activation=(item.activation[0] * 1.01, item.activation[1] * 1.01))
        for item in scales
        if item.activation is not None
    ]
    near = 0.01 * apart(int8(data, trained, wider, tmp_path / "wider"), expected)
    assert np.mean([np.abs(a - b).max() < near for a, b in zip(found, expected, strict=True)]) > 0.8


def test_weights_of_7_bits_are_what_was_trained_too(tmp_path: Path) -> None:
    data, student = student_of(tmp_path, ONE)
    scales = relearnt(tmp_path, data, student, reduced=True, quanter="abs_max")
    trained = replace(student, folder=tmp_path / "weights")
    expected = simulated(data, trained, scales, "abs_max", reduced=True)
    seven, eight = (int8(data, trained, scales, tmp_path / str(bits), reduced=bits == 7) for bits in (7, 8))
    assert apart(seven, expected) < 0.1 * apart(eight, expected)


@one_quanter
def test_queries_keys_and_values_end_with_one_range(name: str, tmp_path: Path) -> None:
    data, student = student_of(tmp_path, ONE)
    scales = {item.layer: item for item in relearnt(tmp_path, data, student, quanter=name)}
    assert len(scales) == 2 * 6 + 2
    for layer in range(2):
        parts = [scales[f"ernie.encoder.layers.{layer}.self_attn.{part}_proj"] for part in "qkv"]
        assert len({part.activation for part in parts}) == 1
        assert len({part.weight_sha256 for part in parts}) == 3


def test_it_goes_on_learning_and_leaves_the_student_as_it_was(tmp_path: Path) -> None:
    data, student = student_of(tmp_path, ONE)
    from edgepack.training.finetune import reopen

    def weights(folder: Path) -> dict[str, Float]:
        return {n: v.numpy() for n, v in reopen(replace(student, folder=folder), data).network.state_dict().items()}

    before = weights(student.folder)
    relearnt(tmp_path, data, student)
    after, now = weights(tmp_path / "weights"), weights(student.folder)
    assert before.keys() == after.keys()
    assert all(np.array_equal(value, now[name]) for name, value in before.items())
    moved = {name for name, value in before.items() if not np.array_equal(value, after[name])}
    assert {f"ernie.encoder.layers.{n}.self_attn.q_proj.weight" for n in range(2)} <= moved
    assert sorted(file.name for file in (tmp_path / "weights").iterdir() if file.name in ("vocab.txt", "config.json"))


@one_quanter
def test_a_training_that_was_killed_ends_with_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, student = student_of(tmp_path, ONE, SHAPE)
    from edgepack.training.quantization import qat

    expected = relearnt(tmp_path / "undisturbed", data, student, quanter=name)
    folder, said = tmp_path / "killed", Heard()
    with monkeypatch.context() as deadly, pytest.raises(Killed):
        deadly.setattr(qat, "Checkpoint", lambda place: Killing(place, 9))
        relearnt(folder, data, student, quanter=name)
    found = relearnt(folder, data, student, said, quanter=name)
    assert "train quantized: continues at step 9 of 14, where it was interrupted" in said.lines
    assert found == expected  # the digests of the weights among it
