"""One step of a training: the loss of a batch, run in as many parts as the memory needs, and the change it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paddle

from edgepack.errors import EnvironmentUnfitError
from edgepack.paddle_ml import cpu_layers
from edgepack.paddle_ml.batches import Batch
from edgepack.paddle_ml.distributed import GradientSum, Ranks
from edgepack.paddle_ml.match import Match
from edgepack.paddle_ml.objective import Objective
from edgepack.paddle_ml.precision import Precision
from edgepack.recipe.training import Distill


@dataclass(frozen=True)
class Whole:
    """How many rows a step has, and units that count (`objective`), in all ranks' batches together."""

    rows: int
    units: int


class Step:
    """Takes steps with one network and its optimizer, together with the other ranks.

    The loss is the mean over the step's units (`objective`): hard_weight x hard + (1 - hard_weight) x soft for those
    with a label, the soft one alone for those without; plus match_weight x that of `match`, over rows.

    Args:
        parts: that a batch is run in, one after the other; the result is the same but for rounding and dropout.
        ranks: each has a batch of its own in every step, and the sum of all gradients.
        say: told when a batch has to be run in more parts than before, because memory ran out.
    """

    def __init__(
        self,
        network: Any,
        objective: Objective,
        optimizer: Any,
        precision: Precision,
        distill: Distill | None,
        match: Match | None,
        parts: int,
        ranks: Ranks,
        say: Callable[[str], None],
    ) -> None:
        self._network, self._objective, self._optimizer = network, objective, optimizer
        self._precision, self._distill, self._match = precision, distill, match
        self.parts = parts
        self._sum = GradientSum(ranks, optimizer._parameter_list)
        self._say = say
        self._draw = cpu_layers.take_over(network)

    def take(self, batch: Batch | None, whole: Whole, seed: int) -> Any:
        """Change the weights by one step; its loss as a tensor that nobody has waited for yet.

        `batch` is this rank's share of the `whole`; None when there is no row left for it. A gradient that overflows
        on one rank does so in the sum, so that mixed precision leaves the step out on all of them.

        Dropout follows from `seed` alone, so that it is the same whatever came before in this process.

        Raises:
            EnvironmentUnfitError: not even one row fits into memory.
        """
        while True:
            paddle.seed(seed)
            self._draw.begin(seed)
            try:
                packed = self._sum.pack(self._gradients(batch, whole))
            except MemoryError as error:  # Paddle's, of CPU and GPU alike
                self._halve(batch, error)
                continue  # from the beginning: what the parts before it added is dropped
            loss = self._sum.spread(packed)
            self._precision.step(self._optimizer)
            self._optimizer.clear_grad()
            return loss

    def _gradients(self, batch: Batch | None, whole: Whole) -> Any:
        total = paddle.zeros([])
        if batch is None:
            return total
        rows = batch.ids.shape[0]
        size = -(-rows // self.parts)
        for start in range(0, rows, size):
            part = batch.part(start, start + size) if self.parts > 1 else batch
            loss = self._loss(part, whole)
            self._precision.backward(loss)
            total = total + loss.detach()
        return total

    def _loss(self, batch: Batch, whole: Whole) -> Any:
        """The part's share of the loss of the whole step."""
        with self._precision.autocast():
            wants_hidden = self._match is not None and self._match.needs_hidden_states
            told = self._network(batch.ids, batch.types, output_hidden_states=wants_hidden, return_dict=True)
            inside = self._match.loss(told.hidden_states, batch) if self._match is not None else None
        scores = told.logits.astype("float32")
        counts, labelled = self._objective.units(batch.targets)  # (U,)
        loss = self._objective.hard(scores, batch.targets)  # (U,)
        if self._distill is not None and batch.soft is not None:
            weight = self._distill.hard_weight * labelled  # none of a label that nobody knows
            soft = self._objective.soft(scores, batch.soft, self._distill.temperature)
            loss = weight * loss + (1 - weight) * soft
        mean = (loss * counts).sum() / paddle.full([], whole.units, dtype="float32")
        if inside is None or self._distill is None:
            return mean
        return mean + self._distill.match_weight * inside.astype("float32").sum() / whole.rows

    def _halve(self, batch: Batch | None, error: MemoryError) -> None:
        self._optimizer.clear_grad()
        if self._match is not None:
            self._match.forget()
        rows = batch.ids.shape[0] if batch is not None else 0
        if self.parts >= rows:
            raise EnvironmentUnfitError(
                "training ran out of memory with a single row",
                why=str(error).strip().partition("\n")[0],
                fix="lower max_length, choose a smaller model, or free memory",
            ) from error
        self.parts = min(rows, self.parts * 2)
        if paddle.is_compiled_with_cuda():
            paddle.device.cuda.empty_cache()
        self._say(
            f"out of memory: from here on a step's {rows} rows are run in {self.parts} parts; "
            f"`gradient_accumulation: {self.parts}` starts so"
        )
