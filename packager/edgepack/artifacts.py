"""Artifacts: frozen dataclasses that describe the output folder of each stage.

A stage writes its files and `artifact.json` into its folder; later stages get the dataclass. Paths are relative to the
folder, so that it can be moved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter, ValidationError

from edgepack.calibration import Reliability, ScoreCalibration
from edgepack.errors import StageFailedError
from edgepack.messages import Sentence, joined, message
from edgepack.recipe.model import Prefer, SplitName
from edgepack_runtime.bundle.model_config import CASCADE, LinearConfig
from edgepack_runtime.schema.figures import quantity
from edgepack_runtime.schema.receipt import GateReceipt
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import Answer, metric_of
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name
from edgepack_runtime.tasks.task import Task

Members = dict[str, Path | bytes]  # files of a release, by path


@dataclass(frozen=True)
class ContentCheck:
    """One content check that a bundle passed: the value found, and the target's limit ("<= 2.35") if there is one.

    `package` is set if the check was about one package.
    """

    check: Sentence
    found: Sentence
    allowed: Sentence = ""
    package: str = ""


@dataclass(frozen=True)
class Checks:
    """The content checks of a bundle, and notes that are no faults."""

    passed: tuple[ContentCheck, ...] = ()
    notes: tuple[Sentence, ...] = ()

    def and_also(self, check: ContentCheck | None) -> Checks:
        """The checks with another one, unless it is None."""
        return self if check is None else replace(self, passed=(*self.passed, check))


MAX_EXAMPLES: Final = 20  # that a report shows of each kind


@dataclass(frozen=True)
class Example:
    """A golden row with its true answer and those of the float model and the shipped model.

    Attributes:
        text: the text; the number of the row, `#17`, if the bundle does not carry its rows.
        float_answer: None if there is no float model.
        score: probability (0 to 1) of the true answer in the shipped model; the lowest one of several labels; None for
            spans.
    """

    text: str
    truth: str
    float_answer: str | None
    answer: str
    score: float | None


@dataclass(frozen=True)
class Examples:
    """Golden rows whose answers changed from float to shipped, and the worst errors: at most `MAX_EXAMPLES` each.

    `changed` starts with rows that the float model answers correctly. `compared`: there is a float model.
    """

    rows: int
    lost: int  # correct in float, wrong in the shipped model
    won: int
    other: int  # different answers, both wrong
    changed: tuple[Example, ...]
    wrong: tuple[Example, ...]
    compared: bool = True


Method = Literal["ptq", "qat", "dynamic"]


def weight_digest(weight: npt.NDArray[np.generic]) -> str:
    """sha256 of a weight's float32 values, row-major, shape (in, out).

    It identifies a weight after exporters have renamed it.
    """
    return hashlib.sha256(np.ascontiguousarray(weight, dtype=np.float32).tobytes()).hexdigest()


@dataclass(frozen=True)
class LinearScales:
    """Quantization ranges of one Linear layer, from PaddleSlim's observers or quanters.

    Attributes:
        weight_sha256: `weight_digest` of the weight.
        activation: lowest and highest value of its input; None if each run computes them.
        weight_abs_max: largest magnitude of each output column.
    """

    layer: str
    weight_sha256: str
    activation: tuple[float, float] | None
    weight_abs_max: tuple[float, ...]


@dataclass(frozen=True)
class Quantization:
    """One way to quantize a model: the ranges of every Linear.

    Attributes:
        observer: name of the observer (of the quanter for `qat`) of activations; None if each run computes ranges.
        weights: folder, relative to the artifact's, of the PaddleNLP model that `qat` trained; None for the student's
            weights.
    """

    method: Method
    observer: str | None
    linears: tuple[LinearScales, ...]
    weights: str | None = None

    @property
    def name(self) -> str:
        """`ptq (hist)`, `qat (lsq)`, `dynamic`."""
        return self.method if self.observer is None else f"{self.method} ({self.observer})"


@dataclass(frozen=True)
class Trial:
    """A method to quantize, measured on the dev rows.

    Attributes:
        drop_points: percentage points of the metric below float.
        divergence: mean over rows of KL(answer of float || answer of INT8), in nats.
    """

    method: str
    drop_points: float
    divergence: float


@dataclass(frozen=True)
class PartCost:
    """The cost of one INT8 part: how much less the answers diverge, in nats, if this part alone is float."""

    part: str
    divergence: float


@dataclass(frozen=True)
class Int8Choice:
    """Record of the INT8 search on dev rows.

    Attributes:
        trials: all methods to quantize; `method` is the one that loses least.
        parts: the cost of each part, the most expensive first.
        kept_float: the parts that returned to float.
        drop_points: loss of the final model; `limit_points` is the allowed loss, None without a limit.
    """

    trials: tuple[Trial, ...]
    method: str
    parts: tuple[PartCost, ...]
    kept_float: tuple[str, ...]
    drop_points: float
    limit_points: float | None
    dev_rows: int


ROWS_SUFFIX = ".rows.jsonl"  # of the golden rows beside a bundle that does not carry them
ARTIFACT_FILE = "artifact.json"
EXAMPLES_FILE: Final = "examples.jsonl"
SCORES_FILE: Final = "scores.json"  # of the shipped and the float model on the examples
METRICS_FILE: Final = "metrics.json"  # of a training: name -> [step, value] pairs
EVENTS_PREFIX: Final = "events.out.tfevents."  # of a training's TensorBoard files
Split = Literal[SplitName, "unlabelled"]
SPLITS: Final[tuple[Split, ...]] = get_args(Split)
Precision = Literal["float32", "float16", "int8"]
_SHELL_CHARACTERS = frozenset('"$`\\!\n\r')  # special to a shell inside double quotes
_EXAMPLE_CHARACTERS = 24


@dataclass(frozen=True)
class Row:
    """One labelled text or pair of texts. `label` is () in unlabelled texts."""

    text: str
    label: Answer
    text_pair: str | None = None

    @property
    def item(self) -> str | tuple[str, str]:
        """The input of a model: the text, or the pair of texts."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of a pair."""
        return (self.text,) if self.text_pair is None else (self.text, self.text_pair)

    def document(self, key: str | None) -> dict[str, Any]:
        """The row as JSON: `text`, `text_pair` if there is one, and the label as `key` unless that is None.

        A span is a list of start, end and label.
        """
        document: dict[str, Any] = {"text": self.text}
        if self.text_pair is not None:
            document["text_pair"] = self.text_pair
        if key is not None:
            document[key] = self.label
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any], task: Task) -> Row:
        """The row of a `document`, which may have no label."""
        label: Answer = task.answer_of(document[task.answer_key]) if task.answer_key in document else ()
        return cls(document["text"], label, document.get("text_pair"))


