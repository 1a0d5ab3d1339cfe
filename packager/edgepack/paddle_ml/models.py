"""ERNIE classifiers and their tokenizers, from scratch, from a folder or from PaddleNLP's hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import paddle
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification, ErnieTokenizer

from edgepack.datasets import vocabulary
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError
from edgepack.recipe.model import FromScratch, Scratch, is_local_folder
from edgepack.recipe.shapes import SCRATCH_TASK_TYPES, SCRATCH_TOKEN_TYPES

Int64 = npt.NDArray[np.int64]
_DOWNLOADERS: Final = ("requests", "urllib3")  # the libraries that PaddleNLP downloads with
_OFFLINE: Final = (
    "copy the model here as a folder that holds config.json, model_state.pdparams and vocab.txt (and "
    "tokenizer_config.json, if it has one), as PaddleNLP's `ErnieModel.save_pretrained` writes it where there is a "
    "network, and name it in the recipe: `model: ./FOLDER` (docs/10-recipe.md has the lines to type)"
)
_OTHER_LABELS: Final = (
    "the folder holds a classifier of other labels: save its encoder alone, as PaddleNLP's ErnieModel"
)


@dataclass(frozen=True)
class Classifier:
    """A network with the tokenizer and the length it was made for."""

    network: Any  # paddlenlp ErnieForSequenceClassification
    tokenizer: Any  # paddlenlp ErnieTokenizer
    labels: tuple[str, ...]
    max_length: int

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(sum(int(np.prod(p.shape)) for p in self.network.parameters()))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, [CLS] and [SEP] included, cut to `max_length`."""
        return [self.tokenizer(text, max_length=self.max_length, truncation=True)["input_ids"] for text in texts]

    def save(self, folder: Path) -> None:
        """Write a PaddleNLP folder: weights, config and vocabulary."""
        self.network.save_pretrained(str(folder))
        self.tokenizer.save_pretrained(str(folder))


def create(
    source: str | FromScratch,
    labels: tuple[str, ...],
    max_length: int,
    texts: Sequence[str],
    seed: int,
    scratch: Path,
) -> Classifier:
    """A classifier to train. `texts` build the vocabulary of one from scratch; `scratch` is a folder to write it to.

    Raises:
        EnvironmentUnfitError: when a model of the hub is not on this machine and cannot be downloaded.
        StageFailedError: when the weights cannot be loaded, or are of a model with fewer positions.
    """
    paddle.seed(seed)
    if isinstance(source, FromScratch):
        return _from_scratch(source.scratch, labels, max_length, texts, scratch)
    tokenizer, network = _pretrained(source, len(labels))
    longest = int(network.config.max_position_embeddings)
    if max_length > longest:
        raise StageFailedError(f"max_length {max_length} is more than the {longest} positions of {source!r}")
    return Classifier(network, tokenizer, labels, max_length)


def probe(source: str | FromScratch) -> None:
    """Load a model and let it go: what is missing or damaged shows now, and a download is done. Raises as `create`."""
    if isinstance(source, str):
        _pretrained(source, n_labels=2)


def _pretrained(source: str, n_labels: int) -> tuple[Any, Any]:
    try:
        tokenizer = ErnieTokenizer.from_pretrained(source)
        return tokenizer, ErnieForSequenceClassification.from_pretrained(source, num_classes=n_labels)
    except Exception as error:
        raise _refusal(source, error) from error


def _refusal(source: str, error: Exception) -> EdgepackError:
    """Why `source` could not be loaded: its download could not be done, or what is there is not usable."""
    causes = list(_causes(error))
    network = [cause for cause in causes if type(cause).__module__.partition(".")[0] in _DOWNLOADERS]
    # PaddleNLP takes a 404 for an answer, and then misses the files; what the disk refuses has a number.
    missed = isinstance(error, OSError | AssertionError) and not any(getattr(cause, "errno", None) for cause in causes)
    if not is_local_folder(source) and (network or missed):
        why = str(network[-1]) if network else "PaddleNLP's hub does not have it, or not all of its files"
        return EnvironmentUnfitError(f"model {source!r} cannot be downloaded", why=why, fix=_OFFLINE)
    why = str(causes[-1]) or str(error)
    fix = (
        _OTHER_LABELS
        if "classifier.weight receives a shape" in why
        else "name a local ERNIE folder or a PaddleNLP model"
    )
    return StageFailedError(f"model {source!r} cannot be loaded", why=why, fix=fix)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and what led to it, the first cause last."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def load(folder: Path, labels: tuple[str, ...], max_length: int) -> Classifier:
    """A classifier that `Classifier.save` wrote, in evaluation mode."""
    network = ErnieForSequenceClassification.from_pretrained(str(folder))
    network.eval()
    return Classifier(network, ErnieTokenizer.from_pretrained(str(folder)), labels, max_length)


def pad(rows: Sequence[Sequence[int]]) -> Int64:
    """Rows of ids -> (B, T) int64, padded with 0 ([PAD]) to the longest."""
    width = max(len(row) for row in rows)
    padded = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _from_scratch(
    shape: Scratch, labels: tuple[str, ...], max_length: int, texts: Sequence[str], scratch: Path
) -> Classifier:
    vocabulary_file = scratch / "vocab.txt"
    tokens = vocabulary.build(texts, shape.max_vocabulary)
    vocabulary.write(tokens, vocabulary_file)
    config = ErnieConfig(
        vocab_size=len(tokens),
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
        num_labels=len(labels),
        pad_token_id=0,
    )
    network = ErnieForSequenceClassification(config)
    # Saved and loaded again: only `from_pretrained` keeps [SEP] and the like whole in a text, as the device does.
    ErnieTokenizer(vocab_file=str(vocabulary_file), do_lower_case=True, model_max_len=max_length).save_pretrained(
        str(scratch)
    )
    return Classifier(network, ErnieTokenizer.from_pretrained(str(scratch)), labels, max_length)
