"""Model of recipe format 1: the source of validation, defaults, the JSON Schema and the reference page.

A `Recipe` is frozen and resolved: defaults are filled in and paths are absolute. `recipe.loader` makes it and reports
errors as findings with file and line. Unknown keys are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo

from edgepack.recipe.gates import Gates
from edgepack.recipe.section import MEANT, FilePath, Section, beside
from edgepack.recipe.training import Qat, Student, Teacher
from edgepack_runtime.bundle.manifest import NAME, VERSION
from edgepack_runtime.bundle.model_config import CUSTOM, GRAPH_NAME
from edgepack_runtime.schema.gates import AccuracyLimits
from edgepack_runtime.schema.maxima import MAX_TOKENS
from edgepack_runtime.tasks.registry import TASKS, TaskName, task_by_answer_key, task_by_name, tasks_named
from edgepack_runtime.tasks.task import Task

BUILTIN_PREFIX = "builtin:"
Prefer = Literal["latency", "size"]
HeldOut = Literal["dev", "test"]
HELD_OUT: Final[tuple[HeldOut, ...]] = get_args(HeldOut)
SplitName = Literal["train", HeldOut]
SPLIT_NAMES: Final[tuple[SplitName, ...]] = get_args(SplitName)
CALIBRATION_ROWS: Final = 256
LEAST_CALIBRATION_ROWS: Final = 8
MOST_DEV_ROWS: Final = 500  # of those that are drawn from the test rows
MOST_RUNS: Final = 32  # of each imported graph, for calibration
LEAST_GAIN: Final = 0.10  # a small file ships when it is at least this much smaller and faster than the float file
TOLERANCE_POINTS: Final = 0.5  # without `search.tolerance_points` and `gates.accuracy.min`
MARGIN: Final = 0.05  # latencies and sizes within this ratio count as equal
Observer = Literal["hist", "kl", "mse", "emd", "avg", "abs_max"]


def _in_a_schema(pattern: re.Pattern[str]) -> str:
    """A pattern of the runtime for whole texts, as JSON Schema writes it."""
    return "^" + pattern.pattern.replace(r"\Z", "$")


_Separator = Annotated[str, Field(min_length=1)]
LabelSeparator = Annotated[_Separator | Annotated[tuple[_Separator, ...], Field(min_length=1)], MEANT]


class Columns(Section):
    """Names of the columns (TSV, CSV) or keys (JSONL) to read. The task decides which ones are read."""

    text: str = Field("text", description="Column of the texts; of the first texts of pairs.")
    text_pair: str | None = Field(
        None, description="Column of the second texts of pairs. The default for pairs is `text_pair`."
    )
    label: str = Field("label", description="Column of the labels (words or numbers).")
    labels: Annotated[str | Annotated[tuple[str, ...], Field(min_length=2)] | None, MEANT] = Field(
        None,
        description="Instead of `label`, for any number of labels: a JSON list, or text with separators; or a list of "
        "columns, each with 1 in the rows that have the label by its name, else 0 or nothing.",
    )
    value: str | None = Field(None, description="Column of numbers. The default for text regression is `value`.")
    spans: str | None = Field(
        None, description="Column of lists of `{start, end, label}`. The default for token classification is `spans`."
    )
    intent: str | None = Field(None, description="Column of intents. The default for intents with slots is `intent`.")
    slots: str | None = Field(
        None,
        description="Column of slots: `{slot: its text}`, or spans. The default for intents with slots is `slots`.",
    )
    answers: str | None = Field(
        None,
        description="Column of the answers to a question (`text`) in a text (`text_pair`): a text, a list of texts, or "
        "SQuAD's `{text, answer_start}`; empty where there is none. The default for reading is `answers`.",
    )
    tokens: str | None = Field(None, description="Instead of `text` and `spans`: column of JSON lists of tokens.")
    tags: str | None = Field(None, description="Column of JSON lists with a BIO or BIOES tag for each token.")
    _place: str = PrivateAttr("")  # `recipe.yaml:12`, for findings about a table; empty if no file has this section

    @property
    def place(self) -> str:
        """Where the recipe names the columns, as ` (recipe.yaml:12)`; empty if it does not."""
        return self._place and f" ({self._place})"

    def at(self, place: str) -> Columns:
        """A copy that knows its place in a recipe."""
        copy = self.model_copy()
        copy._place = place
        return copy

    @property
    def task(self) -> str:
        """The name of the task of rows with these columns."""
        return self.text_task.name

    @property
    def text_task(self) -> Task:
        """What items and answers of rows with these columns are."""
        return task_by_answer_key(self.answer, pairs=self.text_pair is not None)

    @property
    def answer(self) -> str:
        """The JSON key of the answer in rows with these columns."""
        # `label` has a default, so that a column of another answer says what the rows are.
        keys = {key: task.answer_key for task in TASKS for key in (task.answer_key, *task.other_columns)}
        named = [answer for key, answer in keys.items() if key != "label" and getattr(self, key) is not None]
        return named[0] if named else "label"

    @property
    def texts(self) -> dict[str, str]:
        """The columns of texts: key of this section -> name of the column."""
        return {"text": self.text} | ({} if self.text_pair is None else {"text_pair": self.text_pair})

    @property
    def wanted(self) -> dict[str, str]:
        """The columns of a row, texts first: key of this section -> name of the column."""
        task = self.text_task
        others = {key: getattr(self, key) for key in task.other_columns}
        if others and None not in others.values():
            return others
        found = dict(self.texts)
        for key in task.columns:
            name = getattr(self, key) or key
            found |= {key: name} if isinstance(name, str) else {f"{key}.{n}": each for n, each in enumerate(name)}
        return found

    def implied(self, task: TaskName) -> dict[str, str]:
        """The columns that `task` reads by default."""
        kinds = tasks_named(task)
        pair = {"text_pair": "text_pair"} if kinds[0].pairs and self.text_pair is None else {}
        keys = [kind.answer_key for kind in kinds]
        return pair if self.answer in keys else pair | {keys[0]: keys[0]}


def is_builtin(source: str) -> bool:
    """Whether a data source names a built-in generator instead of a file."""
    return source.startswith(BUILTIN_PREFIX)


def _source(value: str, info: ValidationInfo) -> str:
    return value if is_builtin(value) else beside(value, info)


Choice = Literal["drop", "error", "keep"]
Rows = Annotated[str, AfterValidator(_source)]  # a file, or a built-in generator


class Calibration(Section):
    """Rows that decide the quantization ranges; never dev or test rows."""

    from_: Literal["train"] = Field("train", alias="from", description="Split to sample from.")
    rows: int = Field(CALIBRATION_ROWS, ge=LEAST_CALIBRATION_ROWS, le=100_000, description="Rows drawn, seeded.")


class Data(Section):
    """The labelled rows: a file for each split, or one built-in generator for all three."""

    train: Rows = Field(
        description="Training rows: .tsv, .csv, .xlsx (`file.xlsx#sheet`), .jsonl or .json, for tokens also .conll or "
        ".bio; or `builtin:reviews-zh`."
    )
    dev: Rows | None = Field(
        None, description="Dev rows, for early stopping and model selection only; required if `train` is a file."
    )
    test: Rows | None = Field(None, description="Rows for the gates only; required for files.")
    unlabelled: FilePath | None = Field(
        None, description="Unlabelled texts for distillation: .txt with one per line, or .tsv, .csv or .jsonl."
    )
    leaks: Choice = Field(
        "drop",
        description="Texts of train that also occur in dev or test, and of dev that occur in test, even with other "
        "case, width, spaces or punctuation. `drop` removes these rows from train or dev; `error` stops if texts are "
        "exactly equal; `keep` warns.",
    )
    repeats: Choice = Field(
        "drop",
        description="Rows of train with the text and answer of an earlier row. `drop` removes them; `error` "
        "stops, also for repeated rows of dev or test; `keep` warns.",
    )
    train_rows: int | None = Field(
        None, ge=1, description="Number of training rows, sampled with the seed; null for all."
    )
    seed: int = Field(0, ge=0, description="Seed of built-in data, of the sample and of the calibration rows.")
    calibration: Calibration = Field(Calibration(), description="Rows that decide the quantization ranges.")
    columns: Columns = Field(Columns(), description="Names of the columns to read.")
    label_separator: LabelSeparator = Field(
        "|", description="Separator of the labels in a cell of `columns.labels`; or a list, of which each separates."
    )


class Search(Section):
    """Several candidates from one recipe: each is built and compared, and one ships."""

    MOST: ClassVar[int] = 256  # candidates

    over: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        min_length=1,
        description="Dotted keys of `student`, `quantize` or `data.calibration`, such as `student.model`, each with "
        "a list of values. Every combination of values is a candidate.",
    )
    prefer: Prefer = Field(
        "latency",
        description="Of the candidates that are good enough and miss no gate, the one with the lowest p50 or the "
        f"smallest file ships; among those within {100 * MARGIN:.0f} %, the other of the two figures decides.",
    )
    tolerance_points: float | None = Field(
        None,
        ge=0,
        le=100,
        description=f"Percentage points below the best dev score that are good enough; null for {TOLERANCE_POINTS}, or "
        "for any distance if `gates.accuracy.min` is set.",
    )
    max_candidates: int = Field(16, ge=1, le=MOST, description="More candidates than these are an error.")


class Quantize(Section):
    """Quantization of the float student: INT8 or float16."""

    WITHOUT_INT8: ClassVar[frozenset[str]] = frozenset(("fp16", "none"))  # methods

    method: Literal["ptq", "qat", "dynamic", "auto", "fp16", "none"] = Field(
        "ptq",
        description="`ptq`: post-training quantization with observed ranges of activations; `qat` trains further "
        "from there; `dynamic` computes ranges in each run; `auto` tries `ptq` with every observer and `dynamic`, "
        "and keeps the one that loses least on dev; `fp16`: float16, for hardware that computes in it (of the other "
        "keys only `max_drop_points` applies); `none`: float.",
    )
    observer: Observer = Field("hist", description="PaddleSlim observer of activation ranges, for `ptq` and `qat`.")
    qat: Qat | None = Field(None, description="Settings of `method: qat`; null for defaults.")
    embeddings: Literal["int8", "float"] = Field(
        "int8", description="Precision of the word embedding; int8 has a scale per row."
    )
    reduced_range: bool = Field(
        False,
        description="Weights of 7 bits, for x86 CPUs without VNNI: their kernels add two products in 16 bits, which "
        "overflow with 8 bits.",
    )
    max_drop_points: float | None = Field(
        0.5,
        ge=0,
        le=100,
        description="Maximum loss on dev in percentage points. If INT8 loses more, parts of the model return to "
        "float, the most expensive first; float16 does not ship then. The share of one row, 100 / rows points, is "
        "always allowed; null for no limit.",
    )

    @property
    def makes_int8(self) -> bool:
        """Whether the method makes INT8."""
        return self.method not in self.WITHOUT_INT8


class Sign(Section):
    """Signature of the bundles. It does not change their contents."""

    key: FilePath = Field(
        min_length=1,
        description="SSH key: a private key, or the .pub file of one that an agent or a piece of hardware holds.",
    )


class OwnInterpreter(Section):
    """A CPython of your own, which every bundle of the recipe carries; it uses the C library of the device."""

    path: FilePath = Field(
        min_length=1,
        description="A .tar.gz with a CPython 3.11 or newer that runs from any folder, as python-build-standalone "
        "packs it (`install_only`). The build runs on a machine of its kind.",
    )
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of that file, as `sha256sum FILE` prints it.")


LinearMode = Literal["auto", "baseline", "ensemble", "cascade", "only", "off"]
_LINEAR_SAYS: Final = (
    "A linear model on characters beside the encoder, for texts and pairs of texts. `auto` ships the encoder, "
    "`ensemble` or `cascade`: of those that keep the accuracy gates on dev and lose nothing there beyond noise, "
    "the fastest on average. `baseline` "
    "ships the encoder, and measures the others. `ensemble` ships the sum of both. `cascade` ships the linear "
    "model where it is sure, else the sum; it may lose `quantize.max_drop_points` on dev. `only` ships the linear "
    "model alone and trains nothing else. `off`: there is none."
)


def _whole(value: object) -> object:
    return value if type(value) is int else str(value)  # true and 1.0 equal 1


class BaseRecipe(Section):
    """What every recipe decides: name and version, targets, gates, signing."""

    CALLED: ClassVar[str] = "recipes that train a model, without `model:`"
    REFUSED: ClassVar[Mapping[str, tuple[str, str]]] = {}  # keys that say nothing here -> the reason, and the fix

    edgepack: Annotated[Literal[1], BeforeValidator(_whole)] = Field(description="Recipe format.")
    name: str = Field(
        pattern=_in_a_schema(NAME),
        description="Name of the bundle, and of the command that it installs: at most 64 small letters a-z, digits, "
        "`.`, `_` and `-`, the first a letter or digit.",
    )
    version: str = Field(
        pattern=_in_a_schema(VERSION),
        description="Version of the bundle, three numbers as `1.2.0`, the second and third at most 999. It orders the "
        "releases on a device.",
    )
    targets: tuple[str, ...] = Field(
        ("local",), min_length=1, description="Target profiles; a bundle is built for each."
    )
    interpreter: Annotated[Literal["bundled", "host"] | OwnInterpreter | None, MEANT] = Field(
        None,
        description="`bundled` carries Python and a C library, `host` runs on a Python 3.8 or newer of the device, "
        "`{path, sha256}` carries a Python of your own; null is what the target's profile says.",
    )
    cuda: Literal["bundled", "system"] | None = Field(
        None,
        description="Of targets with a GPU: `bundled` carries CUDA and cuDNN, `system` takes those of the device; null "
        "is what the target's profile says.",
    )
    wheels: dict[str, tuple[FilePath, ...]] = Field(
        {},
        description="Local wheels by target, which bundles carry instead of the locked ones, such as a build of "
        "onnxruntime-gpu for a Jetson.",
    )
    gates: Gates = Field(
        Gates(), description="Limits that must hold before a bundle ships and before an install becomes active."
    )
    serve: bool = Field(
        False,
        description="Carry the packages of the verb `serve` (half a MiB): HTTP on the device, with a page to try "
        "the model.",
    )
    sign: Sign | None = Field(
        None, description="Sign the bundles, for devices with trusted keys; null for unsigned ones."
    )

    @property
    def requirements(self) -> Path | None:
        """The hash-locked requirements file of packages that the bundles carry."""
        return None

    @property
    def needs_engine(self) -> bool:
        """Whether the bundles carry ONNX Runtime."""
        return True

    @property
    def needs_paddle(self) -> bool:
        """Whether a build trains, loads or converts a model with the Paddle stack."""
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """What a command prints once about a valid recipe."""
        return ()


class TextRecipe(BaseRecipe):
    """A recipe of a model with rows of texts."""

    task: TaskName = Field("text-classification", description="Task: what a row holds, and what its answer is.")


class Recipe(TextRecipe):
    """A recipe that trains the model which ships."""

    data: Data = Field(description="The labelled rows.")
    teacher: Teacher | None = Field(None, description="null trains the student on hard labels alone.")
    student: Student = Field(description="The model that ships.")
    linear: LinearMode = Field("auto", description=_LINEAR_SAYS)
    search: Search | None = Field(None, description="Choice between several candidates; null for a single one.")
    quantize: Quantize = Field(Quantize(), description="Quantization of the student.")
    _candidates: tuple[Candidate, ...] = PrivateAttr(())

    @property
    def has_linear(self) -> bool:
        """Whether a linear model is trained. It answers whole texts, not tokens."""
        return self.linear != "off" and task_by_name(self.task).linear

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates of `search`, in the order of the recipe; empty without a search.

        This recipe has the values of the first candidate until one is chosen.
        """
        return self._candidates

    @property
    def students(self) -> tuple[Student, ...]:
        """Every student that a build may train."""
        return tuple(candidate.recipe.student for candidate in self._candidates) or (self.student,)

    def with_candidates(self, candidates: tuple[Candidate, ...]) -> Recipe:
        """A copy with these `candidates`."""
        copy = self.model_copy()
        copy._candidates = candidates
        return copy


