"""ERNIE classifiers: from scratch, from a folder, from PaddleNLP's hub, or from layers of a teacher.

Training and device use the same tokenizer, the runtime's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import paddle
from huggingface_hub.errors import EntryNotFoundError
from paddlenlp.transformers import (
    ErnieConfig,
    ErnieForSequenceClassification,
    ErnieForTokenClassification,
    ErnieTokenizer,
)
from paddlenlp.utils.download.bos_download import bos_download
from requests import RequestException

from edgepack.artifacts import NO_SCALE, Row, Scale
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError
from edgepack.messages import message
from edgepack.recipe import hub
from edgepack.recipe.encoder_shapes import (
    CONFIG_FILE,
    KEPT_HEADS,
    PADDLE_WEIGHTS,
    SCRATCH_TASK_TYPES,
    SCRATCH_TOKEN_TYPES,
    evenly_spread_layers,
    file_problems,
    is_huggingface_folder,
    kept_heads,
    known_fields,
    parameters_at_once,
    read_config,
    shape_of_config,
    shape_of_folder,
)
from edgepack.recipe.huggingface_config import paddle_problems
from edgepack.recipe.paths import is_file
from edgepack.recipe.tokenizer_settings import TOKENIZER_SETTINGS
from edgepack.recipe.training import FromScratch, FromTeacher, Scratch, is_local_folder
from edgepack.tasks.task import Encoded
from edgepack.training.models import batches, huggingface, paddle_file, tokenizer_files, vocabulary, width_pruning
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.inference.tokenizer import ErnieTokenizer as Tokenizer
from edgepack_runtime.inference.tokenizer import read_vocab
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name
from edgepack_runtime.tasks.task import Task


class _WidthPruned:
    """With `KEPT_HEADS` of its config's heads in each layer.

    Paddle can only make a layer with all heads, which may be far larger than what stays of it. So PaddleNLP makes one
    layer, and each further one follows when the one before has been pruned.
    """

    def __init__(self, config: Any) -> None:
        heads, layers = _checked_heads(config), config.num_hidden_layers
        config.num_hidden_layers = min(layers, 1)
        try:
            super().__init__(config)  # type: ignore[call-arg]
        finally:
            config.num_hidden_layers = layers
        _prune_width(self, heads)


class WidthPrunedErnieForSequenceClassification(_WidthPruned, ErnieForSequenceClassification):  # type: ignore[misc, unused-ignore]
    """A classifier whose heads and neurons were pruned."""


class WidthPrunedErnieForTokenClassification(_WidthPruned, ErnieForTokenClassification):  # type: ignore[misc, unused-ignore]
    """A classifier whose heads and neurons were pruned."""


_WIDTH_PRUNED_KINDS: Final[Mapping[Any, Any]] = {
    ErnieForSequenceClassification: WidthPrunedErnieForSequenceClassification,
    ErnieForTokenClassification: WidthPrunedErnieForTokenClassification,
}


def build(task: Task, config: Any) -> Any:
    """A network with random weights from a PaddleNLP ErnieConfig.

    Raises:
        StageFailedError: a value of the config is not supported.
    """
    network = _kind(task, hasattr(config, KEPT_HEADS))(config)
    huggingface.honour_epsilon(network)
    return network


def from_pretrained(task: Task, folder: Path, n_labels: int) -> Any:
    """A network from a folder that `save_pretrained` wrote; a head of another number of labels is an error.

    Raises:
        StageFailedError: its config.json has no sizes, a value of it is not supported, or its weights are damaged.
        Exception: any error of PaddleNLP.
    """
    fields = read_config(folder)
    if fields is None or shape_of_config({**fields, KEPT_HEADS: 1}) is None:  # `_checked_heads` judges the kept heads
        raise StageFailedError(
            f"{folder / CONFIG_FILE} does not describe an ERNIE model", fix="copy the folder again, or name another one"
        )
    if problems := paddle_problems(fields):
        raise StageFailedError(
            f"{folder / CONFIG_FILE} cannot be used", why=problems[0], fix="name a folder with another model"
        )
    config = ErnieConfig(**known_fields(fields), num_labels=n_labels)
    weights = paddle_file.read(folder / PADDLE_WEIGHTS)  # PaddleNLP would run code of this file
    network = _kind(task, KEPT_HEADS in fields).from_pretrained(
        str(folder.absolute()), config=config, state_dict=weights, use_safetensors=False
    )
    huggingface.honour_epsilon(network)
    return network


def attentions(network: Any) -> list[Any]:
    """The attention of each layer, lowest first, with its number of heads as `num_heads`."""
    return [layer.self_attn for layer in network.ernie.encoder.layers]


def _kind(task: Task, is_width_pruned: bool) -> Any:
    kind = ErnieForTokenClassification if task.per_token else ErnieForSequenceClassification
    return _WIDTH_PRUNED_KINDS[kind] if is_width_pruned else kind


def _checked_heads(config: Any) -> int:
    """Heads of each layer that the config keeps."""
    heads = kept_heads({KEPT_HEADS: getattr(config, KEPT_HEADS)}, config.num_attention_heads)
    if heads is None:
        raise StageFailedError(
            f"config.json: `{KEPT_HEADS}` is {getattr(config, KEPT_HEADS)!r}",
            why=f"the model had {config.num_attention_heads} heads before it was pruned",
            fix="copy the model again from where it was trained",
        )
    return heads


def _prune_width(network: Any, heads: int) -> None:
    """Shrink the attention of the one layer that the network has, then add the further ones, each shrunk at once."""
    encoder = network.ernie.encoder
    for number in range(network.config.num_hidden_layers):
        if number > 0:
            first = encoder.layers[0]
            encoder.layers.append(type(first)(**first._config))
        _shrink(encoder.layers[number].self_attn, heads)
    encoder.num_layers = len(encoder.layers)


def _shrink(attention: Any, heads: int) -> None:
    """Replace the projections by those of `heads` heads: (hidden, heads x head size) and back."""
    hidden, inner = attention.embed_dim, heads * attention.head_dim
    attention.num_heads = heads
    attention.q_proj, attention.k_proj, attention.v_proj = (paddle.nn.Linear(hidden, inner) for _ in range(3))
    attention.out_proj = paddle.nn.Linear(inner, hidden)


_WORDS: Final = "ernie.embeddings.word_embeddings.weight"
_LAYER: Final = re.compile(r"\.layers\.(\d+)\.")
_DOWNLOADERS: Final = ("requests", "urllib3")  # the libraries that PaddleNLP downloads with
_OFFLINE: Final = message("mistake.offline")
_OTHER_LABELS: Final = (
    "the folder holds a classifier of other labels: save its encoder alone, as PaddleNLP's ErnieModel; to package it "
    "as it is, write `model: {folder: ...}` in place of `student`"
)


@dataclass(frozen=True)
class Classifier:
    """A network with its tokenizer and maximum length. Logit i belongs to `labels[i]`."""

    network: Any  # paddlenlp ErnieForSequenceClassification or ErnieForTokenClassification
    tokenizer: Tokenizer
    task: Task
    labels: tuple[str, ...]
    max_length: int

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(sum(int(np.prod(p.shape)) for p in self.network.parameters()))

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """Tokens of each row with special tokens, cut to `max_length`; with offsets if tokens are classified."""
        if self.task.in_second:
            return [several[0] for several in self.windows(rows)]
        return batches.encode(self.tokenizer, rows, self.max_length, with_offsets=self.task.per_token)

    def windows(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """Each row as it is learnt and scored: one, or if the task is `in_second` in windows."""
        if self.task.in_second:
            return [batches.windows(self.tokenizer, row, self.max_length) for row in rows]
        return [[one] for one in self.encode(rows)]

    def rescale(self, scale: Scale) -> None:
        """Apply `scale` to all logits, in the weights of the head."""
        if scale == NO_SCALE:
            return
        weight, bias = self.network.classifier.weight, self.network.classifier.bias
        weight.set_value(weight * scale.factor)
        bias.set_value(bias * scale.factor + scale.shift)

    def save(self, folder: Path) -> None:
        """Write weights and config to the folder that holds the vocabulary, which makes it a PaddleNLP model."""
        self.name_weights()
        self.network.save_pretrained(str(folder))

    def name_weights(self) -> None:
        """Give each weight the name of its place. Paddle's names count the layers of a process, and go into files."""
        for name, weight in self.network.state_dict().items():
            weight.name = name