class Scale(NamedTuple):
    """A linear function of numbers: `factor` x number + `shift`."""

    factor: float = 1.0
    shift: float = 0.0

    @property
    def inverse(self) -> Scale:
        """The function that undoes it."""
        return Scale(1 / self.factor, -self.shift / self.factor)


NO_SCALE: Final = Scale()


@dataclass(frozen=True)
class Score:
    """A metric with its interval at `confidence`, on `n` rows. Names are those of the runtime's `metrics`."""

    value: float
    low: float
    high: float
    n: int
    confidence: float
    metric: str = "accuracy"

    @property
    def unit(self) -> str:
        """The unit of its figures."""
        return metric_of(self.metric).unit

    def gain_over(self, other: Score) -> float:
        """How much better it is than `other`, in the unit of the metric."""
        gain = self.value - other.value
        return gain if metric_of(self.metric).more_is_better else -gain


def proportion(right: int, n: int, confidence: float = intervals.CONFIDENCE) -> Score:
    """The accuracy of `right` of `n`, with its interval."""
    bounds = intervals.proportion(right, n, confidence)
    return Score(right / n, bounds.low, bounds.high, n, confidence)


@dataclass(frozen=True)
class LedgerRow:
    """One row of the ledger: a form of the model with its score and cost.

    Attributes:
        model_mib: size of the file with the weights.
        mean_ms, p50_ms, p95_ms: latency from text to label at batch 1, measured by the runtime; None if it cannot load
            the form.
        parity: largest absolute difference of a logit to the row `parity_with`, on the same texts.
        seconds: time of the training; None if nothing was trained.
    """

    stage: str
    score: Score
    model_mib: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    parity: float | None = None
    parity_with: str | None = None
    note: Sentence = ""
    seconds: float | None = None
    mean_ms: float | None = None

    def timeless(self) -> LedgerRow:
        """The row without measured times, so that equal inputs give equal bundles."""
        return replace(self, mean_ms=None, p50_ms=None, p95_ms=None, seconds=None)


