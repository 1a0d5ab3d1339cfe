"""Steps and learning rates: epochs, warm-up and decay, smaller rates for lower layers, scaling by processes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from edgepack.recipe.training import Training

Schedule = Literal["linear", "cosine"]
_LAYER: Final = re.compile(r"\bencoder\.layers\.(\d+)\.")
_EMBEDDINGS: Final = re.compile(r"\bembeddings\.")
_STEPS: Final = 400
_FEWEST_EPOCHS, _MOST_EPOCHS = 3, 40
_PRETRAINED_RATE: Final = 20.0  # the peak learning rate times the square of the width of the hidden states
_HIGHEST_PRETRAINED_RATE: Final = 3e-4
_RANDOM_RATE: Final = 0.1  # the peak learning rate times the width


@dataclass(frozen=True)
class Budget:
    """Length and learning rate of a training.

    Attributes:
        epochs: passes over the rows; may be a fraction.
        epoch_steps: steps of one epoch.
        learning_rate: peak learning rate of one process.
    """

    epochs: float
    epoch_steps: int
    learning_rate: float

    @property
    def steps(self) -> int:
        """Number of steps, at least 1."""
        return max(1, round(self.epochs * self.epoch_steps))


def budget(settings: Training, rows: int, hidden: int, ranks: int, *, random_weights: bool) -> Budget:
    """The epochs and the learning rate of `settings`, chosen by rows and weights where they are null.

    Epochs: about 400 steps, within 3 to 40 epochs. Learning rate, to one digit: 20 / `hidden`^2 for pre-trained
    weights, at most 3e-4; 0.1 / `hidden` for random ones. For pre-trained weights that is the 3e-5 of Devlin et al.,
    "BERT" (2019), at a width of 768, 2e-5 at 1,024, and at most the 3e-4 of the small models of Turc et al.,
    "Well-Read Students Learn Better" (2019); 2e-4 at 312 was measured: docs/measurements.md. For random weights a rate
    that falls with the width is that of Yang et al., "Tensor Programs V" (2022).

    Args:
        rows: rows of an epoch, labelled and unlabelled.
        hidden: width of the hidden states.
        ranks: number of processes that train together.
        random_weights: whether the model starts from random weights.
    """
    epoch_steps = math.ceil(rows / (settings.batch_size * ranks))
    epochs, rate = settings.epochs, settings.learning_rate
    if epochs is None:
        epochs = float(min(max(round(_STEPS / epoch_steps), _FEWEST_EPOCHS), _MOST_EPOCHS))
    if rate is None:
        pretrained = min(_HIGHEST_PRETRAINED_RATE, _PRETRAINED_RATE / hidden**2)
        rate = float(f"{_RANDOM_RATE / hidden if random_weights else pretrained:.0e}")
    return Budget(epochs, epoch_steps, rate)


def rate_factor(step: int, total: int, warmup: float, schedule: Schedule) -> float:
    """The factor (0 to 1) of the peak learning rate at `step`, from 0 to `total` - 1.

    It rises linearly over the share `warmup` (0 to 1) of the steps, then falls to 0: linearly, or along half a cosine
    (Loshchilov and Hutter, "SGDR", 2017, without restarts).
    """
    warm = max(1, round(warmup * total))
    if step < warm:
        return (step + 1) / warm
    done = min(1.0, (step - warm) / max(1, total - warm))
    return 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def rate_scale(rule: Literal["sqrt", "linear", "none"], ranks: int) -> float:
    """The factor of the peak learning rate when `ranks` processes multiply the rows of a step.

    The square root suits AdamW (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms",
    2022); linear suits SGD (Goyal et al., "Accurate, Large Minibatch SGD", 2017).
    """
    return {"sqrt": math.sqrt(ranks), "linear": float(ranks), "none": 1.0}[rule]


def layer_ratios(names: Iterable[str], decay: float) -> dict[str, float]:
    """The factor of each parameter's learning rate: 1 for head and pooler, times `decay` for each layer below.

    The top layer has `decay`, the next its square; the embeddings have the smallest factor (discriminative rates,
    Howard and Ruder, "Universal Language Model Fine-tuning", 2018).

    Args:
        names: parameter names of an ERNIE with its head, as in `named_parameters`.
        decay: above 0, at most 1; 1 gives every parameter the factor 1.
    """
    names = list(names)
    layers = [int(match[1]) for name in names if (match := _LAYER.search(name))]
    count = max(layers, default=-1) + 1
    return {name: decay ** _depth(name, count) for name in names}


def _depth(name: str, layers: int) -> int:
    """The number of layers between a parameter and the head."""
    if match := _LAYER.search(name):
        return layers - int(match[1])
    return layers + 1 if _EMBEDDINGS.search(name) else 0
