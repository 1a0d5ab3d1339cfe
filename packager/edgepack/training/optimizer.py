"""AdamW for fine-tuning ERNIE: weight decay of matrices only, schedule, layer-wise rates, mixed precision."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Literal

import paddle

from edgepack.errors import EnvironmentUnfitError
from edgepack.recipe.training import Training
from edgepack.training.schedule import layer_ratios, rate_factor


def make(modules: list[Any], settings: Training, learning_rate: float, total: int) -> tuple[Any, Any]:
    """Optimizer and learning rate schedule, with the peak `learning_rate`, for the weights of `modules`.

    AdamW after Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019). Vectors (biases and norms) are
    not decayed. Gradients are clipped to the global norm `settings.clip_norm`.

    Args:
        total: number of steps.
    """
    named = [(name, parameter) for module in modules for name, parameter in module.named_parameters()]
    ratios = layer_ratios((name for name, _ in named), settings.layer_decay)
    for name, parameter in named:
        # Paddle's `lr_ratio` is not available on CPU; this attribute has the same effect.
        parameter.optimize_attr["learning_rate"] = ratios[name]

    def factor(step: int) -> float:
        return rate_factor(step, total, settings.warmup, settings.schedule)

    schedule = paddle.optimizer.lr.LambdaDecay(learning_rate, factor)
    decayed = {parameter.name for _, parameter in named if parameter.ndim >= 2}
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        parameters=[parameter for _, parameter in named],
        weight_decay=settings.weight_decay,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(settings.clip_norm),
    )
    return optimizer, schedule


Name = Literal["fp32", "fp16", "bf16"]
_PADDLE_NAMES: Final = {"fp16": "float16", "bf16": "bfloat16"}
_BF16_SM: Final = 8  # first major compute capability of NVIDIA GPUs with bfloat16
_FIRST_SCALE: Final = 2.0**15


class Precision:
    """Automatic mixed precision (Paddle's O1): matrix products in 16 bits, weights and sums in float32.

    With fp16 the loss is scaled so that small gradients do not underflow, and steps with overflowing gradients are
    skipped (Micikevicius et al., "Mixed Precision Training", 2018). bf16 needs neither.
    """

    def __init__(self, name: Name) -> None:
        self.name = name
        self._scaler = paddle.amp.GradScaler(enable=name == "fp16", init_loss_scaling=_FIRST_SCALE)

    def autocast(self) -> AbstractContextManager[Any]:
        """Context in which the network runs."""
        half = _PADDLE_NAMES.get(self.name)
        context: AbstractContextManager[Any] = paddle.amp.auto_cast(
            enable=half is not None, level="O1", dtype=half or "float16"
        )
        return context

    def backward(self, loss: Any) -> None:
        """Add the gradients of `loss` to the present ones."""
        (self._scaler.scale(loss) if self.name == "fp16" else loss).backward()

    def step(self, optimizer: Any) -> None:
        """Update the weights by their gradients."""
        if self.name == "fp16":
            self._scaler.step(optimizer)
            self._scaler.update()
        else:
            optimizer.step()

    def state(self) -> dict[str, float]:
        """State of the loss scale, for a checkpoint."""
        return {name: float(value) for name, value in self._scaler.state_dict().items()}

    def restore(self, state: dict[str, float]) -> None:
        """Restore `state`."""
        if state:
            kinds = {name: type(value) for name, value in self._scaler.state_dict().items()}
            put = {name: int(value) if kinds.get(name) is int else value for name, value in state.items()}
            put["scale"] = paddle.to_tensor([state["scale"]], dtype="float32").numpy()
            self._scaler.load_state_dict(put)


def choose(wanted: Literal["auto", "fp32", "fp16", "bf16"]) -> Precision:
    """The precision of a training on Paddle's device. `auto` is float32 on a CPU and 16 bits on a GPU.

    Raises:
        EnvironmentUnfitError: the device does not support the requested precision.
    """
    on_gpu = str(paddle.get_device()).startswith("gpu")
    has_bf16 = on_gpu and paddle.device.cuda.get_device_capability()[0] >= _BF16_SM
    if wanted == "auto":
        return Precision(("bf16" if has_bf16 else "fp16") if on_gpu else "fp32")
    if wanted != "fp32" and not on_gpu:
        # Paddle would warn and use float32.
        raise _unfit(wanted, "Paddle computes in it on a GPU only, and this training runs on a CPU", "auto or fp32")
    if wanted == "bf16" and not has_bf16:
        raise _unfit(wanted, "this GPU is older than SM 8.0", "auto, fp32 or fp16")
    return Precision(wanted)


def _unfit(wanted: str, why: str, instead: str) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"precision: {wanted} is requested, but cannot be used", why=why, fix=f"use precision: {instead}"
    )