def mebibytes(size_bytes: int) -> float:
    """A file size in MiB, rounded as in the ledger."""
    return round(size_bytes / 2**20, 3)


@dataclass(frozen=True)
class Artifact:
    """Base class. `folder` holds the files; it is set on load and not stored in `artifact.json`."""

    folder: Path


def split_file(split: Split) -> str:
    """Name of the file with the rows of a split."""
    return f"{split}.jsonl"


@dataclass(frozen=True)
class DataArtifact(Artifact):
    """`{train,dev,test}.jsonl` with one `Row.document` per line, and `unlabelled.jsonl` if the recipe names such texts.

    Attributes:
        labels: sorted names of the labels in the rows; `model_labels` are the outputs of a model.
        rows: number of rows of each split.
        token_counts: for each split of the source, estimated number of tokens -> number of texts
            (`data.lengths.Lengths` computes percentiles).
        multi_label: whether a text may have any number of labels.
        scale: of the numbers of the training rows, if their answers are numbers (`TrainingTask`).
        rule: the test scores of the task's rule in every metric; empty if it has none (`Task.rule_answer`).
    """

    labels: tuple[str, ...]
    rows: dict[Split, int]
    warnings: tuple[Sentence, ...]
    token_counts: dict[Split, dict[int, int]] = field(default_factory=dict)
    task: str = ONE_TEXT
    multi_label: bool = False
    scale: Scale = NO_SCALE
    rule: dict[str, Score] = field(default_factory=dict)

    @property
    def text_task(self) -> Task:
        """What the items and answers of its rows are."""
        return task_by_name(self.task, multi_label=self.multi_label)

    @property
    def model_labels(self) -> tuple[str, ...]:
        """The labels of a model, in the order of its logits."""
        return self.text_task.model_labels(self.labels)

    def file(self, split: Split) -> Path:
        """The file of the rows of one split, one JSON object per line."""
        return self.folder / split_file(split)

    def read(self, split: Split) -> list[Row]:
        """All rows of one split, in file order."""
        with self.file(split).open(encoding="utf-8") as lines:
            return [Row.from_document(json.loads(line), self.text_task) for line in lines]

    def example(self, *, from_test_rows: bool = True) -> str:
        """An example text (or both of a pair), quoted for a shell: the beginning of a test text, or else a greeting."""
        pairs = self.text_task.pairs
        texts = ([row.text, row.text_pair or ""][: 1 + pairs] for row in (self.read("test") if from_test_rows else ()))
        plain = (several for several in texts if not set("".join(several)) & _SHELL_CHARACTERS)
        return " ".join(f'"{text[:_EXAMPLE_CHARACTERS]}"' for text in next(plain, ["你好", "您好"][: 1 + pairs]))