def create(
    source: str | FromScratch,
    labels: tuple[str, ...],
    max_length: int,
    texts: Sequence[str],
    seed: int,
    folder: Path,
    task: Task,
) -> Classifier:
    """A classifier to train.

    Args:
        texts: source of the vocabulary of a model from scratch.
        folder: receives the tokenizer's files.

    Raises:
        EnvironmentUnfitError: a model of the hub is not on this machine and cannot be downloaded.
        StageFailedError: the weights cannot be loaded, or have fewer positions than `max_length`.
    """
    paddle.seed(seed)
    if isinstance(source, FromScratch):
        network = _from_scratch(source.scratch, len(labels), max_length, texts, folder, task)
    else:
        network = _pretrained(source, len(labels), task, folder)
    _check_length(network, max_length, str(source))
    return Classifier(network, tokenizer_files.open_tokenizer(folder), task, labels, max_length)


def cut(
    trained: Path,
    layers: int | Sequence[int] | None,
    labels: tuple[str, ...],
    max_length: int,
    folder: Path,
    task: Task,
    kept: Sequence[width_pruning.Kept] | None = None,
    seed: int = 0,
) -> Classifier:
    """A classifier from some layers of a trained one, with its embeddings, pooler and head.

    Args:
        trained: folder of the trained classifier.
        layers: number of layers, evenly spread up to the top one, or their numbers from 1; None for all.
        folder: receives the tokenizer's files.
        kept: heads and neurons of each trained layer that stay; None for all.
        seed: seed of random weights that are drawn later, such as the projection of hidden states.

    Raises:
        StageFailedError: the trained classifier does not have these layers, or has too few positions.
    """
    paddle.seed(seed)
    whole = from_pretrained(task, trained, len(labels))
    there = int(whole.config.num_hidden_layers)
    layers = there if layers is None else layers
    chosen = evenly_spread_layers(layers, there) if isinstance(layers, int) else list(layers)
    if max(chosen) > there or len(chosen) > there:
        raise StageFailedError(
            f"the teacher has {there} layers, and the student is to start from {layers}",
            fix=f"name layers from 1 to {there} in `student.model.layers`",
        )
    _check_length(whole, max_length, "the teacher")
    config = {**whole.config.to_dict(), "num_hidden_layers": len(chosen)}
    weights = {name: value.numpy() for name, value in whole.state_dict().items()}
    if kept is not None:
        config |= {KEPT_HEADS: len(kept[0].heads), "intermediate_size": len(kept[0].neurons)}
        weights = width_pruning.pruned(weights, kept, attentions(whole)[0].head_dim)
    network = build(task, ErnieConfig.from_dict(config))
    network.set_state_dict({name: weights[_name_in_teacher(name, chosen)] for name in network.state_dict()})
    tokenizer_files.copy(trained, folder)
    return Classifier(network, tokenizer_files.open_tokenizer(folder), task, labels, max_length)