class LinearRecipe(TextRecipe):
    """A recipe with `linear: only`: a linear model ships, and no encoder is trained.

    `teacher`, `student` and `quantize` may be there, so that a recipe can change its mind with `--set linear=only`.
    """

    CALLED = "recipes with `linear: only`"
    UNUSED: ClassVar[tuple[str, ...]] = (
        "teacher", "student", "quantize", "data.unlabelled", "data.calibration", "wheels", "cuda",
    )  # fmt: skip
    REFUSED = {  # noqa: RUF012 - never changed
        "search": ("its candidates are encoders", "remove it"),
        "gates.accuracy.max_drop_points": (
            "it is a drop against the float encoder",
            "remove it; `min` and `max_regression_points` judge a linear model",
        ),
        "gates.latency.by_length": (
            "it counts tokens, and a linear model reads characters",
            "remove it; `p50_ms`, `p95_ms` and `p99_ms` are for all texts",
        ),
    }

    data: Data = Field(description="The labelled rows.")
    linear: Literal["only"] = Field(description="The linear model alone.")
    teacher: Teacher | None = Field(None, description="Not used.")
    student: Student | None = Field(None, description="Not used.")
    quantize: Quantize | None = Field(None, description="Not used.")
    search: Search | None = Field(None, description="Refused: its candidates are encoders.")
    _ignored: tuple[str, ...] = PrivateAttr(())

    @property
    def needs_engine(self) -> bool:
        return False

    @property
    def needs_paddle(self) -> bool:
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._ignored:
            return ()
        return (f"`linear: only` ships a linear model; not used: {', '.join(f'`{key}`' for key in self._ignored)}",)

    def resolved(self) -> LinearRecipe:
        """A copy with defaults for what is not used, which `notes` names."""
        copy = self
        for key in self.UNUSED:
            copy = copy.with_default(key)
        copy._ignored = tuple(filter(self.differs, self.UNUSED))
        return copy

    @classmethod
    def settings(cls, recipe: Recipe, *, searched: bool) -> tuple[str, ...]:
        """What `--set` takes to build the linear model of a valid `recipe` alone, with the gates that can judge it.

        Args:
            searched: whether `recipe` is a candidate of a search.
        """
        found = ["linear=only", *(["search=null"] if searched else [])]
        for key in filter(recipe.value_at, cls.REFUSED):
            limits = [limit for limit in AccuracyLimits.ONE_OF if recipe.value_at(f"gates.accuracy.{limit}")]
            if limits == [key.rpartition(".")[2]]:
                key = "gates.accuracy"  # a section without a limit is refused
            found.append(f"{key}=[]" if key.endswith("by_length") else f"{key}=null")
        return tuple(found)