@dataclass(frozen=True)
class ExamplesArtifact(Artifact):
    """`examples.jsonl` with one `item` or `file` and the `expected` answer per line, and the files in `files/`.

    Attributes:
        item: what the handler reads: `text`, `json` or `file`.
        rows: number of examples.
    """

    item: str
    rows: int

    def read(self) -> list[dict[str, Any]]:
        """The examples in the order of the file; the path of a file is relative to the folder."""
        with (self.folder / EXAMPLES_FILE).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Usage:
    """Device and resources of a training.

    Attributes:
        tokens_per_second: tokens without padding per second of training steps.
        padding_share: share (0 to 1) of padding among all computed tokens.
        peak_memory_mib: memory of the GPU; of the process on a CPU.
    """

    device: str
    precision: str
    tokens_per_second: float
    padding_share: float
    peak_memory_mib: float
    gradient_accumulation: int  # parts of a step at the end; increased if memory ran out


@dataclass(frozen=True)
class ModelArtifact(Artifact):
    """A trained model: a PaddleNLP folder (`config.json`, `model_state.pdparams`, `vocab.txt`).

    Ledger, report and MLflow list every stage that makes one.

    Attributes:
        row: its name there; None for the name of its stage.
        is_trained: whether its stage trained it and wrote `METRICS_FILE`; else the figures of a training are those of
            the model before it, and only the ledger lists it.
    """

    row: ClassVar[str | None] = None
    is_trained: ClassVar[bool] = True
    labels: tuple[str, ...]
    max_length: int
    parameters: int
    weight_bytes: int
    steps: int
    train_seconds: float
    dev_score: Score
    test_score: Score  # in the metric of `evaluation.metric_of`
    test_scores: dict[str, Score]  # in every metric of the task
    epochs: int
    best_epoch: int  # on dev, from 1
    usage: Usage
    calibration: ScoreCalibration | None  # None for a teacher, which keeps its logits

    @classmethod
    def row_of(cls, stage: str) -> str:
        """The name of the row of what `stage` made."""
        return cls.row or stage

    @property
    def note(self) -> str:
        """What its row of the ledger says of it."""
        note = message("note.weights", millions=self.parameters / 1e6, steps=self.steps)
        return note if self.calibration is None else joined(note, self.calibration.text)

    @property
    def test_metrics(self) -> dict[str, float]:
        """The test scores (0 to 1) without intervals."""
        return {metric: round(score.value, 6) for metric, score in self.test_scores.items()}


@dataclass(frozen=True)
class LoadedArtifact(ModelArtifact):
    """A model that was trained elsewhere, with its head. It keeps its logits. The figures of a training are 0."""

    is_trained = False

    @property
    def note(self) -> str:
        return message("note.loaded", millions=self.parameters / 1e6)


@dataclass(frozen=True)
class LinearArtifact(Artifact):
    """A linear model on the characters of a text, `linear.json` of the runtime."""

    ngrams: int
    regularisation: float  # C of LinearSVC
    file_bytes: int
    train_seconds: float
    test_score: Score  # in the metric of `evaluation.metric_of`
    test_scores: dict[str, Score]  # in every metric of the task


@dataclass(frozen=True)
class Gain:
    """How much better a model is than another on the same rows, in percentage points, with its interval."""

    points: float
    low: float
    high: float
    confidence: float

    def over(self, name: str, other: str) -> str:
        """`it is better than a linear model by 1.3 points (0.2 to 2.4)`, or that there is no evidence of it."""
        points, low, high = self.points, self.low, self.high
        if low > 0:
            return message("gain.better", name=name, other=other, points=abs(points), low=low, high=high)
        if high < 0:
            return message("gain.worse", name=name, other=other, points=abs(points), low=-high, high=-low)
        return message("gain.none", name=name, other=other, points=points, low=low, high=high)


