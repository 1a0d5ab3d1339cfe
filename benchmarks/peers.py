"""The same weights and texts through this project and through other backends, one machine, in turns.

Prints tables and ends in one JSON line. Text in, label out, one text at a time, each backend
with its usual tokenizer and in a process of its own, pinned to as many cores as it has threads; one process works at a
time.

    make peers       # .venv-peers, from requirements/peers.txt
    python benchmarks/peers.py --data DATA --weights WEIGHTS [--only hotel] [--rounds 20] [--work DIR]

DATA holds the folders hotel-sentiment and news-topics, each with train.tsv, dev.tsv and test.tsv. WEIGHTS holds the
ERNIE folder --student, which is trained on both; a third model, 6 layers x 768, has random weights, so that only its
times mean something. What was trained, exported and quantized stays in --work, and is not made again.

A table shows milliseconds, median and quartiles over the rounds: at one thread those of the processor, so that other
programs on the machine count for little, at more those of the clock. JSON has both. Float backends must agree with this
project's float file to 1e-3 on texts that both cut into the same tokens, or the benchmark ends.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from peers import build, figures, process
from peers.figures import Spread
from peers.process import BackendFailed, Process
from peers.registry import BACKENDS, ENVIRONMENTS, FLOAT, INT8, Backend
from peers.source import of_length, read

from edgepack_runtime.device import conditions
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.stats.intervals import Interval

LENGTHS: Final = (16, 64, 128)  # characters
COMPARED_LENGTH: Final = 64
AGREEMENT: Final = 1e-3
AGREEMENT_TEXTS: Final = 64
UNCOUNTED: Final = 2  # texts at the beginning of each burst
MODULES: Final = tuple(dict.fromkeys(backend.module for backend in BACKENDS if backend.module != FLOAT.module))
CHUNK: Final = 200  # texts that are scored between two signs of life


@dataclass
class Measured:
    """What is known of one backend with one model. `times` is by threads and characters: one burst a round."""

    file_bytes: int = 0
    apart: float | None = None  # the largest difference of a logit from this project's float file
    accuracy: Interval | None = None
    drop_points: Interval | None = None  # of an INT8 backend
    times: dict[tuple[int, int], list[process.Burst]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def milliseconds(self, threads: int, characters: int) -> list[float]:
        """One figure a round: at one thread the processor's, at more the clock's."""
        bursts = self.times[threads, characters]
        return [burst.cpu_ms if threads == 1 else statistics.median(burst.total_ms) for burst in bursts]


class Run:
    """One model, every backend. `failed` holds what could not be made or opened, and why."""

    def __init__(self, case: build.Case, options: argparse.Namespace) -> None:
        self.case, self._options = case, options
        self._pythons = {name: getattr(options, f"{name}_python") for name in ENVIRONMENTS}
        self.source = build.source(case, options.data, options.weights, options.student, options.work)
        self._folder = self.source.folder
        self.failed: dict[str, str] = {}
        self._chosen = [backend for backend in BACKENDS if backend.module in (FLOAT.module, *options.against)]
        for module in dict.fromkeys(backend.module for backend in self._chosen):
            self._prepare([backend for backend in self._chosen if backend.module == module])
        self.found = {backend.name: Measured() for backend in self._backends()}

    def _prepare(self, several: Sequence[Backend]) -> None:
        """Make the files of the backends of one module."""
        say(f"{self.case.name}: {several[0].module}: making files, unless they are there")
        try:
            first = several[0]
            process.prepare(first, self._pythons, self._folder, self._out(first), self._log(first, "prepare"))
        except BackendFailed as error:
            for backend in several:
                self._fails(backend, error)

    def _backends(self) -> list[Backend]:
        return [backend for backend in self._chosen if backend.name not in self.failed]

    def _out(self, backend: Backend) -> Path:
        return self._folder / backend.module

    def _log(self, backend: Backend, what: str) -> Path:
        return self._folder / f"{backend.module}-{backend.variant}-{what}.log"

    def _fails(self, backend: Backend, error: BackendFailed) -> None:
        if backend in (FLOAT, INT8):
            raise SystemExit(f"{backend.name} could not be run: {error}")
        self.failed[backend.name] = str(error)
        reason = str(error).splitlines()[-1] if str(error) else "no reason"
        say(f"{self.case.name}: {backend.name} is left out: {reason}")

    def _open(self, backend: Backend, threads: int) -> Process | None:
        """A process that has opened a backend; None, and noted, where that fails."""
        try:
            return process.serve(
                backend, self._pythons, self._folder, self._out(backend), threads, self._log(backend, "serve")
            )
        except BackendFailed as error:
            self._fails(backend, error)
            self.found.pop(backend.name, None)
            return None

    def agree_and_score(self) -> None:
        """Sizes; agreement of the float backends; and where the weights are trained, accuracy on all test rows.

        Raises:
            SystemExit: a float backend computes something else.
        """
        rows = read(self.source.test)
        texts, truths = [text for text, _ in rows], [label for _, label in rows]
        checked = texts[:AGREEMENT_TEXTS]
        answers: dict[str, list[str]] = {}
        ours: tuple[list[list[int]], list[list[float]]] | None = None
        for backend in self._backends():
            opened = self._open(backend, 1)
            if opened is None:
                continue
            found = self.found[backend.name]
            found.file_bytes, found.versions = opened.file_bytes, opened.versions
            theirs = opened.ids(checked), opened.logits(checked)
            ours = ours or theirs  # this project's float file is the first
            found.apart, same = figures.most_apart(*ours, *theirs)
            if backend.float_backend is None and (found.apart > AGREEMENT or 2 * same < len(checked)):
                raise SystemExit(f"{backend.name}: {found.apart:.1e} apart on {same} of {len(checked)} texts")
            if self.case.trained:
                answers[backend.name] = self._answers(opened, texts)
                found.accuracy = figures.accuracy(truths, answers[backend.name])
            opened.close()
            say(f"{self.case.name}: {backend.name}: {found.apart:.1e} apart on {same} texts, accuracy {found.accuracy}")
        for backend in self._backends():
            if backend.name in answers and backend.float_backend in answers:
                drop = figures.drop_points(truths, answers[backend.float_backend], answers[backend.name])
                self.found[backend.name].drop_points = drop

    def _answers(self, opened: Process, texts: Sequence[str]) -> list[str]:
        chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
        return [label for chunk in chunks for label in figures.labels_of(opened.logits(chunk), self.source.labels)]

    def time(self, threads: int) -> None:
        """All backends in turns, `--rounds` rounds of a burst of each length."""
        texts = [text for text, _ in read(self.source.test)]
        bursts = {length: of_length(texts, length, self._options.texts) for length in LENGTHS}
        with ExitStack() as stack:
            opened = {}
            for backend in self._backends():
                one = self._open(backend, threads)
                if one is not None:
                    opened[backend.name] = one
                    stack.callback(one.close)
            for one in opened.values():  # what is made at the first text of a length is made before the clock runs
                for length in LENGTHS:
                    one.time(bursts[length], UNCOUNTED)
            for number in range(self._options.rounds):
                for length in LENGTHS:
                    for name in figures.turns(list(opened), number):
                        burst = opened[name].time(bursts[length], UNCOUNTED)
                        self.found[name].times.setdefault((threads, length), []).append(burst)
                say(f"{self.case.name}, {threads} thread(s): round {number + 1} of {self._options.rounds}")

    def faster(self, rival: str, threads: int, length: int) -> Spread | None:
        """How many times as long `rival` takes as this project's INT8; None where one was not timed."""
        both = [self.found[name] for name in (INT8.name, rival) if name in self.found]
        if len(both) < 2 or any((threads, length) not in one.times for one in both):
            return None
        return figures.times_faster(*(one.milliseconds(threads, length) for one in both))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(run: Run, threads: int) -> str:
    """Markdown: a line a backend."""
    times = "processor" if threads == 1 else "clock"
    lines = [
        f"| {run.case.name}, {threads} thread(s) | MB | accuracy % | points lost | "
        + " | ".join(f"{length} characters, ms ({times})" for length in LENGTHS)
        + f" | x edgepack INT8, at {COMPARED_LENGTH} |",
        "|---" * (5 + len(LENGTHS)) + "|",
    ]
    for name, found in run.found.items():
        faster = run.faster(name, threads, COMPARED_LENGTH)
        cells = [
            name,
            f"{found.file_bytes / 1e6:.1f}",
            "-" if found.accuracy is None else f"{100 * found.accuracy.value:.2f}",
            "-" if found.drop_points is None else "{:.2f} ({:.2f} to {:.2f})".format(*found.drop_points),
            *(_took(found, threads, length) for length in LENGTHS),
            "-" if faster is None else _shown(faster),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _took(found: Measured, threads: int, length: int) -> str:
    timed = (threads, length) in found.times
    return _shown(figures.spread(found.milliseconds(threads, length))) if timed else "-"


def _shown(value: Spread) -> str:
    return f"{value.median:.2f} ({value.low:.2f}-{value.high:.2f})"


def document(run: Run) -> dict[str, Any]:
    """A run as JSON. Times are medians and quartiles over rounds; `tokenize_ms` and `run_ms` are the clock's."""
    backends: dict[str, Any] = {}
    for name, found in run.found.items():
        times = []
        for (threads, characters), bursts in found.times.items():
            faster = run.faster(name, threads, characters)
            times.append({
                "threads": threads, "characters": characters,
                "clock_ms": figures.spread([statistics.median(burst.total_ms) for burst in bursts])._asdict(),
                "processor_ms": figures.spread([burst.cpu_ms for burst in bursts])._asdict(),
                "tokenize_ms": statistics.median(value for burst in bursts for value in burst.tokenize_ms),
                "run_ms": statistics.median(value for burst in bursts for value in burst.run_ms),
                "times_int8": None if faster is None else faster._asdict(),
            })  # fmt: skip
        backends[name] = {
            "bytes": found.file_bytes, "logit_apart": found.apart, "times": times, "versions": found.versions,
            "accuracy": None if found.accuracy is None else found.accuracy._asdict(),
            "drop_points": None if found.drop_points is None else found.drop_points._asdict(),
        }  # fmt: skip
    case = {key: value for key, value in asdict(run.case).items() if key != "student"}
    return {**case, "backends": backends, "left_out": run.failed}


def arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--student", default="ernie-fixture-nano", help="folder in WEIGHTS")
    parser.add_argument("--work", type=Path, default=Path(".edgepack/peers"))
    parser.add_argument(
        "--only", action="append", choices=[case.name for case in build.CASES], help="several may be named"
    )
    parser.add_argument("--against", nargs="+", choices=MODULES, default=MODULES, help="all, unless some are named")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--texts", type=int, default=8, help="of each length, in each round")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--peers-python", default=str(root / ".venv-peers/bin/python"))
    parser.add_argument("--paddle26-python", default=str(root / ".venv-paddle26/bin/python"))
    options = parser.parse_args()
    for name in ("data", "weights", "work"):
        setattr(options, name, getattr(options, name).resolve())
    options.project_python = sys.executable
    options.threads = sorted(set(options.threads))
    if not Path(options.peers_python).exists():
        parser.error(f"there is no {options.peers_python}: run `make peers`, or name it with --peers-python")
    if max(options.threads) > len(os.sched_getaffinity(0)):
        parser.error(f"there are not {max(options.threads)} cores to pin threads to")
    return options


def main() -> None:
    options = arguments()
    where = conditions.collect(threads=max(options.threads), engine="", providers=())
    runs = []
    for case in build.CASES:
        if options.only and case.name not in options.only:
            continue
        run = Run(case, options)
        run.agree_and_score()
        for threads in options.threads if case.timed else options.threads[:1]:
            if case.timed:
                run.time(threads)
            print(table(run, threads) + "\n", flush=True)
        runs.append(run)
    for run in runs:
        for name, why in run.failed.items():
            print(f"{run.case.name}: {name} was left out: {why.splitlines()[-1] if why else 'it gave no reason'}")
    print(json.dumps({
        "conditions": to_json(dataclasses.replace(where, after=conditions.collect_changing())),
        "rounds": options.rounds, "texts": options.texts,
        "models": [document(run) for run in runs],
    }, ensure_ascii=False))  # fmt: skip


if __name__ == "__main__":
    main()
