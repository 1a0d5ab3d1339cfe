"""PaddleNLP's ERNIE classifiers: built, or opened from what was saved. One that was pruned in width is one of them.

A pruned network keeps its teacher's hidden size and size of a head, and has fewer heads and feed-forward neurons. The
neurons are `intermediate_size` of its config.json; for the heads PaddleNLP has no word, since it takes the size of a
head for `hidden_size` / `num_attention_heads`: they stand there under a key of our own, `shapes.KEPT_HEADS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import paddle
from paddlenlp.transformers import ErnieForSequenceClassification, ErnieForTokenClassification

from edgepack.errors import StageFailedError
from edgepack.paddle_ml import huggingface
from edgepack.recipe.model import TaskName
from edgepack.recipe.shapes import KEPT_HEADS, kept_heads, read_config

KINDS: Final[Mapping[TaskName, Any]] = {
    "text-classification": ErnieForSequenceClassification,
    "text-pair-classification": ErnieForSequenceClassification,
    "token-classification": ErnieForTokenClassification,
}


class _Narrow:
    """With `shapes.KEPT_HEADS` of its config's heads in each layer."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        _narrow(self)


class NarrowErnieForSequenceClassification(_Narrow, ErnieForSequenceClassification):  # type: ignore[misc, unused-ignore]
    """One that was pruned in width."""


class NarrowErnieForTokenClassification(_Narrow, ErnieForTokenClassification):  # type: ignore[misc, unused-ignore]
    """One that was pruned in width."""


_NARROW_KINDS: Final[Mapping[Any, Any]] = {
    ErnieForSequenceClassification: NarrowErnieForSequenceClassification,
    ErnieForTokenClassification: NarrowErnieForTokenClassification,
}


def build(task: TaskName, config: Any) -> Any:
    """A network of random weights, after a PaddleNLP ErnieConfig.

    Raises:
        StageFailedError: the config names what cannot be built.
    """
    network = _kind(task, hasattr(config, KEPT_HEADS))(config)
    huggingface.honour_epsilon(network)
    return network


def from_pretrained(task: TaskName, source: str, **settings: Any) -> Any:
    """The network that PaddleNLP's hub has under a name, or that `save_pretrained` wrote to a folder.

    Args:
        settings: that replace those of its config, as `num_classes`.

    Raises:
        StageFailedError: its config names what cannot be built.
        Exception: whatever PaddleNLP has to say.
    """
    config = read_config(Path(source)) or {}  # of a model of the hub there is none
    network = _kind(task, KEPT_HEADS in config).from_pretrained(source, **settings)
    huggingface.honour_epsilon(network)
    return network


def attentions(network: Any) -> list[Any]:
    """The attention of each layer, lowest first; `num_heads` of them says how many heads there are."""
    return [layer.self_attn for layer in network.ernie.encoder.layers]


def _kind(task: TaskName, is_narrow: bool) -> Any:
    return _NARROW_KINDS[KINDS[task]] if is_narrow else KINDS[task]


def _narrow(network: Any) -> None:
    """Give each layer's attention as many heads as the config keeps: (hidden, heads x size of a head) and back."""
    config = network.config
    heads = kept_heads({KEPT_HEADS: getattr(config, KEPT_HEADS)}, config.num_attention_heads)
    if heads is None:
        raise StageFailedError(
            f"config.json: `{KEPT_HEADS}` is {getattr(config, KEPT_HEADS)!r}",
            why=f"the model had {config.num_attention_heads} heads before it was pruned",
            fix="copy the model again from where it was trained",
        )
    for attention in attentions(network):
        hidden, inner = attention.embed_dim, heads * attention.head_dim
        attention.num_heads = heads
        attention.q_proj, attention.k_proj, attention.v_proj = (paddle.nn.Linear(hidden, inner) for _ in range(3))
        attention.out_proj = paddle.nn.Linear(inner, hidden)
