"""The configuration of a model folder, `model.json`.

The folder of a text model holds `model.onnx`, `vocab.txt` and `model.json`, and `linear.json` if its configuration has
`linear`. A linear model alone is `linear.json` and `model.json`. The folder of a model with a handler holds
`NAME.onnx` for each graph, `handler.py`, `model.json` and the files that the handler reads. The build side writes
`model.json` through `dump`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import AbstractSet, Any, Dict, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.tasks.registry import ONE_TEXT, TASK_NAMES, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.fs import read_regular

FORMAT = 1
CONFIG_NAME = "model.json"
MODEL_NAME = "model.onnx"
VOCAB_NAME = "vocab.txt"
LINEAR_NAME = "linear.json"
HANDLER_NAME = "handler.py"
MANIFEST_NAME = "manifest.json"  # beside the model folder, in a release
CUSTOM = "custom"  # the task of models with a handler
TASKS = (*TASK_NAMES, CUSTOM)
# What an item of a model is: one text, two texts, any JSON value, or the bytes of a file. Handlers choose among three.
TEXT, TEXTS, JSON, FILE = "text", "texts", "json", "file"
HANDLER_ITEMS = (TEXT, JSON, FILE)
GRAPH_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
PRECISIONS = ("float32", "float16", "int8")
ERNIE, BERT = TOKENIZERS = ("ernie-wordpiece", "bert-wordpiece")
ENSEMBLE, CASCADE, ONLY = LINEAR_MODES = ("ensemble", "cascade", "only")
CPU, CUDA = PROVIDERS = ("CPUExecutionProvider", "CUDAExecutionProvider")  # ONNX Runtime's
MAX_LABELS = 10_000
MAX_TOKENS = 8192
_MOST_WEIGHT = 1e9  # of `linear`
_HANDLER_KEYS = ("task", "precision", "engine", "handler")
_LINEAR_KEYS = ("task", "labels", "multi_label", "linear")  # of a linear model alone


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """Options of the tokenizer. `vocab.txt` must hold the special tokens."""

    type: str = TOKENIZERS[0]
    lower_case: bool = True
    unk_token: str = "[UNK]"
    cls_token: str = "[CLS]"
    sep_token: str = "[SEP]"
    pad_token: str = "[PAD]"


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Options of ONNX Runtime. `provider` must be active in the session; there is no fallback.

    `disabled_optimizers` are names of ONNX Runtime's graph optimizers.
    """

    provider: str = CPU
    disabled_optimizers: Tuple[str, ...] = ()

    @property
    def one_at_a_time(self) -> bool:
        """Whether concurrent predictions run one after the other, as on a GPU."""
        return self.provider != CPU


@dataclasses.dataclass(frozen=True)
class LinearConfig:
    """How a linear model on characters answers beside the encoder, or without one.

    `ensemble`: the logits are `encoder_weight` x the encoder's + `linear_weight` x the linear model's. `cascade`: the
    linear model answers alone if its lead is at least `least_lead`; else as `ensemble`. The lead is the difference of
    its two highest logits; with several labels, the smallest distance of a logit from 0. `only`: the linear model
    answers alone, and the folder has no `model.onnx` and no `vocab.txt`.
    """

    mode: str
    encoder_weight: float = 1.0
    linear_weight: float = 1.0
    least_lead: float = 0.0


@dataclasses.dataclass(frozen=True)
class HandlerConfig:
    """What the handler reads, one of HANDLER_ITEMS, and the names of the graphs that it calls."""

    item: str
    graphs: Tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """A parsed `model.json`. Logit i of the graph belongs to `labels[i]`; texts are cut to `max_length` tokens.

    `multi_label`: a text has any number of labels instead of exactly one. `hides_padding`: the graph masks padding; if
    not, a batch has texts of one length only. `run_alone`: batches have one text, since the graph computes quantization
    ranges for each run. `linear` (some tasks only): a linear model answers too; None without one.

    A model with a `handler` has of the other fields only task, precision and engine. A linear model alone has task,
    labels, `multi_label` and `linear`. Both have a `max_length` of 0: they cut nothing to tokens.
    """

    task: str
    labels: Tuple[str, ...]
    max_length: int
    precision: str
    tokenizer: TokenizerConfig = TokenizerConfig()
    engine: EngineConfig = EngineConfig()
    multi_label: bool = False
    hides_padding: bool = True
    run_alone: bool = False
    linear: Optional[LinearConfig] = None
    handler: Optional[HandlerConfig] = None

    @property
    def text_task(self) -> Task:
        """What items and answers are. A model with a handler has none."""
        return task_by_name(self.task, multi_label=self.multi_label)

    @property
    def item(self) -> str:
        """What an item of the model is: one of TEXT, TEXTS, JSON and FILE."""
        if self.handler is not None:
            return self.handler.item
        return TEXTS if self.takes_pairs else TEXT

    @property
    def takes_pairs(self) -> bool:
        """Whether an input of the model is a pair of texts."""
        return self.handler is None and self.text_task.pairs

    @property
    def needs_encoder(self) -> bool:
        """Whether the folder has a `model.onnx`: a linear model may answer everything."""
        return self.linear is None or self.linear.mode != ONLY

    @property
    def classes(self) -> Tuple[str, ...]:
        """The classes of answers: the labels, or the sorted types of spans; none with a handler."""
        return () if self.handler is not None else self.text_task.classes(self.labels)