_GraphName = Annotated[str, Field(pattern=_in_a_schema(GRAPH_NAME))]


_Graphs = Annotated[dict[_GraphName, FilePath], Field(min_length=1, json_schema_extra={"additionalProperties": False})]


class ImportedModel(Section):
    """A model that edgepack did not train."""

    graph: Annotated[FilePath | _Graphs, MEANT] = Field(
        description="An ONNX file, or a folder of Paddle Inference with a `.json` or `.pdmodel` and its `.pdiparams`; "
        "or several by name, which the handler calls: `{detect: d.onnx, read: r.onnx}`."
    )
    files: tuple[FilePath, ...] = Field((), description="Files that the handler reads, such as a vocabulary.")

    @property
    def graphs(self) -> dict[str, str]:
        """The files of the graphs by name; a single one is called `model`."""
        return {"model": self.graph} if isinstance(self.graph, str) else self.graph


def _is_of_paddle(graph: str) -> bool:
    """Whether an imported graph is converted, and not ONNX already."""
    return not graph.endswith(".onnx")


class ImportedQuantize(Section):
    """INT8 of an imported model."""

    method: Literal["ptq", "none"] = Field(
        "none",
        description=f"`ptq`: ONNX Runtime's quantizer, calibrated with up to {MOST_RUNS} examples or test rows that "
        f"are then not scored. It ships only if it is smaller and faster by {100 * LEAST_GAIN:.0f} % and loses no "
        "more than `max_drop_points`.",
    )
    max_drop_points: float = Field(
        0.5, ge=0, le=100, description="Maximum loss of the score on the examples or test rows, in percentage points."
    )


