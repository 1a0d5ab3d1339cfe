"""What bundles cost a device: their size, the time to a first label, memory, and the time from text in to label out.

Installs each bundle as a device would, into a folder of its own, and measures the installed release from outside.
Prints tables and ends in one JSON line.

    python benchmarks/device.py BUNDLE [BUNDLE ...] [--starts 15] [--runs 8] [--threads 1,2] [--file TABLE] [--work DIR]

First label: from the start of `PREFIX/bin/NAME predict TEXT` to the line it prints; `end` is the end of that process.
The bundles take turns. One more start comes first, after the kernel was asked to drop the release's files from its page
cache. Memory: the peak resident set of that process. Text in: one text at a time in one process, as `bench` measures
it, on texts of a length that are cut out of the bundle's own golden rows. File: all texts of a table with a column
`text`, by `predict --input`, beside the mean time of one text at a time in `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LENGTHS: Final = (16, 64, 128)  # characters
TEXTS: Final = 30  # of each length
PASSES: Final = 3
GOALS: Final = {"first_label_ms": 90.0, "peak_rss_mib": 60.0}
_MIB: Final = 2**20
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin"}


@dataclass
class Installed:
    """One bundle, installed, and what was measured of it."""

    bundle: Path
    prefix: Path
    name: str
    install_s: float
    installed_mib: float
    model_mib: float
    first_label_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    peak_rss_mib: list[float] = field(default_factory=list)
    cold_ms: float = 0.0
    text_in: list[dict[str, Any]] = field(default_factory=list)
    file: dict[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> Path:
        return self.prefix / "bin" / self.name

    @property
    def release(self) -> Path:
        return (self.prefix / "current").resolve()


@dataclass(frozen=True)
class Start:
    """One start of `predict TEXT`."""

    first_label_ms: float
    end_ms: float
    peak_rss_mib: float


def install(bundle: Path, prefix: Path) -> Installed:
    begin = time.perf_counter()
    line = [sys.executable, bundle, "install", "--prefix", prefix, "--json"]
    done = subprocess.run(line, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{bundle} could not be installed:\n{done.stderr}")
    seconds = time.perf_counter() - begin
    found = Installed(bundle, prefix, json.loads(done.stdout)["bundle"]["name"], round(seconds, 1), 0.0, 0.0)
    found.installed_mib = _folder_mib(found.release)
    found.model_mib = _folder_mib(found.release / "model")
    return found


def _folder_mib(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MIB, 2)


def start(installed: Installed, text: str) -> Start:
    """Run `predict TEXT` once. The peak is the kernel's, which counts from the process that started it: a small one."""
    begin = time.perf_counter()
    process = subprocess.Popen([installed.command, "predict", text], env=_ENVIRONMENT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as answers:
        answers.readline()
        first = time.perf_counter() - begin
        answers.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{installed.command} predict ended with {process.returncode}")
    return Start(first * 1e3, (time.perf_counter() - begin) * 1e3, usage.ru_maxrss / 1024)


def drop_from_page_cache(folder: Path) -> None:
    """Ask the kernel to forget what it has read of the files in `folder`; they are clean, so nothing is lost."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def time_starts(all_installed: Sequence[Installed], starts: int) -> None:
    for installed in all_installed:
        drop_from_page_cache(installed.release)
        installed.cold_ms = round(start(installed, "好").first_label_ms, 1)
    for number in range(starts):
        for turn in range(len(all_installed)):
            installed = all_installed[(turn + number) % len(all_installed)]
            measured = start(installed, "房间很大，服务也很好")
            installed.first_label_ms.append(measured.first_label_ms)
            installed.end_ms.append(measured.end_ms)
            installed.peak_rss_mib.append(measured.peak_rss_mib)


def of_length(rows: Sequence[str], characters: int) -> list[str]:
    """Texts of just so many characters, cut out of all rows put together."""
    everything = "".join(rows)
    while len(everything) < TEXTS * characters:
        everything += everything
    return [everything[start : start + characters] for start in range(0, TEXTS * characters, characters)]


def time_texts(installed: Installed, threads: Sequence[int], runs: int, scratch: Path) -> None:
    lines = (installed.release / "golden" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = ["".join(json.loads(line)["text"].split()) for line in lines]
    files = {}
    for characters in LENGTHS:
        files[characters] = scratch / f"{characters}.txt"
        texts = of_length(rows, characters)
        files[characters].write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    passes: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for _ in range(PASSES):  # processes in turns: none of the figures owes itself to a quiet minute alone
        for characters, file in files.items():
            for count in threads:
                passes[characters, count].append(bench(installed, file, count, runs))
    for (characters, count), models in passes.items():
        medians = {key: _median([model[key] for model in models]) for key in models[0] if key.endswith("_ms")}
        installed.text_in.append({"characters": characters, "threads": count, "n": models[0]["n"], **medians})


def time_file(installed: Installed, table: Path, threads: Sequence[int], scratch: Path) -> None:
    """Milliseconds a text: single texts, and all texts of a file with each number of threads, in turns."""
    texts = len(table.read_text(encoding="utf-8").splitlines()) - 1
    alone: list[float] = []
    ms: dict[int, list[float]] = defaultdict(list)
    for _ in range(PASSES):
        alone.append(bench(installed, table, 1, 1)["mean_ms"])
        for count in threads:
            line = [installed.command, "predict", "--input", table, "--output", scratch / "labels.csv", "--quiet"]
            begin = time.perf_counter()
            subprocess.run([*line, "--threads", str(count)], env=_ENVIRONMENT, capture_output=True, check=True)
            ms[count].append((time.perf_counter() - begin) * 1000 / texts)
    installed.file = {"texts": texts, "alone_ms": _range(alone)}
    installed.file |= {f"threads_{count}_ms": _range(found) for count, found in ms.items()}


def _range(values: Sequence[float]) -> dict[str, float]:
    return {key: round(of(values), 4) for key, of in (("median", statistics.median), ("lowest", min), ("highest", max))}


def bench(installed: Installed, texts: Path, threads: int, runs: int) -> dict[str, Any]:
    line = [installed.command, "bench", "--texts", texts, "--threads", str(threads), "--runs", str(runs), "--json"]
    done = subprocess.run(line, env=_ENVIRONMENT, capture_output=True, check=True)
    model: dict[str, Any] = json.loads(done.stdout)["models"][0]
    return model


def _median(values: Sequence[float | None]) -> float | None:
    """None where a process had too few samples for a percentile."""
    told = [value for value in values if value is not None]
    return round(statistics.median(told), 4) if len(told) == len(values) else None


def report(installed: Installed) -> dict[str, Any]:
    """Medians, with quartiles where something was measured more than once."""
    return {
        "bundle": installed.bundle.name,
        "bundle_mib": round(installed.bundle.stat().st_size / _MIB, 2),
        "installed_mib": installed.installed_mib,
        "model_mib": installed.model_mib,
        "install_s": installed.install_s,
        "first_label_cold_ms": installed.cold_ms,
        **{key: _spread(getattr(installed, key)) for key in ("first_label_ms", "end_ms", "peak_rss_mib")},
        "text_in": installed.text_in,
        "file": installed.file,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = (round(value, 1) for value in statistics.quantiles(values, n=4))
    return {"median": median, "low": low, "high": high, "n": len(values)}


def show(found: dict[str, Any]) -> None:
    print("\n{bundle}: {bundle_mib} MiB, installed {installed_mib} MiB in {install_s} s".format(**found))
    for key in ("first_label_ms", "end_ms", "peak_rss_mib"):
        goal = f"  goal <= {GOALS[key]:g}" if key in GOALS else ""
        print("  {:<16} {median:8.1f}  ({low:.1f} to {high:.1f}, n = {n}){}".format(key, goal, **found[key]))
    print(f"  first_label_ms, files not in the page cache: {found['first_label_cold_ms']:.1f}")
    print("  characters  threads  p50 ms  p95 ms  tokenize    run   post")
    for row in found["text_in"]:
        p95 = "-" if row["p95_ms"] is None else f"{row['p95_ms']:.3f}"
        print(
            f"  {row['characters']:>10}  {row['threads']:>7}  {row['p50_ms']:6.3f}  {p95:>6}"
            f"  {row['tokenize_p50_ms']:8.3f} {row['run_p50_ms']:6.3f} {row['post_p50_ms']:6.3f}"
        )
    for key, value in found["file"].items():
        print(
            f"  file, {key}: "
            + (str(value) if key == "texts" else "{median:.3f} ({lowest:.3f} to {highest:.3f})".format(**value))
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--starts", type=int, default=15, help="starts of each bundle (15)")
    parser.add_argument("--runs", type=int, default=8, help="rounds over the texts, in each of three passes (8)")
    parser.add_argument("--threads", default="1,2", help="thread counts (1,2)")
    parser.add_argument("--file", type=Path, help="table of texts, as .tsv or .csv with a column `text`")
    parser.add_argument("--work", type=Path, help="where to install (a temporary folder)")
    options = parser.parse_args()
    threads = [int(count) for count in options.threads.split(",")]
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        scratch = Path(folder)
        everything = [install(bundle.resolve(), scratch / str(i)) for i, bundle in enumerate(options.bundles)]
        time_starts(everything, options.starts)
        for installed in everything:
            time_texts(installed, threads, options.runs, scratch)
            if options.file is not None:
                time_file(installed, options.file.absolute(), threads, scratch)
        found = [report(installed) for installed in everything]
    for one in found:
        show(one)
    met = {one["bundle"]: {key: one[key]["median"] <= limit for key, limit in GOALS.items()} for one in found}
    print(json.dumps({"benchmark": "device", "cores": os.cpu_count(), "bundles": found, "goals_met": met}))


if __name__ == "__main__":
    main()
