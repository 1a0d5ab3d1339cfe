"""What a student learns from inside its teacher: hidden states through a projection, relations between tokens.

Both need teacher and student to cut texts into the same tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from edgepack.errors import StageFailedError
from edgepack.paddle_ml.batches import Batch
from edgepack.paddle_ml.networks import attentions
from edgepack.recipe.shapes import spread
from edgepack.recipe.training import Distill

_PARTS = ("q_proj", "k_proj", "v_proj")


class Match:
    """Losses of a student against the inside of its teacher, one figure a row.

    hidden: the mean squared difference of the student's hidden states, through a learnt projection to the teacher's
    width, and the teacher's, over all tokens and mapped layers (Jiao et al., "TinyBERT", 2020).
    relations: KL divergence between the scaled products of queries with queries, keys with keys and values with
    values of the top mapped layers, each over all tokens (Wang et al., "MiniLMv2", 2021).

    Args:
        student, teacher: PaddleNLP Ernie networks with a head; the teacher is not changed.
        settings: `hidden`, `relations` and `layers` of the recipe.

    Raises:
        StageFailedError: `layers` does not fit the two.
    """

    def __init__(self, student: Any, teacher: Any, settings: Distill) -> None:
        self._teacher = teacher
        self._hidden, self._relations = settings.hidden, settings.relations
        ours, theirs = student.ernie.config, teacher.ernie.config
        chosen = settings.layers or spread(ours.num_hidden_layers, theirs.num_hidden_layers)
        if len(chosen) != ours.num_hidden_layers or max(chosen) > theirs.num_hidden_layers:
            raise StageFailedError(
                f"student.distill.layers is {list(chosen)}",
                why=f"the student has {ours.num_hidden_layers} layers and the teacher {theirs.num_hidden_layers}",
                fix="name a layer of the teacher, from 1, for each layer of the student, or leave the key out",
            )
        self._map = list(chosen)
        # One group for each of the teacher's heads; a student that was pruned to less width than that has fewer.
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
        """Whether the student's network must be asked for its hidden states."""
        return self._hidden

    def forget(self) -> None:
        """Drop what was seen of a batch that is not gone on with."""
        for seen in self._seen.values():
            seen.clear()

    def loss(self, hidden_states: Sequence[Any], batch: Batch) -> Any:
        """Loss of each row of the batch that the student has just read, shape (B,).

        Args:
            hidden_states: the student's, embeddings first, each (B, T, H); unused unless `hidden` is set.
        """
        mask = (batch.ids != 0).astype("float32")  # (B, T)
        with paddle.no_grad():
            told = self._teacher(batch.ids, batch.types, output_hidden_states=self._hidden, return_dict=True)
        total = paddle.zeros([batch.ids.shape[0]])
        if self._hidden:
            total = total + self._of_hidden(hidden_states, told.hidden_states, mask)
        if self._relations:
            total = total + self._of_relations(mask)
        return total

    def _of_hidden(self, ours: Sequence[Any], theirs: Sequence[Any], mask: Any) -> Any:
        losses = []
        for layer, taught_by in enumerate(self._map, start=1):
            difference = self.projection(ours[layer]) - theirs[taught_by]  # (B, T, H of the teacher)
            of_token = (difference * difference).mean(axis=-1)  # (B, T)
            losses.append((of_token * mask).sum(axis=-1) / mask.sum(axis=-1))
        return sum(losses) / len(losses)

    def _of_relations(self, mask: Any) -> Any:
        pairs = list(zip(self._seen["student"], self._seen["teacher"], strict=True))
        self.forget()
        return sum(self._divergence(ours, theirs, mask) for ours, theirs in pairs) / len(pairs)

    def _divergence(self, ours: Any, theirs: Any, mask: Any) -> Any:
        hidden = (mask - 1).unsqueeze([1, 2]) * 1e4  # (B, 1, 1, T): padding is related to nothing
        wanted, learnt = (self._relation(states) + hidden for states in (theirs.detach(), ours))  # (B, R, T, T)
        known = F.log_softmax(wanted, axis=-1)
        divergence = (known.exp() * (known - F.log_softmax(learnt, axis=-1))).sum(axis=-1).mean(axis=1)  # (B, T)
        return (divergence * mask).sum(axis=-1) / mask.sum(axis=-1)

    def _relation(self, states: Any) -> Any:
        """(B, T, H) -> (B, R, T, T): products of tokens with tokens, in R groups of their width."""
        rows, tokens, width = states.shape
        part = width // self._groups
        split = states[:, :, : part * self._groups].reshape([rows, tokens, self._groups, part]).transpose([0, 2, 1, 3])
        return paddle.matmul(split, split, transpose_y=True) / math.sqrt(part)

    def _watch(self, network: Any, who: str, layer: int) -> None:
        attention = network.ernie.encoder.layers[layer].self_attn

        def keep(module: Any, inputs: Any, output: Any) -> None:
            if network.training or who == "teacher":  # a student that is only evaluated is held against nothing
                self._seen[who].append(output)

        for part in _PARTS:
            getattr(attention, part).register_forward_post_hook(keep)