class CustomRecipe(BaseRecipe):
    """A recipe that packages an imported model with a handler."""

    CALLED = f"recipes with `task: {CUSTOM}`"
    REFUSED = {  # noqa: RUF012 - never changed
        "gates.accuracy.metric": ("a handler has one metric, its own score", "remove it"),
        "gates.accuracy.max": ("more of a handler's score is better", "set `min`"),
        "gates.accuracy.per_class": ("a handler has no classes", "remove it"),
        "gates.accuracy.baseline": ("scores of an earlier release are not recorded", "remove it"),
        "gates.accuracy.max_regression_points": ("scores of an earlier release are not recorded", "remove it"),
        "gates.latency.by_length": ("items of a handler have no number of tokens", "remove it"),
        "gates.golden.carry": ("a bundle with a handler carries its examples", "remove it"),
    }

    task: Literal["custom"] = Field(description="An imported model, with a handler for what comes before and after it.")
    model: ImportedModel = Field(description="The graphs of the model.")
    handler: FilePath = Field(
        description="A Python file with a class `Handler`: `load(folder)`, `preprocess(item)` and "
        "`postprocess(outputs)`, or `predict(item, graphs)`, and `score(answer, expected)`."
    )
    examples: FilePath = Field(
        description="Golden examples: a .jsonl with `item` (a text or a JSON value) or `file` (its path, in the same "
        "folder or below), and the `expected` answer, in each line."
    )
    quantize: ImportedQuantize = Field(ImportedQuantize(), description="INT8 of the graphs.")
    packages: FilePath | None = Field(
        None,
        description="A requirements file, locked by hash, of the packages that the handler imports; null: it needs the "
        "standard library alone.",
    )

    @property
    def requirements(self) -> Path | None:
        return None if self.packages is None else Path(self.packages)

    @property
    def needs_paddle(self) -> bool:
        return any(_is_of_paddle(graph) for graph in self.model.graphs.values())


