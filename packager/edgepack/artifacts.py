"""Artifacts: the frozen dataclasses that stages hand on, each describing one folder of files.

A stage writes its files and `artifact.json` into its output folder; the next stage gets the dataclass back. Paths
are kept relative to the folder, so that a folder can be renamed into the workspace and carried to another machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from edgepack.errors import StageFailedError
from edgepack.recipe.model import AnswerKey, Prefer, TaskName
from edgepack.util.text import counted
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.spans import Span, tag_names


@dataclass(frozen=True)
class Check:
    """One content check that a bundle passed: what was found, and what the target allows ("<= 2.35"), if it says so.

    `package` is what it was about, where it was about one alone.
    """

    check: str
    found: str
    allowed: str = ""
    package: str = ""


@dataclass(frozen=True)
class Checks:
    """All of them, and what is not wrong and yet worth knowing, a sentence each."""

    passed: tuple[Check, ...] = ()
    told: tuple[str, ...] = ()

    def and_also(self, check: Check | None) -> Checks:
        """With one more, if it was made."""
        return self if check is None else replace(self, passed=(*self.passed, check))


MOST: Final = 20  # of each kind


@dataclass(frozen=True)
class Example:
    """A row in words: what is true, what the float model and the shipped one answer.

    `text` is the number of its line, `#17`, where the rows stay at home.
    `score` is the probability (0 to 1) that the shipped model gives to the truth: of several labels that of the label
    which it is the least right about; null for spans.
    """

    text: str
    truth: str
    float_answer: str
    answer: str
    score: float | None


@dataclass(frozen=True)
class Examples:
    """The golden rows that the shipped model answers otherwise than the float one, and those it is most wrong about.

    `changed` begins with rows that the float model has right; at most `MOST` of each kind are kept.
    """

    rows: int
    lost: int  # right in float, wrong as shipped
    won: int
    other: int  # another answer, and neither is right
    changed: tuple[Example, ...]
    wrong: tuple[Example, ...]


Method = Literal["ptq", "qat", "dynamic"]


def weight_digest(weight: npt.NDArray[np.generic]) -> str:
    """sha256 of a weight's float32 values, row-major, shape (in, out).

    Exporters rename parameters; the values are the one name that survives them.
    """
    return hashlib.sha256(np.ascontiguousarray(weight, dtype=np.float32).tobytes()).hexdigest()


@dataclass(frozen=True)
class LinearScales:
    """Quantization ranges of one Linear layer, from PaddleSlim's observers or quanters.

    `weight_sha256` is `weight_digest` of the weight; `weight_abs_max` has one entry an output column. `activation` is
    the lowest and the highest value of its input, or null where that is found in each run.
    """

    layer: str
    weight_sha256: str
    activation: tuple[float, float] | None
    weight_abs_max: tuple[float, ...]


@dataclass(frozen=True)
class Quantization:
    """One way to make a model INT8: the ranges of every Linear.

    `observer`, or of `qat` the quanter, decided those of activations; nobody where they are found in each run.
    `weights` is the folder, in that of the artifact, of a PaddleNLP model whose weights were trained to be rounded;
    null for the student's own.
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
class Tried:
    """A way to quantize on the dev rows: percentage points of the metric below float, and how far answers diverge.

    `divergence` is the mean over rows, in nats, of KL(answer of float || answer of INT8).
    """

    way: str
    drop_points: float
    divergence: float


@dataclass(frozen=True)
class PartCost:
    """What it costs that one part of a model is INT8: how much less answers diverge, in nats, where it alone is not."""

    part: str
    divergence: float


@dataclass(frozen=True)
class Int8Choice:
    """How the INT8 model came to be, by dev rows alone: the way that lost least, and the parts that went back to float.

    `parts` are in the order in which they would go back; `kept_float` are the first of them that did. `drop_points`
    is what is lost in the end; `limit_points` is what may be, null for anything.
    """

    tried: tuple[Tried, ...]
    way: str
    parts: tuple[PartCost, ...]
    kept_float: tuple[str, ...]
    drop_points: float
    limit_points: float | None
    dev_rows: int


