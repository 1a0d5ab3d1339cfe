"""One step of a training: the loss of a batch, run in as many parts as the memory needs, and the change it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from edgepack.errors import EnvironmentUnfitError
from edgepack.paddle_ml.batches import Batch
from edgepack.paddle_ml.match import Match
from edgepack.paddle_ml.objective import Objective
from edgepack.paddle_ml.precision import Precision
from edgepack.recipe.model import Distill


class Step:
    """Takes steps with one network and its optimizer.

    The loss is the mean over the batch's units (`objective`): hard_weight x hard + (1 - hard_weight) x soft for those
    with a label, the soft one alone for those without; plus match_weight x that of `match`, over rows.

    Args:
        parts: that a batch is run in, one after the other; the result is the same but for rounding and dropout.
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
        say: Callable[[str], None],
    ) -> None:
        self._network, self._objective, self._optimizer = network, objective, optimizer
        self._precision, self._distill, self._match = precision, distill, match
        self.parts = parts
        self._say = say

    def take(self, batch: Batch, seed: int) -> Any:
        """Change the weights by one batch; its loss as a tensor that nobody has waited for yet.

        Dropout follows from `seed` alone, so that it is the same whatever came before in this process.

        Raises:
            EnvironmentUnfitError: not even one row fits into memory.
        """
        while True:
            paddle.seed(seed)
            try:
                loss = self._gradients(batch)
            except MemoryError as error:  # Paddle's, of CPU and GPU alike
                self._halve(batch, error)
                continue  # from the beginning: what the parts before it added is dropped
            self._precision.step(self._optimizer)
            self._optimizer.clear_grad()
            return loss

    def _gradients(self, batch: Batch) -> Any:
        rows = batch.ids.shape[0]
        size = -(-rows // self.parts)
        units = self._objective.units(batch.targets)[0].sum()
        total = paddle.zeros([])
        for start in range(0, rows, size):
            part = batch.part(start, start + size) if self.parts > 1 else batch
            loss = self._loss(part, units, rows)
            self._precision.backward(loss)
            total = total + loss.detach()
        return total

    def _loss(self, batch: Batch, units: Any, rows: int) -> Any:
        """The part's share of the loss of a batch that has `units` and `rows` in all."""
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
        mean = (loss * counts).sum() / units
        if inside is None or self._distill is None:
            return mean
        return mean + self._distill.match_weight * inside.astype("float32").sum() / rows

    def _halve(self, batch: Batch, error: MemoryError) -> None:
        self._optimizer.clear_grad()
        if self._match is not None:
            self._match.forget()
        rows = batch.ids.shape[0]
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