@dataclass(frozen=True)
class Judged:
    """What the accuracy gates of the recipe say about a model on some rows.

    Attributes:
        verdict: of all gates: `pass`, `fail` (shown to miss one) or `inconclusive`.
        missed: the gates whose limit the measured value misses, shown or not, each with both.
    """

    verdict: str
    missed: tuple[str, ...]

    @property
    def rank(self) -> int:
        """0: every value keeps its limit; 1: one misses it, within its interval; 2: one is shown to miss it."""
        return 2 if self.verdict == intervals.FAIL else 1 if self.missed else 0


CombineName = Literal["encoder", "ensemble", "cascade", "linear"]
NOT_WORSE_POINTS: Final = 0.5  # the cheaper model is advised if it is shown to lose no more


@dataclass(frozen=True)
class CombineMethod:
    """One method to answer: with the encoder, the linear model, or both.

    Attributes:
        dev_value: its dev score in the metric of the build (0 to 1).
        noise_points: one standard error of the difference between its dev score and the encoder's.
        on_dev, on_test: what the accuracy gates say about it; of the linear model without `max_drop_points`.
        gains: how much better it is than the linear model alone on the test rows, by metric.
        gains_over_encoder: how much better it is than the encoder alone, likewise.
        share: share (0 to 1) of the test rows that the linear model answers alone.
        weight_bytes: of the encoder and the linear model, as far as it uses them.
        mean_ms, p50_ms, p95_ms: text to answer, batch 1, one thread, all methods interleaved; None: too few texts.
    """

    name: CombineName
    dev_value: float
    noise_points: float
    on_dev: Judged
    on_test: Judged
    test_scores: dict[str, Score]  # in every metric of the task
    gains: dict[str, Gain]
    gains_over_encoder: dict[str, Gain]
    reliability: Reliability | None  # on the test rows; None if the answers are no probabilities
    share: float
    weight_bytes: int
    mean_ms: float
    p50_ms: float
    p95_ms: float | None


@dataclass(frozen=True)
class CombineFit:
    """Parameters of the encoder and the linear model together, fitted on dev.

    Attributes:
        encoder_weight, linear_weight: of the logits in the sum.
        least_lead: of the linear model's logits, from which it answers alone in a cascade.
    """

    encoder_weight: float
    linear_weight: float
    least_lead: float

    def config(self, name: CombineName) -> LinearConfig | None:
        """`linear` of the `model.json` of one method with an encoder; None for the encoder alone."""
        if name == "encoder":
            return None
        return LinearConfig(name, self.encoder_weight, self.linear_weight, self.least_lead if name == CASCADE else 0.0)


@dataclass(frozen=True)
class CombineArtifact(Artifact):
    """The methods to answer with the shipped encoder and the linear model, and the one that ships, with the reason."""

    metric: str  # of the build
    fit: CombineFit
    methods: tuple[CombineMethod, ...]
    chosen: CombineName
    why: Sentence

    def instead(self, metric: str | None = None) -> tuple[CombineName, str] | None:
        """What to ship in place of the chosen method, and why; None if nothing is shown to be as good.

        It must keep the accuracy gates on the test rows, on which the two are compared.

        Args:
            metric: None for that of the build.
        """
        ships, linear = self.ships, self.method("linear")
        gain = ships.gains[metric or self.metric]
        over_encoder = ships.gains_over_encoder[metric or self.metric]
        chosen = message(f"name.{self.chosen}")
        if over_encoder.high < 0 and self.method("encoder").on_test.rank == 0:
            return "encoder", over_encoder.over(chosen, message("name.encoder_alone"))
        if gain.high > NOT_WORSE_POINTS or linear.on_test.rank > 0:
            return None
        small, large = (mebibytes(method.weight_bytes) for method in (linear, ships))
        speed = ships.mean_ms / linear.mean_ms
        return "linear", joined(
            gain.over(chosen, message("name.linear_alone")),
            message("gain.linear_instead", speed=speed, small=small, large=large),
        )

    @property
    def ships(self) -> CombineMethod:
        """The figures of the method that ships."""
        return self.method(self.chosen)

    def method(self, name: CombineName) -> CombineMethod:
        """The figures of one method."""
        return next(method for method in self.methods if method.name == name)

    @property
    def config(self) -> LinearConfig | None:
        """`linear` of the `model.json` that ships; None for the encoder alone."""
        return self.fit.config(self.chosen)