class ImportedTextModel(Section):
    """A classifier of texts that edgepack did not train, with a BERT-type vocabulary."""

    graph: FilePath = Field(
        description="An ONNX file, or a folder of Paddle Inference. It reads `input_ids`, and may read "
        "`token_type_ids` and `attention_mask`; it gives logits or probabilities."
    )
    vocab: FilePath = Field(description="The vocabulary, `vocab.txt`: one token in each line, the first has id 0.")
    labels: Annotated[tuple[str, ...] | FilePath | None, MEANT] = Field(
        None,
        description="The labels in the order of the outputs, or a file with one in each line; for tokens BIO tags. A "
        "number needs none.",
    )
    max_length: int = Field(
        128, ge=8, le=MAX_TOKENS, description="Tokens of a text, with [CLS] and [SEP]; longer texts are cut."
    )
    tokenizer: Literal["bert", "ernie"] = Field(
        "bert",
        description="`bert`: as Google and Hugging Face; `ernie`: as PaddleNLP, where a symbol like ￥ is a word by "
        "itself.",
    )
    lower_case: bool = Field(True, description="Whether the tokenizer lower-cases texts and removes accents.")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The labels of a resolved recipe, in the order of the outputs."""
        assert isinstance(self.labels, tuple), "the loader reads them"
        return self.labels


class ImportedData(Section):
    """Labelled rows for a model that is not trained."""

    test: Rows = Field(description="Rows for the gates, as `data.test` of a training.")
    columns: Columns = Field(Columns(), description="Names of the columns to read.")
    label_separator: LabelSeparator = Field(
        "|", description="Separator of the labels in a cell of `columns.labels`; or a list, of which each separates."
    )


class ImportedTextRecipe(TextRecipe):
    """A recipe that packages an imported classifier of texts, without a handler."""

    CALLED = "recipes of an imported model (`model:`)"
    model: ImportedTextModel = Field(description="The graph, its vocabulary and its labels.")
    data: ImportedData = Field(description="The labelled rows.")
    quantize: ImportedQuantize = Field(ImportedQuantize(), description="INT8 of the graph.")
    _notes: tuple[str, ...] = PrivateAttr(())

    @property
    def needs_paddle(self) -> bool:
        return _is_of_paddle(self.model.graph)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    def with_settings(self, **settings: Any) -> ImportedTextRecipe:
        """A copy with values of `model` that the tokenizer_config.json beside the graph decides; `notes` name them."""
        copy = self.changed(model=self.model.changed(**settings))
        copy._notes = tuple(
            f"`model.{key}` is {json.dumps(value)}: tokenizer_config.json beside the graph says so"
            for key, value in settings.items()
            if value != getattr(self.model, key)
        )
        return copy


class FolderModel(Section):
    """A classifier that was trained already, with its head."""

    folder: FilePath = Field(
        description="The folder that a Trainer or `save_pretrained` of PaddleNLP or Hugging Face wrote: config, "
        "weights, vocabulary."
    )
    labels: Annotated[tuple[str, ...] | FilePath | None, MEANT] = Field(
        None,
        description="The labels in the order of the outputs, or a file with one in each line; null: as `id2label` of "
        "config.json, or a label file of the training script, says.",
    )
    max_length: int | None = Field(
        None, ge=8, le=MAX_TOKENS, description="Tokens of a text; null: `model_max_length` of tokenizer_config.json."
    )


class FolderData(ImportedData):
    """Labelled rows for a model that was trained already."""

    train: Rows | None = Field(
        None, description="Rows that set the INT8 ranges and fit a linear model; null: dev rows set the ranges."
    )
    dev: Rows | None = Field(
        None,
        description=f"Rows that choose; null: a quarter of the test rows, at most {MOST_DEV_ROWS}, which are not "
        "scored.",
    )
    leaks: Literal["drop", "keep"] = Field(
        "drop", description="Rows of train that also occur in dev or test, and of dev that occur in test."
    )
    seed: int = Field(0, ge=0, description="Seed of the dev rows and of the calibration rows.")
    calibration: Calibration = Field(Calibration(), description="Rows that decide the quantization ranges.")


class FolderRecipe(TextRecipe):
    """A recipe that packages a classifier from the folder that its training wrote."""

    CALLED = "recipes of a trained model (`model: {folder: ...}`)"
    model: FolderModel = Field(description="The trained model.")
    data: FolderData = Field(description="The labelled rows.")
    linear: Literal["auto", "baseline", "ensemble", "cascade", "off"] = Field("auto", description=_LINEAR_SAYS)
    quantize: Quantize = Field(Quantize(), description="Quantization of the model; without `qat`, which trains.")

    @property
    def has_linear(self) -> bool:
        """Whether a linear model is fitted: there have to be training rows."""
        return self.linear != "off" and self.data.train is not None and task_by_name(self.task).linear

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a resolved recipe, in the order of the outputs."""
        assert isinstance(self.model.labels, tuple), "the loader reads them"
        return self.model.labels

    @property
    def max_length(self) -> int:
        """Tokens of a text, of a resolved recipe."""
        assert self.model.max_length is not None, "the loader reads it"
        return self.model.max_length


