"""How long a training step takes, beside the same model in PyTorch, in turns.

The last line is one JSON object: median seconds a step of each, with the spread, the processor's seconds (of all
threads together, the least of the rounds: other programs on the machine disturb them less), and the ratios. PyTorch
and transformers are no part of this project: give the Python of an environment that has them.

    python benchmarks/train_step.py --torch-python ~/torch/bin/python [--rows 32] [--tokens 128]

Both train a classifier of ERNIE 3.0 nano's shape on random tokens, all of one length: forward, backward, clipping,
AdamW, dropout on, float32, as many threads. The floor is arithmetic: it is printed beside the measured figures.
Beside other work, set OMP_WAIT_POLICY=passive: threads that spin while they wait, PyTorch's above all, then take twice
as long. `taskset -c 0` leaves one thread to both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LAYERS, HIDDEN, HEADS, FEED_FORWARD, VOCABULARY = 4, 312, 12, 1248, 18000
WARM_UP, STEPS, ROUNDS = 2, 3, 7
LABELS = 2


def paddle_step(rows: int, tokens: int) -> tuple[Callable[[], object], str]:
    """One step as edgepack takes it."""
    from edgepack.training import environment

    environment.start()
    import paddle
    from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification

    from edgepack.recipe.training import Training
    from edgepack.training import optimizer
    from edgepack.training import optimizer as precision
    from edgepack.training.distributed import ALONE
    from edgepack.training.losses import OneLabel
    from edgepack.training.models.batches import Batch
    from edgepack.training.trainer import Step, StepSize

    config = ErnieConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD, max_position_embeddings=512, num_labels=LABELS,
    )  # fmt: skip
    network = ErnieForSequenceClassification(config)
    network.train()
    chosen, _ = optimizer.make([network], Training(), 3e-5, 1000)
    step = Step(network, OneLabel(), chosen, precision.choose("fp32"), None, None, 1, ALONE, print)
    ids = paddle.randint(5, VOCABULARY, [rows, tokens], dtype="int64")  # (B, T)
    batch = Batch(ids, paddle.zeros_like(ids), paddle.randint(0, LABELS, [rows]), None)
    seeds = iter(range(10**6))
    whole = StepSize(rows, rows)
    return lambda: float(step.take(batch, whole, next(seeds))), f"paddle {paddle.__version__}"


def torch_step(rows: int, tokens: int) -> tuple[Callable[[], object], str]:
    """One step as PyTorch's users write it."""
    import torch  # type: ignore[import-not-found, unused-ignore]
    from transformers import BertConfig, BertForSequenceClassification  # type: ignore[import-not-found, unused-ignore]

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD, num_labels=LABELS,
    )  # fmt: skip
    network: Any = BertForSequenceClassification(config)
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-5, weight_decay=0.01)
    ids = torch.randint(5, VOCABULARY, (rows, tokens))  # (B, T)
    labels = torch.randint(0, LABELS, (rows,))
    mask = torch.ones_like(ids)

    def take() -> float:
        loss = network(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return take, f"torch {torch.__version__}"


def work(kind: str, rows: int, tokens: int) -> None:
    """Take STEPS steps for every line on stdin; print the seconds of one, on the clock and of the processor."""
    step, version = (paddle_step if kind == "paddle" else torch_step)(rows, tokens)
    for _ in range(WARM_UP):
        step()
    print(version, flush=True)
    for _ in sys.stdin:
        begin, spent = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            step()
        print((time.perf_counter() - begin) / STEPS, (time.process_time() - spent) / STEPS, flush=True)


def flops(rows: int, tokens: int) -> float:
    """Multiplications and additions of a step: three times those of the forward pass's matrix products."""
    per_token = 4 * HIDDEN * HIDDEN + 2 * HIDDEN * FEED_FORWARD + 2 * tokens * HIDDEN
    return 3 * 2 * LAYERS * per_token * rows * tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", help="Python with torch and transformers")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--worker", choices=["paddle", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.rows, options.tokens)
        return
    if not options.torch_python or shutil.which(options.torch_python) is None:
        parser.error("--torch-python is needed: a Python that has torch and transformers")
    pythons = {"paddle": sys.executable, "torch": options.torch_python}
    size = ["--rows", str(options.rows), "--tokens", str(options.tokens)]
    workers = {
        kind: subprocess.Popen(
            [python, __file__, "--worker", kind, *size], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for kind, python in pythons.items()
    }
    versions = {kind: ask(worker) for kind, worker in workers.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in workers}
    spent: dict[str, list[float]] = {kind: [] for kind in workers}
    for _ in range(ROUNDS):
        for kind, worker in workers.items():
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
            for into, value in zip((seconds, spent), ask(worker).split(), strict=True):
                into[kind].append(float(value))
    for worker in workers.values():
        worker.communicate()
    least = {kind: min(found) for kind, found in spent.items()}
    medians = {kind: statistics.median(found) for kind, found in seconds.items()}
    work_gflop = flops(options.rows, options.tokens) / 1e9
    result = {
        "rows": options.rows,
        "tokens": options.tokens,
        "gflop_a_step": round(work_gflop, 1),
        "versions": versions,
        "median_s": {kind: round(value, 4) for kind, value in medians.items()},
        "spread_s": {kind: [round(min(found), 4), round(max(found), 4)] for kind, found in seconds.items()},
        "processor_s": {kind: round(value, 4) for kind, value in least.items()},
        "gflop_per_s": {kind: round(work_gflop / value, 1) for kind, value in medians.items()},
        "paddle_over_torch": round(medians["paddle"] / medians["torch"], 3),
        "processor_paddle_over_torch": round(least["paddle"] / least["torch"], 3),
    }
    print(json.dumps(result))


def ask(worker: subprocess.Popen[str]) -> str:
    """The next line that a worker prints."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        sys.exit("a worker ended before it answered")
    return line.strip()


if __name__ == "__main__":
    main()