@dataclass(frozen=True)
class ScalesArtifact(Artifact):
    """The ways to quantize that the export tries; empty if nothing is quantized."""

    ways: tuple[Quantization, ...]
    calibration_rows: int


@dataclass(frozen=True)
class ModelFile:
    """One exported model: a folder with `model.onnx`, `model.json` and `vocab.txt` for the runtime."""

    folder: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]  # in the artifact's folder
    precision: Precision
    onnx_bytes: int
    ledger: LedgerRow
    scores: dict[str, Score]  # on the test rows, in every metric of the task

    def row(self, metric: str | None) -> LedgerRow:
        """Its row of the ledger with the score in `metric`; None keeps the metric of the build."""
        return self.ledger if metric is None else replace(self.ledger, score=self.scores[metric])


@dataclass(frozen=True)
class Variation:
    """A model for targets with other arithmetic than this machine: a GPU, or a CPU without INT8 instructions.

    This machine's CPU scored it and did not time it. `reason` explains its precision.
    """

    targets: tuple[str, ...]
    model: ModelFile
    reason: Sentence


@dataclass(frozen=True)
class ExportArtifact(Artifact):
    """`paddle/` (static graph), `onnx-float/`, and a smaller form in `onnx-int8/` or `onnx-fp16/`.

    An imported model has no `static_graph`.
    """

    static_graph: LedgerRow | None
    float_model: ModelFile
    small_model: ModelFile | None
    shipped: Precision
    reason: Sentence  # why that one ships, with figures
    int8: Int8Choice | None = None  # the search for `small_model`, if it is INT8
    variations: tuple[Variation, ...] = ()

    def for_target(self, target: str) -> ExportArtifact:
        """The artifact with the model that ships to `target`."""
        found = next((variation for variation in self.variations if target in variation.targets), None)
        if found is None:
            return self
        is_float = found.model.precision == "float32"
        return replace(
            self,
            float_model=found.model if is_float else self.float_model,
            small_model=None if is_float else found.model,
            shipped=found.model.precision,
            reason=found.reason,
            int8=None,
        )

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """Every measured model, the float one first."""
        small = (self.small_model,) if self.small_model is not None else ()
        return (self.float_model, *small)

    @property
    def shipped_model(self) -> ModelFile:
        """The model for the bundle."""
        return next(model for model in self.models if model.precision == self.shipped)


@dataclass(frozen=True)
class BundleArtifact(Artifact):
    """One bundle for one target."""

    file_name: str
    target: str
    bundle_bytes: int
    unpacked_bytes: int
    manifest_sha256: str
    bytes_by_part: dict[str, int]  # compressed bytes of model, site, runtime, golden, other
    checks: Checks = field(default_factory=Checks)
    libc_min: str = ""  # oldest glibc that its binaries load on
    examples: Examples | None = None
    rows_name: str | None = None  # of the file beside it with its golden rows, where they do not travel

    @property
    def path(self) -> Path:
        return self.folder / self.file_name

    @property
    def rows_path(self) -> Path | None:
        """The file with the golden rows of a bundle that does not carry them; else None."""
        return None if self.rows_name is None else self.folder / self.rows_name


@dataclass(frozen=True)
class GateArtifact(Artifact):
    """The result of the bundle's own `gate` verb. The receipt is `receipt.json`."""

    target: str
    exit_code: int
    verdict: intervals.Verdict
    ledger: LedgerRow
    receipt: dict[str, Any]

    @cached_property
    def gated(self) -> GateReceipt:
        """The receipt, read."""
        return GateReceipt.parse(self.receipt)


A = TypeVar("A", bound=Artifact)


