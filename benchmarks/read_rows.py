"""How fast, and in how much memory, does the data stage check and write a large data set? One JSON line.

Makes a seeded file of random Chinese texts, runs the data stage over it in a process of its own, and reads the peak
resident set of that process: at the start of the stage (Python and its libraries) and at its end. Run:

    PYTHONPATH=packager:runtime python benchmarks/read_rows.py [--rows 1000000] [--format tsv] [--train-rows N]
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

HELD_OUT_ROWS = 10_000  # of dev and of test
CHARACTERS = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过"


def write(file: Path, rows: int, seed: str) -> None:
    """`rows` texts of 20 to 80 characters with one of four labels; every text is different."""
    random = Random(seed)
    with file.open("w", encoding="utf-8", newline="") as stream:
        made = ((f"{_text(random)}{number}", number % 4) for number in range(rows))
        if file.suffix == ".jsonl":
            lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in made)
            stream.writelines(f"{line}\n" for line in lines)
        else:
            writer = csv.writer(stream, delimiter="\t" if file.suffix == ".tsv" else ",", lineterminator="\n")
            writer.writerow(("text", "label"))
            writer.writerows(made)


def _text(random: Random) -> str:
    return "".join(random.choices(CHARACTERS, k=random.randrange(20, 80))) + "，"


def measure(folder: Path, suffix: str, train_rows: int | None) -> dict[str, Any]:
    """Run the stage here, in a process that did nothing else yet."""
    from edgepack.recipe.model import Data
    from edgepack.stages.data import DataStage
    from edgepack.stages.stage import Context

    files = {name: str(folder / f"{name}.{suffix}") for name in ("train", "dev", "test")}
    out = folder / "out"
    out.mkdir()
    before_mib = _peak_rss_mib()
    started = time.perf_counter()
    made = DataStage(Data(**files, train_rows=train_rows)).run(Context(), out)
    seconds = time.perf_counter() - started
    rows = sum(made.token_counts["train"].values()) + made.rows["dev"] + made.rows["test"]
    return {
        "seconds": round(seconds, 2),
        "rows_per_s": round(rows / seconds),
        "peak_rss_mib": round(_peak_rss_mib(), 1),
        "libraries_rss_mib": round(before_mib, 1),
        "growth_mib": round(_peak_rss_mib() - before_mib, 1),
        "growth_bytes_per_row": round((_peak_rss_mib() - before_mib) * 2**20 / rows),
    }


def _peak_rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of train; dev and test have 10,000 each")
    parser.add_argument("--format", choices=("tsv", "csv", "jsonl"), default="tsv")
    parser.add_argument("--train-rows", type=int, default=None, help="as in the recipe; all by default")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # for the process that measures itself
    arguments = parser.parse_args()
    if arguments.folder is not None:
        print(json.dumps(measure(arguments.folder, arguments.format, arguments.train_rows)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, rows in (("train", arguments.rows), ("dev", HELD_OUT_ROWS), ("test", HELD_OUT_ROWS)):
            write(folder / f"{split}.{arguments.format}", rows, f"{split}/0")
        size = (folder / f"train.{arguments.format}").stat().st_size
        again = [sys.executable, __file__, *sys.argv[1:], "--folder", name]
        figures = json.loads(subprocess.run(again, check=True, stdout=subprocess.PIPE, text=True).stdout)
    shape = {"format": arguments.format, "train_rows": arguments.rows, "train_mib": round(size / 2**20, 1)}
    print(json.dumps({"benchmark": "read_rows", **shape, **figures}))


if __name__ == "__main__":
    main()
