"""The recipe, format 1: the one source of validation, defaults, the JSON Schema and the reference page.

A `Recipe` is frozen and resolved: every default is filled in and every path is absolute. It is made by
`edgepack.recipe.loader`, which turns whatever is wrong into findings with file and line. A field that this
version cannot honour is not in the model, so that asking for it is an error and never silently ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from edgepack.recipe.gates import Gates
from edgepack.recipe.section import Section
from edgepack.recipe.training import Qat, Student, Teacher

BUILTIN_PREFIX = "builtin:"
TaskName = Literal["text-classification", "text-pair-classification", "token-classification"]
AnswerKey = Literal["label", "labels", "spans"]
Prefer = Literal["latency", "size"]
Observer = Literal["hist", "kl", "mse", "emd", "avg", "abs_max"]


class Columns(Section):
    """Names of the columns (TSV, CSV) or keys (JSONL) to read. The task decides which of them are read."""

    text: str = Field("text", description="Column of the texts; of pairs, of the first ones.")
    text_pair: str | None = Field(None, description="Column of the second texts; the default of pairs is `text_pair`.")
    label: str = Field("label", description="Column of the labels, which may be words or numbers.")
    labels: str | None = Field(
        None, description="Instead of `label`, for any number of labels: a JSON list, or text with separators."
    )
    spans: str | None = Field(
        None, description="Column of lists of `{start, end, label}`; the default of token classification is `spans`."
    )
    tokens: str | None = Field(None, description="Instead of `text` and `spans`: column of JSON lists of tokens.")
    tags: str | None = Field(None, description="Column of JSON lists with a BIO or BIOES tag for each token.")

    @property
    def task(self) -> TaskName:
        """What rows of these columns are for."""
        if self.spans is not None or self.tokens is not None:
            return "token-classification"
        return "text-classification" if self.text_pair is None else "text-pair-classification"

    @property
    def answer(self) -> AnswerKey:
        """What a row of these columns says of its text."""
        if self.task == "token-classification":
            return "spans"
        return "label" if self.labels is None else "labels"

    @property
    def texts(self) -> dict[str, str]:
        """Those of the texts alone: key of this section -> name of the column."""
        return {"text": self.text} | ({} if self.text_pair is None else {"text_pair": self.text_pair})

    @property
    def wanted(self) -> dict[str, str]:
        """Those that a row is made of, texts first: key of this section -> name of the column."""
        if self.tokens is not None and self.tags is not None:
            return {"tokens": self.tokens, "tags": self.tags}
        if self.spans is not None:
            return {"text": self.text, "spans": self.spans}
        return self.texts | ({"label": self.label} if self.labels is None else {"labels": self.labels})

    def implied(self, task: TaskName) -> dict[str, str]:
        """What `task` reads though the recipe does not name it."""
        if task == "text-pair-classification" and self.text_pair is None:
            return {"text_pair": "text_pair"}
        return {"spans": "spans"} if task == "token-classification" and self.task != task else {}


Choice = Literal["drop", "error", "keep"]


class Calibration(Section):
    """Rows that set the quantization ranges; never dev or test rows."""

    from_: Literal["train"] = Field("train", alias="from", description="Split to draw from.")
    rows: int = Field(256, ge=8, le=100_000, description="Rows drawn, seeded.")


class Data(Section):
    """The labelled rows: a file for each split, or one built-in generator for all three."""

    train: str = Field(
        description="Training rows: .tsv, .csv or .jsonl, for tokens also .conll or .bio; or `builtin:reviews-zh`."
    )
    dev: str | None = Field(None, description="Rows for early stopping and selection only; files need it.")
    test: str | None = Field(None, description="Rows for the gates only, which nothing else sees; files need it.")
    unlabelled: str | None = Field(
        None, description="Texts without labels, for distillation: .txt with one a line, or .tsv, .csv or .jsonl."
    )
    leaks: Choice = Field(
        "drop",
        description="Texts of train that dev or test holds too, and of dev that test holds, also with other case, "
        "width, spaces or punctuation: `drop` leaves these rows out of train, or dev; `error` stops where texts are "
        "exactly the same; `keep` warns.",
    )
    repeats: Choice = Field(
        "drop",
        description="Rows of train with the text and the answer of an earlier row: `drop` leaves them out; `error` "
        "stops, also where dev or test repeats a row; `keep` warns.",
    )
    train_rows: int | None = Field(None, ge=1, description="Train on a seeded sample of this many rows; null for all.")
    seed: int = Field(0, ge=0, description="Seed of built-in data, of the sample and of the calibration rows.")
    calibration: Calibration = Field(Calibration(), description="Rows that set the quantization ranges.")
    columns: Columns = Field(Columns(), description="Names of the columns to read.")
    label_separator: str = Field("|", min_length=1, description="Between the labels in a cell of `columns.labels`.")


class Search(Section):
    """Several candidates from one recipe: what would ship of each is built and compared, and one goes on."""

    over: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(
        min_length=1,
        description="Dotted keys of `student`, `quantize` or `data.calibration`, as `student.model`, with a list of "
        "values each; every combination of values is a candidate.",
    )
    prefer: Prefer = Field(
        "latency",
        description="Of the candidates that are good enough and miss no gate, the one with the lowest p50 or with the "
        "smallest file goes on; within 5 % of it the other of the two decides.",
    )
    tolerance_points: float | None = Field(
        None,
        ge=0,
        le=100,
        description="Good enough is a dev score at most so many percentage points below the best; null for 0.5, or for "
        "any distance where `gates.accuracy.min` says what is good enough.",
    )
    sample: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Try a seeded sample of so many combinations, the first among them; null for all.",
    )
    seed: int = Field(0, ge=0, description="Seed of `sample`.")
    minutes: float | None = Field(
        None,
        gt=0,
        description="Start no further candidate once a build has worked on candidates for so long; one that is there "
        "already costs nothing. null for no limit.",
    )
    max_candidates: int = Field(16, ge=1, le=256, description="More candidates than these are an error.")


class Quantize(Section):
    """How the float student becomes smaller: INT8, or float16."""

    method: Literal["ptq", "qat", "dynamic", "auto", "fp16", "none"] = Field(
        "ptq",
        description="Post-training quantization with ranges of activations that were observed; `qat` trains on from "
        "there; `dynamic` with ranges found in each run; `auto` tries `ptq` with every observer and `dynamic`, and "
        "keeps what loses least on dev; `fp16` makes it float16, for hardware that computes in that, and has no use "
        "for the other keys but `max_drop_points`; `none` leaves it float.",
    )
    observer: Observer = Field("hist", description="PaddleSlim observer of activation ranges, for `ptq` and `qat`.")
    qat: Qat | None = Field(None, description="How `method: qat` trains; null for its defaults.")
    embeddings: Literal["int8", "float"] = Field("int8", description="int8 keeps a scale for each row.")
    reduced_range: bool = Field(
        False,
        description="Weights of 7 bits, for x86 CPUs without VNNI: their kernels add two products in 16 bits, and cut "
        "off what 8 bits make too large for that.",
    )
    max_drop_points: float | None = Field(
        0.5,
        ge=0,
        le=100,
        description="Where INT8 loses more percentage points on dev, parts of the model go back to float, those that "
        "cost most first, until it does not; float16 that loses more does not ship. The share of one row, 100 / rows "
        "points, may always be lost (of F1, which counts labels or spans, too); null for no limit.",
    )


class Sign(Section):
    """Who vouches for the bundles. It decides nothing about what they hold."""

    key: str = Field(
        min_length=1,
        description="SSH key that signs them: a private key, or the .pub file of one that an agent or a piece of "
        "hardware holds.",
    )


class Recipe(Section):
    """One recipe: everything that decides what a bundle holds."""

    edgepack: Literal[1] = Field(description="Recipe format.")
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Names the bundle, and the command that it installs."
    )
    version: str = Field(
        pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$", description="Of the bundle, `X.Y.Z`; orders the releases on a device."
    )
    task: TaskName = Field("text-classification", description="What a text, a pair of texts or its tokens get.")
    data: Data = Field(description="The labelled rows.")
    teacher: Teacher | None = Field(None, description="null trains the student on hard labels alone.")
    student: Student = Field(description="The model that ships.")
    search: Search | None = Field(None, description="Several candidates to choose one from; null for a single one.")
    quantize: Quantize = Field(Quantize(), description="How the student becomes INT8, or float16.")
    targets: tuple[str, ...] = Field(
        ("linux-x86_64-cpu",), min_length=1, description="Profiles of devices, a bundle for each."
    )
    wheels: dict[str, tuple[str, ...]] = Field(
        {},
        description="Wheels that are on no package index, by the target that takes them: files that travel instead of "
        "the locked ones, as a build of onnxruntime-gpu for a Jetson.",
    )
    gates: Gates = Field(Gates(), description="What must hold before a bundle ships and before an install goes live.")
    serve: bool = Field(
        False,
        description="Carry what the verb `serve` needs, half a MiB: HTTP on the device, with a page to try the model.",
    )
    sign: Sign | None = Field(None, description="Sign what is delivered, for devices that pin keys; null for unsigned.")
    _candidates: tuple[Candidate, ...] = PrivateAttr(())

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What `search` asks for, in the order of the recipe; nothing where it asks for nothing.

        Until one is chosen, this recipe has the values of the first of them.
        """
        return self._candidates

    @property
    def students(self) -> tuple[Student, ...]:
        """Every student that a build may train."""
        return tuple(candidate.recipe.student for candidate in self._candidates) or (self.student,)

    def with_candidates(self, candidates: tuple[Candidate, ...]) -> Recipe:
        """A copy that offers `candidates`."""
        copy = self.model_copy()
        copy._candidates = candidates
        return copy


@dataclass(frozen=True)
class Candidate:
    """One combination of the values of `search.over`: the whole recipe with them, and without the search.

    `name` is the only one of its kind in its recipe and holds no path of this machine: `model=./nano, hidden=false`.
    `values` are the parts that it is made of, key and value in words.
    """

    name: str
    recipe: Recipe
    values: tuple[tuple[str, str], ...] = ()


def distinct(names: Sequence[str]) -> list[str]:
    """Each name, with its number where others have the same."""
    return [
        name if names.count(name) == 1 else f"{name} (number {number})" for number, name in enumerate(names, start=1)
    ]


def is_builtin(source: str) -> bool:
    """Whether a data source names a built-in generator instead of a file."""
    return source.startswith(BUILTIN_PREFIX)