def save(artifact: Artifact) -> None:
    """Write `artifact.json` into the artifact's folder."""
    handler: TypeAdapter[Any] = TypeAdapter(type(artifact))
    document = handler.dump_python(artifact, mode="json")
    del document["folder"]
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    (artifact.folder / ARTIFACT_FILE).write_text(text + "\n", encoding="utf-8")


def load(kind: type[A], folder: Path) -> A:
    """Read the artifact of `kind` from `folder`.

    Raises:
        StageFailedError: `artifact.json` is missing, or does not describe a `kind`.
    """
    handler: TypeAdapter[A] = TypeAdapter(kind)
    try:
        document = json.loads((folder / ARTIFACT_FILE).read_text(encoding="utf-8"))
        return handler.validate_python({**document, "folder": folder}, strict=False)
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise StageFailedError(
            f"{folder / ARTIFACT_FILE} does not hold a {kind.__name__}", why=str(error), fix="build again"
        ) from error


def moved(artifact: A, folder: Path) -> A:
    """The artifact in another folder."""
    assert any(f.name == "folder" for f in fields(artifact))
    return replace(artifact, folder=folder)


@dataclass(frozen=True)
class WidthPrunedArtifact(ModelArtifact):
    """A student that was pruned in width and trained again: figures of this training, heads and neurons per layer."""

    row = "width-pruned"
    heads: int
    heads_before: int
    neurons: int
    neurons_before: int
    dev_score_before: Score

    @property
    def cost(self) -> str:
        """The reduction and its effect on the dev rows, in words."""
        widths = {name: getattr(self, name) for name in ("heads", "heads_before", "neurons", "neurons_before")}
        return joined(message("note.width", **widths), _on_dev(self.dev_score_before, self.dev_score))

    @property
    def note(self) -> str:
        return joined(super().note, self.cost)


@dataclass(frozen=True)
class TrimmedArtifact(ModelArtifact):
    """A student with a smaller vocabulary. Training figures are the student's.

    `unknown` and `unknown_before` are shares (0 to 1) of [UNK] among the tokens of the dev rows.
    """

    row = "trimmed"
    is_trained = False
    tokens: int  # rows of the word embedding
    tokens_before: int
    dev_score_before: Score
    unknown: float
    unknown_before: float

    @property
    def cost(self) -> str:
        """The reduction and its effect on the dev rows, in words."""
        lost = message("note.unknown", before=100 * self.unknown_before, after=100 * self.unknown)
        tokens = message("note.tokens", before=self.tokens_before, after=self.tokens)
        return joined(tokens, _on_dev(self.dev_score_before, self.dev_score), lost)

    @property
    def note(self) -> str:
        return message("note.vocabulary", cost=self.cost)


def _on_dev(before: Score, after: Score) -> str:
    return f"dev {quantity(before.value, before.unit, with_unit=False)} -> {quantity(after.value, after.unit)}"


@dataclass(frozen=True)
class Compared:
    """Figures of a candidate for the choice between candidates. None of them is from test rows.

    Score, size and latency (text to label, batch 1, one thread, candidates interleaved) are of the model that would
    ship. `p95_ms` is None if there are too few texts. `missed` names the gates that it misses on dev rows and on this
    machine.
    """

    name: str
    dev_score: Score
    parameters: int
    weight_bytes: int
    train_seconds: float
    precision: Precision
    onnx_bytes: int
    p50_ms: float
    p95_ms: float | None
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """The chosen candidate, with the reason in words.

    `left_out` failed. `not_judged` are gates that could not be judged, with reasons.
    `tolerance_points` is None if the distance from the best dev score has no limit.
    """

    candidates: tuple[Compared, ...]  # in the order of the recipe
    chosen: str  # name of one of them
    why: Sentence
    tolerance_points: float | None
    prefer: Prefer = "latency"
    left_out: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectArtifact(Selection, Artifact):
    """The choice between the candidates of a search."""
