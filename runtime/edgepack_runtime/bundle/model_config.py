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
from typing import AbstractSet, Any, Iterator, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.schema.fields import Document, Exact, Problem, field, valid
from edgepack_runtime.schema.maxima import MAX_LABELS, MAX_TOKENS
from edgepack_runtime.tasks.registry import TASK_NAMES, task_by_name
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.fs import read_regular
from edgepack_runtime.util.texts import has_surrogate

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
_WEIGHT: Mapping[str, Any] = {"ge": 0, "le": 1e9}  # of `linear`
_HANDLER_KEYS = frozenset(("task", "precision", "engine", "handler"))
_LINEAR_KEYS = frozenset(("task", "labels", "multi_label", "linear"))  # of a linear model alone


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(Exact):
    """Options of the tokenizer. `vocab.txt` must hold the special tokens.

    `kept_tokens` are further entries of it that are kept whole wherever a text has them. A document without such tokens
    has no such key.
    """

    type: str = field(default=TOKENIZERS[0], one_of=TOKENIZERS)
    lower_case: bool = True
    unk_token: str = "[UNK]"
    cls_token: str = "[CLS]"
    sep_token: str = "[SEP]"
    pad_token: str = "[PAD]"
    kept_tokens: Tuple[str, ...] = ()

    @classmethod
    def keys(cls, given: Mapping[str, Any]) -> AbstractSet[str]:
        return super().keys(given) - ({"kept_tokens"} - given.keys())

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _problem("the special tokens", [self.unk_token, self.cls_token, self.sep_token, self.pad_token], 4)
        yield from _problem("kept_tokens", self.kept_tokens, 0)


@dataclasses.dataclass(frozen=True)
class EngineConfig(Exact):
    """Options of ONNX Runtime. `provider` must be active in the session; there is no fallback.

    `disabled_optimizers` are names of ONNX Runtime's graph optimizers.
    """

    provider: str = field(default=CPU, one_of=PROVIDERS)
    disabled_optimizers: Tuple[str, ...] = ()

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _problem("disabled_optimizers", self.disabled_optimizers, 0)

    @property
    def one_at_a_time(self) -> bool:
        """Whether concurrent predictions run one after the other, as on a GPU."""
        return self.provider != CPU


@dataclasses.dataclass(frozen=True)
class LinearConfig(Exact):
    """How a linear model on characters answers beside the encoder, or without one.

    `ensemble`: the logits are `encoder_weight` x the encoder's + `linear_weight` x the linear model's. `cascade`: the
    linear model answers alone if its lead is at least `least_lead`; else as `ensemble`. The lead is the difference of
    its two highest logits; with several labels, the smallest distance of a logit from 0; numbers have none. `only`: the
    linear model answers alone, and the folder has no `model.onnx` and no `vocab.txt`.
    """

    mode: str = field(one_of=LINEAR_MODES)
    encoder_weight: float = field(default=1.0, **_WEIGHT)
    linear_weight: float = field(default=1.0, **_WEIGHT)
    least_lead: float = field(default=0.0, **_WEIGHT)


@dataclasses.dataclass(frozen=True)
class HandlerConfig(Exact):
    """What the handler reads, one of HANDLER_ITEMS, and the names of the graphs that it calls."""

    item: str = field(one_of=HANDLER_ITEMS)
    graphs: Tuple[str, ...] = field()

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _problem("graphs", self.graphs, 1)
        for name in self.graphs:
            if not GRAPH_NAME.match(name):
                yield Problem(("graphs",), f"holds {name!r}, which is not a name of a graph")


