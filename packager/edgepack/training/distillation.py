"""Losses of a student against the hidden states and token relations of its teacher."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import paddle
import paddle.nn.functional as F

from edgepack.errors import StageFailedError
from edgepack.recipe.encoder_shapes import evenly_spread_layers
from edgepack.recipe.training import Distill
from edgepack.training.models.batches import Batch
from edgepack.training.models.classifiers import attentions

_PARTS: Final = ("q_proj", "k_proj", "v_proj")


class Match:
    """Losses of a student against hidden states and token relations of its teacher, per row.

    hidden: the mean squared difference of the student's hidden states, through a learnt projection to the teacher's
    width, and the teacher's, over all tokens and mapped layers (Jiao et al., "TinyBERT", 2020).
    relations: KL divergence between the scaled products of queries with queries, keys with keys and values with
    values of the student's top layer and the layer mapped to it, each over all tokens (Wang et al., "MiniLMv2", 2021).

    Args:
        student, teacher: PaddleNLP Ernie networks with a head; the teacher is not changed.
        settings: `hidden`, `relations` and `layers` of the recipe.

    Raises:
        StageFailedError: `layers` names layers that one of them does not have.
    """

    def __init__(self, student: Any, teacher: Any, settings: Distill) -> None:
        self._teacher = teacher
        self._hidden, self._relations = settings.hidden, settings.relations
        ours, theirs = student.ernie.config, teacher.ernie.config
        chosen = settings.layers or evenly_spread_layers(ours.num_hidden_layers, theirs.num_hidden_layers)
        if len(chosen) != ours.num_hidden_layers or max(chosen) > theirs.num_hidden_layers:
            raise StageFailedError(
                f"student.distill.layers is {list(chosen)}",
                why=f"the student has {ours.num_hidden_layers} layers and the teacher {theirs.num_hidden_layers}",
                fix="name a layer of the teacher, from 1, for each layer of the student, or leave the key out",
            )
        self._map = list(chosen)
        # One group per head of the teacher; fewer for a student that is narrower than that.
        inside = [attentions(network)[0] for network in (student, teacher)]
        narrowest = min(attention.num_heads * attention.head_dim for attention in inside)
        self._groups = min(inside[1].num_heads, narrowest)
        self.projection = paddle.nn.Linear(ours.hidden_size, theirs.hidden_size)
        self._seen: dict[str, list[Any]] = {"student": [], "teacher": []}
        if self._relations:
            self._watch(student, "student", len(self._map) - 1)
            self._watch(teacher, "teacher", self._map[-1] - 1)

    @property
    def needs_hidden_states(self) -> bool:
        """Whether the student's network must return its hidden states."""
        return self._hidden

    def clear(self) -> None:
        """Drop the recorded outputs of a batch that is not continued."""
        for seen in self._seen.values():
            seen.clear()

    def loss(self, hidden_states: Sequence[Any], batch: Batch) -> Any:
        """Loss (B,) of each row of the batch that the student has just run.

        Args:
            hidden_states: of the student, embeddings first, each (B, T, H); used with `hidden` only.
        """
        mask = (batch.ids != 0).astype("float32")  # (B, T)
        with paddle.no_grad():
            output = self._teacher(batch.ids, batch.types, output_hidden_states=self._hidden, return_dict=True)
        total = paddle.zeros([batch.ids.shape[0]])
        if self._hidden:
            total = total + self._hidden_loss(hidden_states, output.hidden_states, mask)
        if self._relations:
            total = total + self._relation_loss(mask)
        return total

    def _hidden_loss(self, ours: Sequence[Any], theirs: Sequence[Any], mask: Any) -> Any:
        losses = []
        for layer, teacher_layer in enumerate(self._map, start=1):
            difference = self.projection(ours[layer]) - theirs[teacher_layer]  # (B, T, H of the teacher)
            token_losses = (difference * difference).mean(axis=-1)  # (B, T)
            losses.append((token_losses * mask).sum(axis=-1) / mask.sum(axis=-1))
        return sum(losses) / len(losses)

    def _relation_loss(self, mask: Any) -> Any:
        pairs = list(zip(self._seen["student"], self._seen["teacher"], strict=True))
        self.clear()
        return sum(self._divergence(ours, theirs, mask) for ours, theirs in pairs) / len(pairs)

    def _divergence(self, ours: Any, theirs: Any, mask: Any) -> Any:
        padding = (mask - 1).unsqueeze([1, 2]) * 1e4  # (B, 1, 1, T): softmax gives it no share
        wanted, learnt = (self._relation(states) + padding for states in (theirs.detach(), ours))  # (B, R, T, T)
        known = F.log_softmax(wanted, axis=-1)
        divergence = (known.exp() * (known - F.log_softmax(learnt, axis=-1))).sum(axis=-1).mean(axis=1)  # (B, T)
        return (divergence * mask).sum(axis=-1) / mask.sum(axis=-1)

    def _relation(self, states: Any) -> Any:
        """(B, T, H) -> (B, R, T, T): scaled products of tokens with tokens, in R groups of H."""
        rows, tokens, width = states.shape
        part = width // self._groups
        split = states[:, :, : part * self._groups].reshape([rows, tokens, self._groups, part]).transpose([0, 2, 1, 3])
        return paddle.matmul(split, split, transpose_y=True) / math.sqrt(part)

    def _watch(self, network: Any, who: str, layer: int) -> None:
        attention = network.ernie.encoder.layers[layer].self_attn

        def keep(module: Any, inputs: Any, output: Any) -> None:
            if network.training or who == "teacher":  # the evaluation of a student has no loss
                self._seen[who].append(output)

        for part in _PARTS:
            getattr(attention, part).register_forward_post_hook(keep)
