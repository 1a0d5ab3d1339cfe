"""Program that computes on each GPU that Paddle sees: `python -m edgepack.training.gpu_probe` prints JSON.

It runs in a process of its own, because a broken driver may end the process; `devices.detect` starts it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import paddle

from edgepack.training.devices import Card, gist

_SIZE = 8
_SUM_OF_PRODUCT, _SUM_OF_SHARES = float(_SIZE**3), float(_SIZE)


def cards() -> list[Card]:
    """Every visible GPU, with the reason if it cannot compute."""
    return [_card(index) for index in range(paddle.device.cuda.device_count())]


def _card(index: int) -> Card:
    facts = paddle.device.cuda.get_device_properties(index)
    return Card(
        index, facts.name, f"{facts.major}.{facts.minor}", int(facts.total_memory) // 2**20, why_not(f"gpu:{index}")
    )


def why_not(place: str) -> str:
    """Why `place` cannot compute a product (cuBLAS) and a softmax (Paddle's kernel); "" if it can."""
    try:
        paddle.set_device(place)
        ones = paddle.ones([_SIZE, _SIZE])
        found = float((ones @ ones).sum()), float(paddle.nn.functional.softmax(ones).sum())
    except (RuntimeError, OSError, ValueError, MemoryError) as error:  # Paddle's classes for CUDA errors
        return gist(str(error)) or type(error).__name__
    wanted = (_SUM_OF_PRODUCT, _SUM_OF_SHARES)
    return "" if all(abs(a - b) < 1e-3 for a, b in zip(found, wanted, strict=True)) else f"{found} instead of {wanted}"


def main() -> None:
    """Print the result as the last line of stdout. Paddle may write before it."""
    sys.stdout.write("\n" + json.dumps([asdict(card) for card in cards()]) + "\n")


if __name__ == "__main__":
    main()