EncoderRecipe = Recipe | FolderRecipe  # of those that ship an encoder in our own network
TextKinds = Recipe | LinearRecipe | ImportedTextRecipe | FolderRecipe
AnyRecipe = Recipe | LinearRecipe | CustomRecipe | ImportedTextRecipe | FolderRecipe
KINDS: Final[tuple[type[BaseRecipe], ...]] = (Recipe, LinearRecipe, CustomRecipe, ImportedTextRecipe, FolderRecipe)


def kind_of(
    top: Mapping[str, Any],
) -> type[Recipe] | type[LinearRecipe] | type[CustomRecipe] | type[ImportedTextRecipe] | type[FolderRecipe]:
    """The kind of the recipe with these keys. A name in place of the section `model` belongs to a student."""
    model = top.get("model")
    if top.get("task") == CUSTOM:
        return CustomRecipe
    if isinstance(model, dict) and "folder" in model and "graph" not in model:
        return FolderRecipe
    if isinstance(model, dict) or (isinstance(model, str) and model.endswith((".onnx", ".pdmodel"))):
        return ImportedTextRecipe
    return LinearRecipe if top.get("linear") == "only" else Recipe


@dataclass(frozen=True)
class Candidate:
    """One combination of the values of `search.over`: the recipe with these values and without the search.

    `name` is unique in its recipe and holds no absolute path: `model=./nano, hidden=false`. `values` are its parts, as
    pairs of key and value.
    """

    name: str
    recipe: Recipe
    values: tuple[tuple[str, str], ...] = ()


def distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered if they occur more than once."""
    return [
        name if names.count(name) == 1 else f"{name} (number {number})" for number, name in enumerate(names, start=1)
    ]