@dataclasses.dataclass(frozen=True)
class ModelConfig(Document):
    """A parsed `model.json`. Logit i of the graph belongs to `labels[i]`; texts are cut to `max_length` tokens.

    `multi_label`: a text has any number of labels instead of exactly one. `hides_padding`: the graph masks padding; if
    not, a batch has texts of one length only. `run_alone`: batches have one text, since the graph computes quantization
    ranges for each run. `linear` (some tasks only): a linear model answers too; None without one.

    A model with a `handler` has of the other fields only task, precision and engine. A linear model alone has task,
    labels, `multi_label` and `linear`. Both have a `max_length` of 0: they cut nothing to tokens.
    """

    task: str = field(one_of=TASKS)
    labels: Tuple[str, ...] = ()
    max_length: int = field(default=0, ge=3, le=MAX_TOKENS)
    precision: str = field(default=PRECISIONS[0], one_of=PRECISIONS)
    tokenizer: TokenizerConfig = TokenizerConfig()
    engine: EngineConfig = EngineConfig()
    multi_label: bool = False
    hides_padding: bool = True
    run_alone: bool = False
    linear: Optional[LinearConfig] = None
    handler: Optional[HandlerConfig] = None

    @classmethod
    def keys(cls, given: Mapping[str, Any]) -> AbstractSet[str]:
        linear = given.get("linear")
        if given.get("task") == CUSTOM:
            return _HANDLER_KEYS
        if isinstance(linear, Mapping) and linear.get("mode") == ONLY:
            return _LINEAR_KEYS
        return {one.name for one in dataclasses.fields(cls)} - {"handler"} - ({"linear"} - given.keys())

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if self.task == CUSTOM:
            if self.handler is None:
                yield Problem(("handler",), "should be an object, not null")
            return
        if self.linear is not None and not task_by_name(self.task).linear:
            yield Problem((), f"has `linear`, but {self.task} does not support a linear model")
        try:
            problem = label_problem(self.labels, self.text_task)
        except KeyError:
            yield Problem(("multi_label",), f"is true, but {self.task} does not support several labels")
        else:
            if problem is not None:
                yield Problem(("labels",), problem)

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
    document = {key: value for key, value in dataclasses.asdict(config).items() if key != "linear" or value is not None}
    if not config.tokenizer.kept_tokens:
        del document["tokenizer"]["kept_tokens"]
    document = {"model_format": FORMAT, **{key: document[key] for key in ModelConfig.keys(document)}}
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
    found = document.pop("model_format", None) if isinstance(document, dict) else None
    if type(found) is not int or found != FORMAT:  # True and 1.0 are 1 to Python
        raise _invalid(f"model_format is {found!r}; this runtime supports {[FORMAT]}")
    return valid(ModelConfig, document, _invalid)


def label_problem(labels: Any, task: Task) -> Optional[str]:
    """Why `labels` are not a list of those that a model of `task` may have, in the order of its logits, or None."""
    return _texts_problem(labels, task.least_labels) or task.label_problem(labels)


def linear_alone(task: Task, labels: Sequence[str]) -> ModelConfig:
    """The configuration of a linear model that answers every item alone. Its scores are computed in float."""
    return ModelConfig(task.name, tuple(labels), multi_label=task.multi_label, linear=LinearConfig(ONLY))


def _problem(name: str, items: Sequence[str], minimum: int) -> Iterator[Problem]:
    problem = _texts_problem(items, minimum)
    if problem is not None:
        yield Problem((name,), problem)


def _texts_problem(value: Any, minimum: int) -> Optional[str]:
    if not isinstance(value, (list, tuple)) or not minimum <= len(value) <= MAX_LABELS:
        return f"is not a list of {minimum} to {MAX_LABELS} texts"
    if not all(isinstance(item, str) and item.strip() and len(item) <= 256 for item in value):
        return "holds an item that is blank, or not a text of 1 to 256 characters"
    if any(map(has_surrogate, value)):
        return "holds half a surrogate pair, which cannot be printed"
    twice = next((item for item, times in Counter(value).items() if times > 1), None)
    return None if twice is None else f"holds {twice!r} twice"


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(f"{CONFIG_NAME} is not valid", why=why, fix="copy the bundle again from where you got it")