def with_tokens(whole: Classifier, source: Path, kept: Sequence[int], folder: Path) -> Classifier:
    """The classifier with a smaller vocabulary and only the `kept` rows of its word embedding.

    Args:
        whole: the classifier, loaded from the folder `source`.
        kept: ids in ascending order, including the padding. They become 0, 1, ...
        folder: receives the tokenizer's files.
    """
    config = whole.network.config.to_dict()
    config |= {"vocab_size": len(kept), "pad_token_id": list(kept).index(config["pad_token_id"])}
    weights = {name: value.numpy() for name, value in whole.network.state_dict().items()}
    weights[_WORDS] = weights[_WORDS][list(kept)]
    network = build(whole.task, ErnieConfig.from_dict(config))
    network.set_state_dict(weights)
    network.eval()
    entries = read_vocab(source / VOCAB_NAME)
    vocabulary.write([entries[number] for number in kept], folder / VOCAB_NAME)
    shutil.copyfile(source / TOKENIZER_SETTINGS, folder / TOKENIZER_SETTINGS)
    return Classifier(network, tokenizer_files.open_tokenizer(folder), whole.task, whole.labels, whole.max_length)


def _name_in_teacher(name: str, layers: Sequence[int]) -> str:
    """Layer i (from 0) of the student is layer `layers[i]` (from 1) of its teacher."""
    return _LAYER.sub(lambda found: f".layers.{layers[int(found[1])] - 1}.", name)


def _check_length(network: Any, max_length: int, source: str) -> None:
    longest = int(network.config.max_position_embeddings)
    if max_length > longest:
        raise StageFailedError(f"max_length {max_length} is more than the {longest} positions of {source!r}")


def probe(source: str | FromScratch | FromTeacher) -> None:
    """Load a model once, to find missing or damaged files and to download it. Raises as `create`."""
    if isinstance(source, str):
        with TemporaryDirectory(prefix="edgepack-") as temporary:
            _pretrained(source, 2, task_by_name(ONE_TEXT), Path(temporary))


def _pretrained(source: str, n_labels: int, task: Task, out: Path) -> Any:
    """The network of a local folder, or of a model of the hub. Its tokenizer's files go to `out`."""
    problems = file_problems(Path(source)) if is_local_folder(source) else []
    if problems:
        raise StageFailedError(
            f"model {source!r} cannot be loaded", why=problems[0], fix="copy the folder: `cp -rL FOLDER COPY`"
        )
    try:
        with nullcontext(Path(source)) if is_local_folder(source) else _downloaded(source) as folder:
            if is_huggingface_folder(folder):
                network = huggingface.load(folder, _kind(task, is_width_pruned=False), n_labels)
            else:
                _check_folder(folder)
                network = from_pretrained(task, folder, n_labels)
            tokenizer_files.take(folder, out, int(network.config.vocab_size), source)
            return network
    except EdgepackError:
        raise
    except Exception as error:
        why = str(list(_causes(error))[-1]) or str(error)
        fix = (
            _OTHER_LABELS
            if "classifier.weight receives a shape" in why
            else "name a local ERNIE folder or a PaddleNLP model"
        )
        raise StageFailedError(f"model {source!r} cannot be loaded", why=why, fix=fix) from error