ROWS_SUFFIX = ".rows.jsonl"  # in place of a bundle's: its golden rows, where they do not travel
ARTIFACT_FILE = "artifact.json"
Split = Literal["train", "dev", "test", "unlabelled"]
LABELLED: Final[tuple[Split, ...]] = ("train", "dev", "test")
SPLITS: Final[tuple[Split, ...]] = (*LABELLED, "unlabelled")
Answer = str | tuple[str, ...] | tuple[Span, ...]  # one label; any number of them, sorted; spans, sorted
Precision = Literal["float32", "float16", "int8"]
_SHELL_CHARACTERS = frozenset('"$`\\!\n\r')  # what a shell still reads inside double quotes
_EXAMPLE_CHARACTERS = 24


@dataclass(frozen=True)
class Row:
    """One labelled text, or pair of texts. `label` is () too where nobody gave one: in the unlabelled texts."""

    text: str
    label: Answer
    text_pair: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of labels in it, sorted, each once."""
        if isinstance(self.label, str):
            return (self.label,)
        return tuple(sorted({item.label if isinstance(item, Span) else item for item in self.label}))

    @property
    def item(self) -> str | tuple[str, str]:
        """What a model is asked about it."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, or both texts of a pair."""
        return (self.text,) if self.text_pair is None else (self.text, self.text_pair)

    def document(self, key: AnswerKey | None) -> dict[str, Any]:
        """The row as JSON: `text`, `text_pair` if there is one, and unless `key` is null the label under that key.

        A span is the list of its start, its end and its label.
        """
        document: dict[str, Any] = {"text": self.text}
        if self.text_pair is not None:
            document["text_pair"] = self.text_pair
        if key is not None:
            document[key] = self.label
        return document

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Row:
        """The row that `document` wrote down."""
        label: Answer = ()
        if "label" in document:
            label = document["label"]
        elif "labels" in document:
            label = tuple(document["labels"])
        elif "spans" in document:
            label = tuple(Span(*span) for span in document["spans"])
        return cls(document["text"], label, document.get("text_pair"))


@dataclass(frozen=True)
class Score:
    """A metric (0 to 1; names as in the runtime's `metrics`) with its interval at `confidence`, on `n` rows."""

    value: float
    low: float
    high: float
    n: int
    confidence: float
    metric: str = "accuracy"


def proportion(right: int, n: int, confidence: float = 0.95) -> Score:
    """The accuracy of `right` of `n`, with its interval."""
    bounds = intervals.proportion(right, n, confidence)
    return Score(right / n, bounds.low, bounds.high, n, confidence)


@dataclass(frozen=True)
class LedgerRow:
    """One row of the loss ledger: what a stage made of the model, and how far from the row before.

    `model_mib` is the file that holds the weights. `p50_ms` is text in to label out at batch 1, measured by the
    runtime; it is null for what the runtime cannot load.
    `parity` is the largest absolute difference of a logit to the row named in `parity_with`, on the same texts.
    `seconds` is what the training took; null where nothing was trained.
    """

    stage: str
    score: Score
    model_mib: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    parity: float | None = None
    parity_with: str | None = None
    note: str = ""
    seconds: float | None = None

    def timeless(self) -> LedgerRow:
        """The row without what a clock measured: a bundle's bytes follow from what it is made of alone."""
        return replace(self, p50_ms=None, p95_ms=None, seconds=None)


def mebibytes(size_bytes: int) -> float:
    """A file size as the ledger gives it."""
    return round(size_bytes / 2**20, 3)


@dataclass(frozen=True)
class Artifact:
    """Base: `folder` is where the files lie; it is not stored in `artifact.json` but set on load."""

    folder: Path


@dataclass(frozen=True)
class DataArtifact(Artifact):
    """`{train,dev,test}.jsonl`, one `Row.document` a line, and the sorted label set.

    `unlabelled.jsonl` is there, and in `rows`, when the recipe names such texts. `labels` are the names that rows hold;
    what a model answers with are `model_labels`. `multi_label`: a text may have any number of labels.
    `token_counts` has, for each split of the source, how many of its texts have how many tokens, as estimated by
    `datasets.lengths`: `Lengths(token_counts["train"])` answers with percentiles.
    """

    labels: tuple[str, ...]
    rows: dict[Split, int]
    warnings: tuple[str, ...]
    token_counts: dict[Split, dict[int, int]] = field(default_factory=dict)
    task: TaskName = "text-classification"
    multi_label: bool = False

    @property
    def answer(self) -> AnswerKey:
        """What the labels of its rows are called in JSON."""
        if self.task == "token-classification":
            return "spans"
        return "labels" if self.multi_label else "label"

    @property
    def model_labels(self) -> tuple[str, ...]:
        """One for each output of a model, in its order: `labels`, or their BIO tags where tokens are classified."""
        return tag_names(self.labels) if self.task == "token-classification" else self.labels

    def read(self, split: Split) -> list[Row]:
        """All rows of one split, in file order."""
        with (self.folder / f"{split}.jsonl").open(encoding="utf-8") as lines:
            return [Row.of(json.loads(line)) for line in lines]

    def example(self, *, own: bool = True) -> str:
        """The beginning of a test text, or of both texts of a pair, as typed in a shell to try the model with.

        Unless it may be one of its `own`, it is a greeting.
        """
        pairs = self.task == "text-pair-classification"
        texts = ([row.text, row.text_pair or ""][: 1 + pairs] for row in (self.read("test") if own else ()))
        plain = (several for several in texts if not set("".join(several)) & _SHELL_CHARACTERS)
        return " ".join(f'"{text[:_EXAMPLE_CHARACTERS]}"' for text in next(plain, ["你好", "您好"][: 1 + pairs]))


