"""AdamW as ERNIE is fine-tuned with it: decay on matrices only, a schedule, smaller rates for lower layers."""

from __future__ import annotations

from typing import Any

import paddle

from edgepack.paddle_ml.schedule import layer_ratios, rate_factor
from edgepack.recipe.training import Training


def make(modules: list[Any], settings: Training, total: int) -> tuple[Any, Any]:
    """Optimizer and its schedule, over the weights of `modules`, for a training of `total` steps.

    AdamW after Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019); vectors, that is biases and
    the weights of norms, are not decayed. Gradients are clipped to `settings.clip_norm` as one.
    """
    named = [(name, parameter) for module in modules for name, parameter in module.named_parameters()]
    ratios = layer_ratios((name for name, _ in named), settings.layer_decay)
    for name, parameter in named:
        # Paddle's `lr_ratio` does the same and is not there on CPU; this is what a ParamAttr sets.
        parameter.optimize_attr["learning_rate"] = ratios[name]

    def factor(step: int) -> float:
        return rate_factor(step, total, settings.warmup, settings.schedule)

    schedule = paddle.optimizer.lr.LambdaDecay(settings.learning_rate, factor)
    decayed = {parameter.name for _, parameter in named if parameter.ndim >= 2}
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        parameters=[parameter for _, parameter in named],
        weight_decay=settings.weight_decay,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(settings.clip_norm),
    )
    return optimizer, schedule