def _check_folder(folder: Path) -> None:
    """Refuse what PaddleNLP would run, or reserve memory for, before it reads the weights."""
    if others := sorted(folder.glob("*.index.json")):  # PaddleNLP prefers these, and may run code of the listed files
        raise StageFailedError(f"{others[0]} lists weights in parts", fix=f"save them as one {PADDLE_WEIGHTS}")
    weights = folder / PADDLE_WEIGHTS
    fields = {key: value for key, value in (read_config(folder) or {}).items() if key != KEPT_HEADS}
    shape = shape_of_folder(folder) or shape_of_config(fields)  # a number of heads that cannot be is refused later
    if shape is None or not is_file(weights):
        return
    made = parameters_at_once(shape)
    huggingface.require_size(weights, shape)
    if made > weights.stat().st_size:
        raise StageFailedError(
            f"{folder / CONFIG_FILE} describes another model than {PADDLE_WEIGHTS} holds",
            why=f"it takes {made:,} weights, and the file has {weights.stat().st_size:,} bytes",
            fix="copy both files of the same model",
        )


@contextmanager
def _downloaded(name: str) -> Iterator[Path]:
    """A folder with links to the files of a model of the hub. PaddleNLP downloads each once, and reads none here."""
    shape = ErnieConfig.pretrained_init_configuration.get(name)
    with TemporaryDirectory(prefix="edgepack-") as temporary:
        folder = Path(temporary)
        try:
            if shape is None:  # of the community
                for file in (PADDLE_WEIGHTS, CONFIG_FILE, VOCAB_NAME):
                    (folder / file).symlink_to(_download(name, file))
                (folder / TOKENIZER_SETTINGS).symlink_to(_tokenizer_settings(name))
            else:
                vocab = ErnieTokenizer.pretrained_resource_files_map["vocab_file"][name]
                weights = ErnieForSequenceClassification.pretrained_resource_files_map["model_state"][name]
                (folder / VOCAB_NAME).symlink_to(_download(name, url=vocab))
                (folder / PADDLE_WEIGHTS).symlink_to(_download(name, PADDLE_WEIGHTS, url=weights))
                (folder / CONFIG_FILE).write_text(json.dumps(shape), encoding="utf-8")
                settings = ErnieTokenizer.pretrained_init_configuration[name]
                (folder / TOKENIZER_SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
        except RequestException as error:
            raise EnvironmentUnfitError(
                message("mistake.no_download", model=repr(name)), why=str(_of_the_network(error)), fix=_OFFLINE
            ) from error
        yield folder


def _tokenizer_settings(name: str) -> Path:
    """The path of a file that not every model has. `{}` is kept in its place, to need no network another time."""
    try:
        return _download(name, TOKENIZER_SETTINGS)
    except EntryNotFoundError:
        file = hub.model(name).folder / TOKENIZER_SETTINGS
        file.write_text("{}", encoding="utf-8")
        return file


def _download(name: str, file: str | None = None, url: str | None = None) -> Path:
    """The path of a file of a model, which is downloaded if it is not there."""
    path: str = bos_download(name, file, url=url, cache_dir=hub.models_folder())
    return Path(path).absolute()


def _of_the_network(error: Exception) -> BaseException:
    """The first cause that is an error of the libraries that PaddleNLP downloads with."""
    return [cause for cause in _causes(error) if type(cause).__module__.partition(".")[0] in _DOWNLOADERS][-1]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and its causes, the first cause last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def load(folder: Path, labels: tuple[str, ...], max_length: int, task: Task) -> Classifier:
    """A classifier that `Classifier.save` wrote, in evaluation mode."""
    network = from_pretrained(task, folder, len(labels))
    network.eval()
    return Classifier(network, tokenizer_files.open_tokenizer(folder), task, labels, max_length)


def _from_scratch(
    shape: Scratch, n_labels: int, max_length: int, texts: Sequence[str], folder: Path, task: Task
) -> Any:
    entries = vocabulary.build(texts, shape.max_vocabulary)
    vocabulary.write(entries, folder / VOCAB_NAME)
    config = ErnieConfig(
        vocab_size=len(entries),
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward or 4 * shape.hidden,
        max_position_embeddings=max_length,
        type_vocab_size=SCRATCH_TOKEN_TYPES,
        use_task_id=True,
        task_type_vocab_size=SCRATCH_TASK_TYPES,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        num_labels=n_labels,
        pad_token_id=0,
    )
    tokenizer_files.write_settings(folder, lowers=True)
    return build(task, config)