@dataclass(frozen=True)
class Usage:
    """What a training ran on and what it took.

    `tokens_per_second` are tokens of texts, padding not counted, over the seconds of its steps; `padding_share` (0 to
    1) is how much of what was computed was padding. `peak_memory_mib` is of the GPU, or on a CPU of the whole process.
    `gpu_utilisation_percent` is a mean over samples during steps; null on a CPU, or if the driver does not tell.
    """

    device: str
    precision: str
    tokens_per_second: float
    padding_share: float
    peak_memory_mib: float
    gradient_accumulation: int  # parts of a step at the end: more than asked for if memory ran out
    gpu_utilisation_percent: float | None = None


@dataclass(frozen=True)
class ModelArtifact(Artifact):
    """A trained model: a PaddleNLP folder (`config.json`, `model_state.pdparams`, `vocab.txt`)."""

    labels: tuple[str, ...]
    max_length: int
    parameters: int
    weight_bytes: int
    steps: int
    train_seconds: float
    dev_score: Score
    test_score: Score  # in the metric that such models are compared by
    test_scores: dict[str, Score]  # in every metric that a gate may judge by, that one included
    epochs: int  # begun, and the best of them on dev, from 1
    best_epoch: int
    usage: Usage

    @property
    def test_metrics(self) -> dict[str, float]:
        """The test scores without their intervals, 0 to 1."""
        return {metric: round(score.value, 6) for metric, score in self.test_scores.items()}


@dataclass(frozen=True)
class ScalesArtifact(Artifact):
    """What PaddleSlim decided: the ways that the export tries. None when nothing is quantized."""

    ways: tuple[Quantization, ...]
    calibration_rows: int


@dataclass(frozen=True)
class ModelFile:
    """One exported model as the runtime loads it: a folder with `model.onnx`, `model.json` and `vocab.txt`."""

    folder: str  # relative to the artifact's folder
    precision: Precision
    onnx_bytes: int
    ledger: LedgerRow
    scores: dict[str, Score]  # on the test rows, in every metric that a gate may judge by

    def row(self, metric: str | None) -> LedgerRow:
        """Its row of the ledger with the score in `metric`; null is what such models are compared by."""
        return self.ledger if metric is None else replace(self.ledger, score=self.scores[metric])


@dataclass(frozen=True)
class Variation:
    """A model for targets that compute otherwise than the machine that builds: on a GPU, or without INT8 instructions.

    It was scored here, on a CPU, and not timed. `reason` says why it is what it is.
    """

    targets: tuple[str, ...]
    model: ModelFile
    reason: str


@dataclass(frozen=True)
class ExportArtifact(Artifact):
    """`paddle/` (static graph), `onnx-float/`, and where less was asked for `onnx-int8/` or `onnx-fp16/`."""

    static_graph: LedgerRow
    float_model: ModelFile
    small_model: ModelFile | None
    shipped: Precision
    reason: str  # why that one ships, with the figures that decided
    int8: Int8Choice | None = None  # how `small_model`, if it is that, came to be what it is
    variations: tuple[Variation, ...] = ()

    def for_target(self, target: str) -> ExportArtifact:
        """The same with what ships to one target in the place of what ships to most."""
        found = next((one for one in self.variations if target in one.targets), None)
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
        """Every file that was measured, the float one first."""
        small = (self.small_model,) if self.small_model is not None else ()
        return (self.float_model, *small)

    @property
    def shipped_model(self) -> ModelFile:
        """The file that goes into the bundle."""
        return next(model for model in self.models if model.precision == self.shipped)