def weight_bytes(folder: Path) -> int:
    """Size of the weights of a model folder: its graphs, and `linear.json` if it is there."""
    return sum(file.stat().st_size for file in [*folder.glob("*.onnx"), *folder.glob(LINEAR_NAME)])


def dump(config: ModelConfig) -> bytes:
    """Canonical bytes of `config`: sorted keys, UTF-8, one final newline.

    Raises:
        BundleInvalidError: `parse` refuses the result.
    """
    document = {"model_format": FORMAT, **dataclasses.asdict(config)}
    if config.handler is not None:
        document = {key: document[key] for key in ("model_format", *_HANDLER_KEYS)}
    elif not config.needs_encoder:
        document = {key: document[key] for key in ("model_format", *_LINEAR_KEYS)}
    else:
        for key in ("handler", *(("linear",) if config.linear is None else ())):
            del document[key]
    raw = (json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode("utf-8")
    parse(raw)
    return raw


def load(folder: Path) -> ModelConfig:
    """Read and check `folder/model.json`.

    Raises:
        BundleInvalidError: it is missing or invalid.
    """
    try:
        return parse(read_regular(folder / CONFIG_NAME))
    except OSError as error:
        raise _invalid(f"it cannot be read: {error}") from error


def parse(raw: bytes) -> ModelConfig:
    """Check the bytes of a `model.json`.

    Raises:
        BundleInvalidError: a key is missing, unknown or has an invalid value; the message names it.
    """
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _invalid(f"it is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _invalid("it is not a JSON object")
    _one_of(document.pop("model_format", None), (FORMAT,), "model_format")
    _one_of(document.get("task"), TASKS, "task")
    return _with_handler(document) if document["task"] == CUSTOM else _of_texts(document)


def _with_handler(document: Dict[str, Any]) -> ModelConfig:
    fields = _exactly(document, {*_HANDLER_KEYS}, "the document")
    _one_of(fields["precision"], PRECISIONS, "precision")
    fields["engine"] = _engine(fields["engine"])
    handler = _fields(fields["handler"], HandlerConfig, "handler")
    _one_of(handler["item"], HANDLER_ITEMS, "handler.item")
    handler["graphs"] = _texts(handler["graphs"], "handler.graphs", minimum=1)
    for name in handler["graphs"]:
        if not GRAPH_NAME.match(name):
            raise _invalid(f"handler.graphs holds {name!r}, which is not a name of a graph")
    return ModelConfig(**{**fields, "handler": HandlerConfig(**handler)}, labels=(), max_length=0)


def _of_texts(document: Dict[str, Any]) -> ModelConfig:
    document.setdefault("linear", None)
    linear = None if document["linear"] is None else _linear(document["linear"])
    if linear is not None and not task_by_name(document["task"]).linear:
        raise _invalid(f"it has `linear`, but {document['task']} does not support a linear model")
    alone = linear is not None and linear.mode == ONLY
    every = {field.name for field in dataclasses.fields(ModelConfig)} - {"handler"}
    fields = {**_exactly(document, {*_LINEAR_KEYS} if alone else every, "the document"), "linear": linear}
    _one_of(fields["multi_label"], (False, True), "multi_label")
    try:
        task = task_by_name(fields["task"], multi_label=fields["multi_label"])
    except KeyError:
        raise _invalid(f"multi_label is true, but {fields['task']} does not support several labels") from None
    problem = label_problem(fields["labels"], task)
    if problem is not None:
        raise _invalid(f"labels {problem}")
    fields["labels"] = tuple(fields["labels"])
    if alone:
        return dataclasses.replace(linear_alone(fields["labels"], multi_label=fields["multi_label"]), linear=linear)
    _one_of(fields["precision"], PRECISIONS, "precision")
    for name in ("hides_padding", "run_alone"):
        _one_of(fields[name], (False, True), name)
    _whole(fields["max_length"], "max_length", 3, MAX_TOKENS)
    fields["tokenizer"] = _tokenizer(fields["tokenizer"])
    fields["engine"] = _engine(fields["engine"])
    return ModelConfig(**fields)


def label_problem(labels: Any, task: Task) -> Optional[str]:
    """Why `labels` are not a list of those that a model of `task` may have, in the order of its logits, or None."""
    return _texts_problem(labels, task.least_labels) or task.label_problem(labels)


def linear_alone(labels: Sequence[str], *, multi_label: bool) -> ModelConfig:
    """The configuration of a linear model that answers every text alone. Its scores are computed in float."""
    return ModelConfig(
        ONE_TEXT,
        tuple(labels),
        max_length=0,
        precision=PRECISIONS[0],
        multi_label=multi_label,
        linear=LinearConfig(ONLY),
    )


def _tokenizer(value: Any) -> TokenizerConfig:
    fields = _fields(value, TokenizerConfig, "tokenizer")
    _one_of(fields["type"], TOKENIZERS, "tokenizer.type")
    if not isinstance(fields["lower_case"], bool):
        raise _invalid("tokenizer.lower_case is not true or false")
    tokens = [fields[key] for key in ("unk_token", "cls_token", "sep_token", "pad_token")]
    _texts(tokens, "the special tokens of tokenizer", minimum=4)
    return TokenizerConfig(**fields)


def _engine(value: Any) -> EngineConfig:
    fields = _fields(value, EngineConfig, "engine")
    fields["disabled_optimizers"] = _texts(fields["disabled_optimizers"], "engine.disabled_optimizers", minimum=0)
    _one_of(fields["provider"], PROVIDERS, "engine.provider")
    return EngineConfig(**fields)


def _linear(value: Any) -> LinearConfig:
    fields = _fields(value, LinearConfig, "linear")
    _one_of(fields["mode"], LINEAR_MODES, "linear.mode")
    for name in ("encoder_weight", "linear_weight", "least_lead"):
        number = fields[name]
        if type(number) not in (int, float) or not 0 <= number <= _MOST_WEIGHT:
            raise _invalid(f"linear.{name} is not a number from 0 to {_MOST_WEIGHT:g}")
        fields[name] = float(number)
    return LinearConfig(**fields)


def _fields(value: Any, cls: Any, where: str) -> Dict[str, Any]:
    """The items of `value`, whose keys must be exactly the fields of the dataclass `cls`."""
    return _exactly(value, {field.name for field in dataclasses.fields(cls)}, where)


def _exactly(value: Any, wanted: AbstractSet[str], where: str) -> Dict[str, Any]:
    """The items of `value`, whose keys must be exactly those `wanted`."""
    if not isinstance(value, Mapping) or set(value) != wanted:
        found = sorted(value) if isinstance(value, Mapping) else type(value).__name__
        raise _invalid(f"{where} should be an object with the keys {sorted(wanted)}, not {found}")
    return dict(value)


def _one_of(value: Any, allowed: Tuple[Any, ...], where: str) -> None:
    # Compare types too: in Python, `True == 1`.
    if not any(type(value) is type(item) and value == item for item in allowed):
        raise _invalid(f"{where} is {value!r}; this runtime supports {list(allowed)}")


def _whole(value: Any, where: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _invalid(f"{where} is not a whole number from {low} to {high}")


def _texts(value: Any, where: str, minimum: int) -> Tuple[str, ...]:
    problem = _texts_problem(value, minimum)
    if problem is not None:
        raise _invalid(f"{where} {problem}")
    return tuple(value)


def _texts_problem(value: Any, minimum: int) -> Optional[str]:
    if not isinstance(value, list) or not minimum <= len(value) <= MAX_LABELS:
        return f"is not a list of {minimum} to {MAX_LABELS} texts"
    if not all(isinstance(item, str) and item.strip() and len(item) <= 256 for item in value):
        return "holds an item that is blank, or not a text of 1 to 256 characters"
    if any("\ud800" <= character <= "\udfff" for item in value for character in item):
        return "holds half a surrogate pair, which cannot be printed"
    twice = next((item for item, times in Counter(value).items() if times > 1), None)
    return None if twice is None else f"holds {twice!r} twice"


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(f"{CONFIG_NAME} is not valid", why=why, fix="copy the bundle again from where you got it")
