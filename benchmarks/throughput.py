"""How fast `predict --input --output` is, against a plain loop that asks about one text after the other.

Prints tables and ends in one JSON line. File to file both ways, in one process, in turns; the model is open before.
The loop reads a line, predicts on one thread, writes a line. Milliseconds a text are of the clock and of the processor:
where other programs run, cores are missing, and the second is what to look at. "x" is the loop's clock over the way's.

    python benchmarks/throughput.py [--model DIR | --shape 4x312] [--data FILE | --median 80] [--rows 512] [--rounds 5]

Without --data, texts are random characters, 5 to 400 of them, spread as hotel reviews are (--median 20: as titles are).
Without --model, weights are random, in float and INT8. The floor is what running the model alone takes on one thread,
in the best of several sizes of batches, with every text cut into tokens already: no way to read and write can be faster
on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import onnx
from forms import HEADS, LONGEST, random_encoder

from edgepack.export.model_folder import ON_CPU
from edgepack.onnx_graph.graph_writer import compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack_runtime.batch import inputs, predict_files
from edgepack_runtime.bundle.model_config import ONE_TEXT, ModelConfig, dump
from edgepack_runtime.cli import model_commands
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.device import conditions
from edgepack_runtime.device.cores import usable_cores
from edgepack_runtime.inference import streaming
from edgepack_runtime.inference.predictor import Predictor

SPECIAL: Final = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
CHARACTERS: Final = tuple(map(chr, range(0x4E00, 0x4E00 + 6000)))
SPREAD, MOST_CHARACTERS = 0.9, 400  # of hotel reviews: lengths are about log-normal
BATCH_TOKENS: Final = (128, 256, 512, 1024, 2048)
LARGER: Final = 8  # times as many rows, to see what memory depends on
FLOOR_ROUNDS: Final = 3
LOOP: Final = "one by one"
# The system's own figure of a child would begin with what its parent had.
MEMORY: Final = """\
import sys
from edgepack_runtime import cli
code = cli.main()
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
raise SystemExit(code)
"""


def model_folders(shape: str, work: Path) -> dict[str, Path]:
    """Random weights as a build would write them, for ONNX Runtime."""
    layers, hidden = map(int, shape.split("x"))
    assert hidden % HEADS == 0, f"{hidden} is not a multiple of {HEADS} heads"
    encoder = random_encoder(layers, hidden)
    layout = fastest(pairs=False, tokens=LONGEST)
    found = {}
    for name, form in {"float": None, "INT8": OrtCpuForm()}.items():
        folder = found[name] = work / f"model-{name.lower()}"
        folder.mkdir()
        onnx.save(compose(encoder, layout, form), str(folder / "model.onnx"))
        (folder / "vocab.txt").write_text("\n".join((*SPECIAL, *CHARACTERS)), encoding="utf-8")
        labels = tuple("abcdefghij")
        precision = "int8" if form else "float32"
        config = ModelConfig(ONE_TEXT, labels, LONGEST, precision, engine=ON_CPU, hides_padding=False)
        (folder / "model.json").write_bytes(dump(config))
    return found


def random_texts(count: int, median: int) -> list[str]:
    draw = random.Random(0)
    lengths = (int(draw.lognormvariate(0, SPREAD) * median) for _ in range(count))
    return ["".join(draw.choices(CHARACTERS, k=min(max(5, length), MOST_CHARACTERS))) for length in lengths]


def one_by_one(predictor: Predictor, source: Path, output: Path) -> None:
    with source.open(encoding="utf-8") as lines, output.open("w", encoding="utf-8") as out:
        for line in lines:
            found = predictor.predict(line.rstrip("\n")).as_json(with_scores=False)
            out.write(json.dumps(found, ensure_ascii=False) + "\n")


def whole_file(predictor: Predictor, folder: Path, source: Path, output: Path, threads: int) -> None:
    line = ["predict", "--model", str(folder), "--input", str(source), "--output", str(output)]
    options = build_parser(Context("edgert", None, None)).parse_args([*line, "--threads", str(threads), "--quiet"])
    asked = model_commands.columns(options, pairs=False)
    predict_files.answer(options, (), asked, predictor, lambda text: print(text, file=sys.stderr))


def floor_ms(predictor: Predictor, texts: list[str], rounds: int) -> dict[int, float]:
    """Milliseconds of the processor a text, by tokens of a batch: the model alone, medians."""
    encoded = predictor.text_task.encoding.encode(texts)
    sizes = [(len(item.rows[0].ids), (place, 0)) for place, item in enumerate(encoded)]
    alike = not predictor.config.hides_padding
    found: dict[int, list[float]] = {tokens: [] for tokens in BATCH_TOKENS}
    for _ in range(rounds):
        for tokens in BATCH_TOKENS:
            planned = streaming.batches(sizes, streaming.StreamSettings(batch_tokens=tokens, alike=alike))
            ready = [
                predictor.text_task.encoding.batch([encoded[place].rows[0] for place, _ in batch]) for batch in planned
            ]
            begin = time.process_time()
            for batch in ready:
                predictor.text_task.encoder.run(batch)
            found[tokens].append((time.process_time() - begin) * 1e3 / len(texts))
    return {tokens: statistics.median(values) for tokens, values in found.items()}


def in_turns(ways: dict[str, Callable[[], None]], count: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians and quartiles of each way, after one run of each that is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            way()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            if number:
                times[name].append((spent[0] * 1e3 / count, spent[1] * 1e3 / count))
    return {name: dict(_spread(found)) for name, found in times.items()}


def _spread(times: list[tuple[float, float]]) -> Iterator[tuple[str, float]]:
    for clock, values in zip(("wall", "cpu"), zip(*times, strict=True), strict=True):
        low, median, high = statistics.quantiles(values, n=4)
        yield from ((f"{clock}_ms", median), (f"{clock}_low_ms", low), (f"{clock}_high_ms", high))


def apart(one: Path, other: Path) -> tuple[int, float]:
    """How many answers of two files differ in their label, and the largest difference of a score."""
    pairs = [
        [json.loads(line) for line in lines]
        for lines in zip(*(path.read_text(encoding="utf-8").splitlines() for path in (one, other)), strict=True)
    ]
    labels = sum(first["label"] != second["label"] for first, second in pairs)
    return labels, max(abs(first["score"] - second["score"]) for first, second in pairs)


def peak_rss_mib(folder: Path, source: Path, threads: int, work: Path) -> float:
    """Of a process that does nothing else."""
    line = ["predict", "--model", str(folder), "--input", str(source), "--output", str(work / "memory.jsonl")]
    line += ["--threads", str(threads), "--quiet"]
    done = subprocess.run([sys.executable, "-c", MEMORY, *line], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return int(done.stdout) / 1024


def measured(folder: Path, texts: list[str], options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All ways for one model."""
    source, larger = work / "texts.txt", work / "larger.txt"
    source.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    larger.write_text(source.read_text(encoding="utf-8") * LARGER, encoding="utf-8")
    predictor = Predictor(folder, threads=1)
    outputs = {LOOP: work / "loop.jsonl"}
    ways: dict[str, Callable[[], None]] = {LOOP: lambda: one_by_one(predictor, source, outputs[LOOP])}
    for threads in options.threads:
        name = f"file, {threads} thread(s)"
        outputs[name] = work / f"file-{threads}.jsonl"
        ways[name] = lambda threads=threads, name=name: whole_file(predictor, folder, source, outputs[name], threads)
    found = in_turns(ways, len(texts), options.rounds)
    loop = found[LOOP]
    for name, figures in found.items():
        figures["rows_per_s"] = 1e3 / figures["wall_ms"]
        figures["times_the_loop"] = loop["wall_ms"] / figures["wall_ms"]
        figures["cpu_of_the_loop"] = figures["cpu_ms"] / loop["cpu_ms"]
        figures["other_labels"], figures["score_apart"] = apart(outputs[LOOP], outputs[name])
    floors = floor_ms(predictor, texts, min(options.rounds, FLOOR_ROUNDS))
    most = max(options.threads)
    memory = {path.stem: peak_rss_mib(folder, path, most, work) for path in (source, larger)}
    return {"ways": found, "floor_ms": floors, "peak_rss_mib": memory}