@dataclass(frozen=True)
class BundleArtifact(Artifact):
    """One signed-format bundle for one target."""

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
        """The golden rows of a bundle that does not carry them."""
        return None if self.rows_name is None else self.folder / self.rows_name


@dataclass(frozen=True)
class GateArtifact(Artifact):
    """What the bundle's own `gate` verb said on the target; the receipt is `receipt.json`."""

    target: str
    exit_code: int
    verdict: Literal["pass", "fail", "inconclusive"]
    ledger: LedgerRow
    receipt: dict[str, Any]


A = TypeVar("A", bound=Artifact)


def save(artifact: Artifact) -> None:
    """Write `artifact.json` into the artifact's folder."""
    adapter: TypeAdapter[Any] = TypeAdapter(type(artifact))
    document = adapter.dump_python(artifact, mode="json")
    del document["folder"]
    text = json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False)
    (artifact.folder / ARTIFACT_FILE).write_text(text + "\n", encoding="utf-8")


def load(kind: type[A], folder: Path) -> A:
    """Read the artifact of `kind` back from `folder`.

    Raises:
        StageFailedError: when `artifact.json` is missing or does not describe a `kind`.
    """
    adapter: TypeAdapter[A] = TypeAdapter(kind)
    try:
        document = json.loads((folder / ARTIFACT_FILE).read_text(encoding="utf-8"))
        return adapter.validate_python({**document, "folder": folder}, strict=False)
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise StageFailedError(
            f"{folder / ARTIFACT_FILE} does not hold a {kind.__name__}", why=str(error), fix="build again"
        ) from error


def moved(artifact: A, folder: Path) -> A:
    """The same artifact at another place."""
    assert any(f.name == "folder" for f in fields(artifact))
    return replace(artifact, folder=folder)


@dataclass(frozen=True)
class NarrowedArtifact(ModelArtifact):
    """A student that was cut to a part of its width and trained once more. What is said of a training is of that one.

    Heads and neurons are those of each layer.
    """

    heads: int
    heads_before: int
    neurons: int
    neurons_before: int
    dev_score_before: Score

    @property
    def cost(self) -> str:
        """What went and what that did on the dev rows, in words."""
        heads = f"{self.heads_before} -> {counted(self.heads, 'head')}"
        neurons = f"{self.neurons_before:,} -> {self.neurons:,} neurons a layer"
        return f"{heads}, {neurons}; {_on_dev(self.dev_score_before, self.dev_score)}"


@dataclass(frozen=True)
class PrunedArtifact(ModelArtifact):
    """A student with fewer tokens in its vocabulary. What is said of its training is the student's.

    `unknown` and `unknown_before` are the shares (0 to 1) of the dev rows' tokens that are [UNK].
    """

    tokens: int  # rows of the word embedding
    tokens_before: int
    dev_score_before: Score
    unknown: float
    unknown_before: float

    @property
    def cost(self) -> str:
        """What went and what that did on the dev rows, in words."""
        tokens = f"{self.tokens_before:,} -> {self.tokens:,} tokens"
        lost = f"[UNK] {100 * self.unknown_before:.2f} -> {100 * self.unknown:.2f} % of dev tokens"
        return f"{tokens}; {_on_dev(self.dev_score_before, self.dev_score)}; {lost}"


def _on_dev(before: Score, after: Score) -> str:
    return f"dev {100 * before.value:.1f} -> {100 * after.value:.1f} %"


@dataclass(frozen=True)
class Compared:
    """What is known of a candidate when one is chosen: nothing of it comes from the answers to test rows.

    `dev_score`, `precision`, `onnx_bytes` and the times (text in to label out, batch 1, one thread, all
    candidates interleaved) are of the file that would ship, by the runtime; `p95_ms` is null where texts are too few.
    `missed` names the gates that it misses, as far as dev rows and the machine of the build can tell.
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
class SelectArtifact(Artifact):
    """Which of several candidates goes on, and why, in words.

    `left_out` failed, for `untried` there was no time; `not_judged` are gates that could not be judged, and why not.
    `tolerance_points` is null where a dev score may be any distance below the best.
    """

    candidates: tuple[Compared, ...]  # in the order of the recipe
    chosen: str  # name of one of them
    why: str
    tolerance_points: float | None
    prefer: Prefer = "latency"
    left_out: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
