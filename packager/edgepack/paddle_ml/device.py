"""Which device training runs on: chosen openly, never silently."""

from __future__ import annotations

from typing import Literal

import paddle

from edgepack.errors import EnvironmentUnfitError


def choose(wanted: Literal["auto", "cpu", "gpu"]) -> str:
    """Select Paddle's device and say which and why, e.g. `cpu: this Paddle is built without CUDA`.

    Raises:
        EnvironmentUnfitError: when `gpu` is asked for and cannot be used.
    """
    reason = _why_no_gpu()
    if wanted == "gpu" and reason:
        raise EnvironmentUnfitError(
            "device: gpu was asked for and cannot be used",
            why=reason,
            fix="use device: cpu or auto, or mend the driver",
        )
    if wanted == "cpu" or reason:
        paddle.set_device("cpu")
        return "cpu: asked for" if wanted == "cpu" else f"cpu: {reason}"
    paddle.set_device("gpu:0")
    return f"gpu:0: {paddle.device.cuda.get_device_name(0)}"


def _why_no_gpu() -> str:
    """Why no GPU can be used, or an empty text. Runs one kernel: a build without kernels for the chip fails there."""
    if not paddle.is_compiled_with_cuda():
        return "this Paddle is built without CUDA"
    if paddle.device.cuda.device_count() == 0:
        return "no CUDA device is visible"
    try:
        paddle.set_device("gpu:0")
        total = float((paddle.ones([8, 8]) @ paddle.ones([8, 8])).sum())
    except (RuntimeError, OSError) as error:
        return f"a first kernel failed on gpu:0: {str(error).strip().splitlines()[-1]}"
    return "" if total == 512.0 else f"a first kernel on gpu:0 gave {total} instead of 512"