def table(name: str, found: dict[str, Any], count: int) -> str:
    lines = [
        f"| {name}, {count} texts | wall ms a text | CPU ms a text | rows/s | x | other labels | score apart |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| {} | {:.3f} ({:.3f}-{:.3f}) | {:.3f} | {:.0f} | {:.2f} | {} | {:.1g} |".format(
            way,
            *(figures[key] for key in ("wall_ms", "wall_low_ms", "wall_high_ms", "cpu_ms", "rows_per_s")),
            *(figures[key] for key in ("times_the_loop", "other_labels", "score_apart")),
        )
        for way, figures in found["ways"].items()
    ]
    floors = ", ".join(f"{ms:.3f} at {tokens}" for tokens, ms in found["floor_ms"].items())
    loop, least = found["ways"][LOOP]["cpu_ms"], min(found["floor_ms"].values())
    lines += [
        "",
        f"Floor, CPU ms a text by tokens of a batch: {floors}. The loop takes {loop / least:.2f} times the least: "
        "that, for each core, is the most that can be gained.",
        "Peak RSS, MiB: "
        + ", ".join(f"{mib:.0f} ({stem})" for stem, mib in found["peak_rss_mib"].items())
        + f"; larger has {LARGER} times as many rows.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="model folder of single texts, one label")
    parser.add_argument("--shape", default="4x312", help="layers x hidden of the random weights")
    parser.add_argument("--data", type=Path, help=".txt, or .tsv .csv .jsonl with `text`")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--median", type=int, default=80, help="characters of a random text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    options = parser.parse_args()
    texts = (
        [str(text) for text in inputs.read_texts(options.data)]
        if options.data
        else random_texts(options.rows, options.median)
    )
    texts = [" ".join(text.split()) for text in texts[: options.rows]]
    work = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        folders = {options.model.name: options.model} if options.model else model_folders(options.shape, work)
        before = conditions.load_average()
        results = {name: measured(folder, texts, options, work) for name, folder in folders.items()}
    finally:
        shutil.rmtree(work)
    for name, found in results.items():
        print(table(name, found, len(texts)) + "\n")
    facts = {
        "texts": len(texts),
        "data": options.data.name if options.data else f"random, median {options.median} characters",
        "cores": usable_cores(),
        "load_average": [before, conditions.load_average()],
    }
    print(json.dumps(facts | {"results": results}))


if __name__ == "__main__":
    main()
