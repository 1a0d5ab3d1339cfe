"""ERNIE classifiers and their tokenizers, from scratch, from a folder or from PaddleNLP's hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification, ErnieTokenizer

from edgepack.datasets import vocabulary
from edgepack.errors import StageFailedError
from edgepack.recipe.model import FromScratch, Scratch

Int64 = npt.NDArray[np.int64]
WEIGHTS_FILE = "model_state.pdparams"  # as PaddleNLP's save_pretrained names it
_TYPE_VOCABULARY = 2
_TASK_VOCABULARY = 3


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
        StageFailedError: when the weights cannot be loaded, or an encoder weight is missing from them.
    """
    paddle.seed(seed)
    if isinstance(source, FromScratch):
        return _from_scratch(source.scratch, labels, max_length, texts, scratch)
    try:
        tokenizer = ErnieTokenizer.from_pretrained(source)
        network = ErnieForSequenceClassification.from_pretrained(source, num_classes=len(labels))
    except Exception as error:
        raise StageFailedError(
            f"model {source!r} cannot be loaded",
            why=str(error),
            fix="name a local ERNIE folder or a PaddleNLP model",
        ) from error
    longest = int(network.config.max_position_embeddings)
    if max_length > longest:
        raise StageFailedError(f"max_length {max_length} is more than the {longest} positions of {source!r}")
    return Classifier(network, tokenizer, labels, max_length)


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
        type_vocab_size=_TYPE_VOCABULARY,
        use_task_id=True,
        task_type_vocab_size=_TASK_VOCABULARY,
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
