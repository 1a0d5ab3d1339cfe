"""How many builds of a new user leave a bundle: recipes as `edgepack init` drafts them, on few and many rows.

    python benchmarks/hand_over.py --data DIR [--rows 300,600,1500,3000] [--seeds 2] [--random 20]
                                   [--student DIR] [--edgepack .venv/bin/edgepack] [--results FILE]

DIR holds a folder for each data set, each with a train file. Each case draws rows, runs `init` and then `build`. The
recipe is not edited; only the models of the hub, which need a network, are replaced by a small student without a
teacher: one of random weights, or the pre-trained one of --student. `--random` data sets have their answers shuffled
among the texts: there is nothing to learn, and no build of theirs may leave a bundle. Finished cases are read from
--results, so that a killed run continues. Prints a line a case, and ends in one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

DATA_SETS: Final = {
    "hotel-sentiment": "train.tsv",
    "news-topics": "train.tsv",
    "question-pairs": "train.tsv",
    "entities": "train.jsonl",
}
# Instead of the hub's models: a shape between those of the field's smallest students and of a test model. It reads the
# beginning of long texts, since 512 tokens take minutes a build on two cores.
MODEL: Final = ("teacher=null", "student.distill=null", "student.max_length=64")
SCRATCH: Final = "{scratch: {layers: 2, hidden: 96, heads: 4}}"
RANDOM_ROWS: Final = 600
_MOST_S: Final = 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", default="300,600,1500,3000")
    parser.add_argument("--seeds", type=int, default=2, help="of the drawn rows, for each data set and number of rows")
    parser.add_argument("--random", type=int, default=20, help="data sets with random answers")
    parser.add_argument("--sets", default=",".join(DATA_SETS))
    parser.add_argument("--student", type=Path, help="folder of a pre-trained ERNIE instead of random weights")
    parser.add_argument("--edgepack", type=Path, default=Path(".venv/bin/edgepack"))
    parser.add_argument("--results", type=Path, help="a line of JSON for each finished case")
    options = parser.parse_args()
    names = options.sets.split(",")
    cases = [
        (name, int(rows), seed, False)
        for rows in options.rows.split(",")
        for seed in range(options.seeds)
        for name in names
    ]
    cases += [(names[number % len(names)], RANDOM_ROWS, number, True) for number in range(options.random)]
    student, found = SCRATCH if options.student is None else str(options.student.absolute()), []
    for case in cases:
        one = _known(options.results, case) or run(options.edgepack.absolute(), options.data, student, *case)
        _keep(options.results, one)
        found.append(one)
        kind = "random" if one["random"] else ""
        print(
            f"{one['set']:<16} {one['rows']:>5} {one['seed']:>2} {kind:<6} {one['outcome']:<14} {one['why']}",
            flush=True,
        )
    print(json.dumps(summary(found)))


def run(edgepack: Path, data: Path, student: str, name: str, rows: int, seed: int, shuffled: bool) -> dict[str, Any]:
    """Draw rows, draft a recipe, and build it."""
    with tempfile.TemporaryDirectory(prefix="hand-over-") as scratch:
        folder, file = Path(scratch), DATA_SETS[name]
        table = folder / f"rows{Path(file).suffix}"
        table.write_text(drawn(data / name / file, rows, seed, shuffled), encoding="utf-8")
        begin = time.monotonic()
        drafted = _edgepack(edgepack, folder, "init", table.name)
        done = drafted
        if drafted.returncode == 0:
            settings = [word for value in (*MODEL, f"student.model={student}") for word in ("--set", value)]
            done = _edgepack(edgepack, folder, "build", "recipe.yaml", *settings)
        bundles = list(folder.glob("dist/*.edgepack"))
        report = next(folder.glob("dist/*.report.json"), None)
        facts = json.loads(report.read_text(encoding="utf-8")) if report else {}
        return {
            "set": name,
            "rows": rows,
            "seed": seed,
            "random": shuffled,
            "outcome": _outcome(bool(bundles), done),
            "exit_code": done.returncode,
            "why": _why(done.stdout + done.stderr),
            "ledger": {row["stage"]: row["score"]["value"] for row in facts.get("ledger", ()) if row.get("score")},
            "seconds": round(time.monotonic() - begin, 1),
        }


def drawn(source: Path, rows: int, seed: int, shuffled: bool) -> str:
    """`rows` lines of a table with a header, or of JSON lines; `shuffled` shuffles their answers."""
    lines = source.read_text(encoding="utf-8").splitlines()
    head, body = (lines[:1], lines[1:]) if source.suffix == ".tsv" else ([], lines)
    chance = random.Random(1000 * rows + seed)
    body = chance.sample(body, rows)
    if shuffled and source.suffix == ".tsv":
        parts = [line.rpartition("\t") for line in body]
        labels = chance.sample([label for _, _, label in parts], rows)
        body = [f"{text}\t{label}" for (text, _, _), label in zip(parts, labels, strict=True)]
    elif shuffled:
        parsed = [json.loads(line) for line in body]
        spans = chance.sample([row["spans"] for row in parsed], rows)
        kept = [
            [span for span in one if span["end"] <= len(row["text"])] for row, one in zip(parsed, spans, strict=True)
        ]
        body = [json.dumps({**row, "spans": one}, ensure_ascii=False) for row, one in zip(parsed, kept, strict=True)]
    return "\n".join([*head, *body]) + "\n"


def _edgepack(edgepack: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [edgepack, *arguments],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        timeout=_MOST_S,
        check=False,
    )


def _outcome(delivered: bool, done: subprocess.CompletedProcess[str]) -> str:
    if delivered:
        return "inconclusive" if "INCONCLUSIVE" in done.stdout + done.stderr else "pass"
    return f"none (exit {done.returncode})"


def _why(output: str) -> str:
    """The error's reason; of a delivered bundle, the checks that were not shown."""
    lines = [line.strip() for line in output.splitlines()]
    wanted = [line for line in lines if line.startswith(("error:", "why:"))]
    wanted = wanted or [line for line in lines if ": inconclusive: " in line]
    return " ".join(wanted)[:300]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of cases that left a bundle, by data set and number of rows."""
    real, chance = [one for one in found if not one["random"]], [one for one in found if one["random"]]

    def share(cases: list[dict[str, Any]]) -> str:
        return f"{sum(not one['outcome'].startswith('none') for one in cases)} of {len(cases)}"

    keys = sorted({(one["set"], one["rows"]) for one in real})
    return {
        "delivered": share(real),
        "by_case": {
            f"{name} {rows}": share([c for c in real if (c["set"], c["rows"]) == (name, rows)]) for name, rows in keys
        },
        "random_delivered": share(chance),
        "outcomes": dict(Counter(one["outcome"] for one in real)),
        "random_outcomes": dict(Counter(one["outcome"] for one in chance)),
        "median_s": round(statistics.median(one["seconds"] for one in found), 1),
    }


def _known(file: Path | None, case: tuple[str, int, int, bool]) -> dict[str, Any] | None:
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
    for one in map(json.loads, lines):
        if (one["set"], one["rows"], one["seed"], one["random"]) == case:
            return {**one, "known": True}
    return None


def _keep(file: Path | None, one: dict[str, Any]) -> None:
    if file is not None and not one.pop("known", False):
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(one, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
