"""Time of a sweep over four candidates with 1, 2 and 4 workers, beside the arithmetic. One JSON line.

Data, linear model and teacher are finished before; every run starts from a copy of that workspace. `rest_s` is a build
that finds all candidates finished. With N workers the arithmetic is rest + (sweep_1 - rest) / min(N, cores).
`build_s` is one process that builds the candidates one after the other with all cores. Rounds run all forms in turns.

    python benchmarks/sweep.py [--rounds 1] [--rows 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart.yaml"
SEARCH = "\nsearch:\n  over: {student.learning_rate: [1e-4, 3e-4, 6e-4, 1e-3]}\n  prefer: size\n"
CANDIDATES, WORKERS = 4, (1, 2, 4)


def edgepack(folder: Path, verb: str, *options: str) -> float:
    """Run a command on the recipe of `folder`; return its seconds."""
    started = time.monotonic()
    command = [sys.executable, "-I", "-m", "edgepack.cli", "--quiet", verb, "recipe.yaml", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.monotonic() - started


def measured(prepared: Path, folder: Path, verb: str, *options: str) -> float:
    """The seconds of a command that starts from a copy of `prepared`."""
    shutil.copytree(prepared, folder)
    return edgepack(folder, verb, *options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2000, help="training rows")
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in ("build", "rest", *(f"sweep_{n}" for n in WORKERS))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = folder / "prepared"
        prepared.mkdir()
        text = RECIPE.read_text(encoding="utf-8").replace("accuracy: {min: 0.9,", "accuracy: {min: 0.5,")
        (prepared / "recipe.yaml").write_text(text + SEARCH, encoding="utf-8")
        rows = ("--set", f"data.train_rows={arguments.rows}")
        edgepack(prepared, "build", "--until", "teacher", *rows)
        for number in range(arguments.rounds):
            place = folder / str(number)
            seconds["build"].append(measured(prepared, place / "build", "build", *rows))
            seconds["rest"].append(edgepack(place / "build", "build", "--from", "select", *rows))
            for count in WORKERS:
                options = ("--workers", str(count), *rows)
                seconds[f"sweep_{count}"].append(measured(prepared, place / f"sweep{count}", "sweep", *options))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    cores = len(os.sched_getaffinity(0))
    tasks = medians["sweep_1"] - medians["rest"]
    result = {
        "benchmark": "sweep",
        "candidates": CANDIDATES,
        "cores": cores,
        "rounds": arguments.rounds,
        "train_rows": arguments.rows,
        **{f"{name}_s": round(value, 1) for name, value in medians.items()},
        **{f"sweep_{n}_arithmetic_s": round(medians["rest"] + tasks / min(n, cores), 1) for n in WORKERS},
        "spread_s": {name: round(max(found) - min(found), 1) for name, found in seconds.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
