"""A finished build with made-up figures, for everything that reports on one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.artifacts import (
    Artifact,
    BundleArtifact,
    Checks,
    CombineArtifact,
    CombineFit,
    CombineMethod,
    Compared,
    ContentCheck,
    DataArtifact,
    Example,
    Examples,
    ExportArtifact,
    Gain,
    GateArtifact,
    Int8Choice,
    Judged,
    LedgerRow,
    LinearArtifact,
    LinearScales,
    ModelArtifact,
    ModelFile,
    PartCost,
    Quantization,
    ScalesArtifact,
    Score,
    SelectArtifact,
    Split,
    Trial,
    TrimmedArtifact,
    Usage,
    WidthPrunedArtifact,
)
from edgepack.calibration import Reliability, ScoreCalibration
from edgepack.messages import joined, message
from edgepack.packages import wheels
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import LinearRecipe, Recipe
from edgepack.results import Build, NotRunHere, TargetResult
from edgepack.targets.profiles import Profile
from edgepack_runtime.schema.receipt import NO_GATES

TARGET = "local"
CHECKS = Checks(
    (
        ContentCheck("ELF", "18"),
        ContentCheck("glibc", "2.28"),
        ContentCheck(
            message("content.gpu_code"),
            joined(message("content.sass", for_gpus="sm_87"), message("content.no_ptx"), by="list.comma"),
            message("content.for", sm=["sm_87"]),
            "onnxruntime-gpu 1.23.0",
        ),
    ),
    (message("note.looks_in", name="a.so", place="/opt/lib"),),
)


EXAMPLES = Examples(
    794, 3, 1, 0,
    (
        Example("床单很<旧>，但是前台很热情", "负面", "负面", "正面", 0.4812),
        Example("一般般吧", "负面", "正面", "负面", 0.5333),
    ),
    (Example("呵呵，真是“好”酒店 ⁄ 再也不来", "负面", "正面", "正面", 0.0021),),
)  # fmt: skip


TINY_RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data:
  train: train.tsv
  dev: dev.tsv
  test: test.tsv
student:
  model: {scratch: {layers: 1, hidden: 8, heads: 2}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a valid recipe `r.yaml` and its data, three rows a split; the test runs in it."""
    (tmp_path / "r.yaml").write_text(TINY_RECIPE, encoding="utf-8")
    for split, rows in {"train": "好\t1\n差\t0\n不错\t1", "dev": "挺好\t1\n很差\t0\n还行\t1",
                        "test": "真好\t1\n真差\t0\n很好\t1"}.items():  # fmt: skip
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def interval(value: float) -> Score:
    return Score(value, round(value - 0.022, 4), round(value + 0.019, 4), 794, 0.95)


def scored(value: float) -> dict[str, Score]:
    """In the metrics of a task; macro F1 is two points below accuracy."""
    return {"accuracy": interval(value), "macro_f1": replace(interval(round(value - 0.02, 4)), metric="macro_f1")}


@pytest.fixture
def ledger() -> tuple[LedgerRow, ...]:
    """As of a build with a teacher and an INT8 student."""
    onnx: Any = {"score": interval(0.897), "model_mib": 40.812, "mean_ms": 3.96, "p50_ms": 3.812, "p95_ms": 5.223}
    int8: Any = {"score": interval(0.8955), "model_mib": 10.9, "mean_ms": 1.287, "p50_ms": 1.214, "p95_ms": 1.931}
    static = message("note.static")
    teacher, student = (message("note.weights", millions=millions, steps=1161) for millions in (28.9, 10.6))
    return (
        LedgerRow("teacher", interval(0.912), 110.435, note=teacher, seconds=350.4),
        LedgerRow("student", interval(0.897), 40.321, note=student, seconds=35.2),
        LedgerRow("static graph", interval(0.897), 40.5, parity=1.2e-6, parity_with="student", note=static),
        LedgerRow("float ONNX", **onnx, parity=2.4e-6, parity_with="static graph"),
        LedgerRow("INT8 ONNX", **int8, parity=0.0712, parity_with="float ONNX", note="1 of 64 labels flipped"),
        LedgerRow(f"on {TARGET}", **int8, note=message("note.gate", verdict=message("verdict.inconclusive"))),
    )


def check(gate: str, verdict: str, figures: tuple[float | None, ...], unit: str, detail: str = "") -> dict[str, Any]:
    value, low, high, limit, n = figures
    return {
        "gate": gate, "verdict": verdict, "value": value, "low": low, "high": high, "limit": limit,
        "unit": unit, "n": n, "confidence": 0.95, "detail": detail,
    }  # fmt: skip


@pytest.fixture
def receipt() -> dict[str, Any]:
    """Every verdict and every unit once."""
    return {
        "receipt": 1,
        "verb": "gate",
        "bundle": {
            "name": "hotel-sentiment",
            "version": "1.2.0",
            "target": TARGET,
            "release_id": "1.2.0-0123456789ab",
            "manifest_sha256": "0123456789ab" + "0" * 52,
        },
        "verdict": "fail",
        "checks": [
            check(
                "accuracy.min", "inconclusive", (0.8955, 0.8722, 0.9149, 0.88, 794), "fraction",
                "the interval holds the limit; about 3200 rows would decide",
            ),
            check("accuracy.max_drop_points", "pass", (0.126, -0.25, 0.5, 1.0, 794), "points"),
            check("latency.p50_ms", "pass", (1.248, 1.231, 1.266, 5.0, 662), "ms"),
            check("latency.p95_ms", "fail", (2.02, 1.95, 2.204, 1.9, 662), "ms", "2.20 ms is above 1.90 ms"),
            check("memory.peak_rss_mib", "pass", (187.25, None, None, 250.0, 1), "MiB"),
            check("size.model_mib", "pass", (10.9, None, None, 12.0, None), "MiB"),
            check("cold_start.ms", "pass", (812.34, None, None, 1500.0, 3), "ms"),
            check("latency.p99_ms", "inconclusive", (None, None, None, 9.0, None), "ms", "too few rows <b>"),
        ],
        "accuracy": {
            "metric": "accuracy", "value": 0.8955, "low": 0.8722, "high": 0.9149, "n": 794, "confidence": 0.95,
        },
        "classes": {
            "metrics": {"accuracy": 0.8955, "macro_f1": 0.8712, "micro_f1": 0.8955},
            "classes": 2,
            "scores": [
                {"label": "负面", "precision": 0.8406, "recall": 0.8017, "f1": 0.8207, "support": 237},
                {"label": "正面", "precision": 0.9173, "recall": 0.9354, "f1": 0.9262, "support": 557},
            ],
            "confusion": {"正面": {"正面": 521, "负面": 36}, "负面": {"正面": 47, "负面": 190}},
        },
        "latency": {
            "n": 662, "mean_ms": 1.301, "p50_ms": 1.248, "p95_ms": 2.02, "tokenize_p50_ms": 0.121, "run_p50_ms": 1.089,
            "post_p50_ms": 0.021, "threads": 1,
            "distribution": {
                "min_ms": 1.012, "p1_ms": 1.031, "p5_ms": 1.074, "p10_ms": 1.102, "p25_ms": 1.171, "p50_ms": 1.248,
                "p75_ms": 1.402, "p90_ms": 1.733, "p95_ms": 2.02, "p99_ms": 2.611, "max_ms": 3.905,
            },
        },
        "conditions": {
            "cpu_model": "AMD EPYC 7B13", "cpu_flags": ["avx2", "fma"], "cores": 2, "governor": None, "threads": 1,
            "providers": ["CPUExecutionProvider"], "python": "3.11.7", "engine": "onnxruntime 1.20.1",
            "numpy": "1.26.4", "load_average": [0.5, 0.4, 0.3], "kernel": "6.1.0", "emulated": False,
            "device_clock_utc": "2026-02-28T23:59:59Z",
        },
        "seconds": 41.25,
    }  # fmt: skip


CALIBRATION = ScoreCalibration(1.25, Reliability(4.125, 0.1525), Reliability(1.25, 0.1475))


@pytest.fixture
def built(tmp_path: Path, ledger: tuple[LedgerRow, ...], receipt: dict[str, Any]) -> Build:
    """A build whose data lie in `tmp_path`; its recipe names files by absolute paths, as a resolved one does."""
    model: Any = {"labels": ("负面", "正面"), "max_length": 64, "steps": 1161}
    usage = Usage("cpu", "fp32", 10_512.4, 0.0213, 2048.5, 1)
    trained: Any = {"epochs": 3, "best_epoch": 2, "usage": usage}
    int8 = ModelFile("onnx-int8", "int8", 11_429_478, ledger[4], scored(0.8955))
    export = ExportArtifact(
        tmp_path, ledger[2], ModelFile("onnx-float", "float32", 42_794_483, ledger[3], scored(0.897)), int8, "int8",
        message(
            "ship.small", figures=message("ship.figures", title="INT8", size="0.27", speed="0.32"), title="INT8"
        ),
        Int8Choice(
            (Trial("ptq (hist)", 0.75, 0.0123), Trial("dynamic", 0.875, 0.0151)), "ptq (hist)",
            (PartCost("layers.3.down", 0.0064), PartCost("head", 0.0011), PartCost("words", -2e-5)),
            ("layers.3.down",), 0.375, 0.5, 800,
        ),
    )  # fmt: skip
    parts = {"model": 10_400_000, "site": 15_200_000, "runtime": 61_000, "golden": 143_000, "other": 52_000}
    name = f"hotel-sentiment-1.2.0-{TARGET}.edgepack"
    bundle = BundleArtifact(
        tmp_path,
        name,
        TARGET,
        sum(parts.values()),
        61_000_000,
        "0123456789ab" + "0" * 52,
        parts,
        CHECKS,
        examples=EXAMPLES,
    )
    return Build(
        recipe(tmp_path),
        {
            "data": data(tmp_path),
            "teacher": ModelArtifact(
                tmp_path, **model, parameters=28_948_048, weight_bytes=115_800_000, train_seconds=350.4,
                dev_score=interval(0.915), test_score=interval(0.912), test_scores=scored(0.912), calibration=None,
                **trained,
            ),
            "student": ModelArtifact(
                tmp_path, **model, parameters=10_569_000, weight_bytes=42_280_000, train_seconds=35.2,
                dev_score=interval(0.9), test_score=interval(0.897), test_scores=scored(0.897),
                calibration=CALIBRATION, **trained,
            ),
            "quantize": ScalesArtifact(tmp_path, (Quantization("ptq", "hist", linears()), dynamic()), 256),
            "export": export,
        },
        (TargetResult(bundle, GateArtifact(tmp_path, TARGET, 6, "fail", ledger[5], receipt)),),
    )  # fmt: skip


KEEPS, MISSES = Judged("pass", ()), Judged("inconclusive", ("accuracy.max_drop_points 1.4 points, limit 1 points",))


def gained(points: float, low: float, high: float) -> dict[str, Gain]:
    return {"accuracy": Gain(points, low, high, 0.95)}


def having(built: Build, **artifacts: Artifact | None) -> Build:
    """The build with these artifacts of stages; without a stage of None."""
    given = {**built.artifacts, **artifacts}
    return replace(built, artifacts={stage: artifact for stage, artifact in given.items() if artifact is not None})


def combined_of(built: Build) -> Build:
    """The build with a linear model; a cascade of both ships."""
    folder = built.data.folder
    both: Any = {"on_dev": KEEPS, "on_test": KEEPS}
    methods = (
        CombineMethod("encoder", 0.9, 0.0, **both, test_scores=scored(0.8955), gains=gained(-0.65, -2.41, 1.12),
            gains_over_encoder=gained(0.0, 0.0, 0.0), reliability=Reliability(2.1, 0.152), share=0.0,
            weight_bytes=11_429_478, mean_ms=1.302, p50_ms=1.248, p95_ms=2.02),
        CombineMethod("ensemble", 0.91, 0.6, **both, test_scores=scored(0.906), gains=gained(0.4, -0.6, 1.4),
            gains_over_encoder=gained(1.05, 0.2, 1.9), reliability=Reliability(1.4, 0.141), share=0.0,
            weight_bytes=11_651_000, mean_ms=1.351, p50_ms=1.301, p95_ms=2.08),
        CombineMethod("cascade", 0.91, 0.8, **both, test_scores=scored(0.907), gains=gained(0.5, -0.4, 1.4),
            gains_over_encoder=gained(1.15, -0.1, 2.4), reliability=Reliability(1.6, 0.143), share=0.67,
            weight_bytes=11_651_000, mean_ms=0.472, p50_ms=0.061, p95_ms=1.95),
        CombineMethod("linear", 0.895, 1.1, **both, test_scores=scored(0.902), gains=gained(0.0, 0.0, 0.0),
            gains_over_encoder=gained(0.65, -1.12, 2.41), reliability=Reliability(1.9, 0.149), share=1.0,
            weight_bytes=221_522, mean_ms=0.052, p50_ms=0.048, p95_ms=None),
    )  # fmt: skip
    of_cascade = message("choice.of_other", name="cascade", points=1.0, noise=0.8, ms="0.47 ms")
    figures = [message("choice.of_encoder", score="90.0 %", ms="1.30 ms"), of_cascade]
    why = message("choice.fastest", figures=figures)
    linear = LinearArtifact(folder, 20_000, 0.3, 221_522, 1.9, interval(0.902), scored(0.902))
    combined = CombineArtifact(folder, "accuracy", CombineFit(0.8, 0.5, 2.25), methods, "cascade", why)
    return having(built, linear=linear, combine=combined)


def linear_of(built: Build) -> Build:
    """The build of a linear model alone (`linear: only`)."""
    document = built.recipe.model_dump(mode="json", by_alias=True, include={"name", "version", "data"})
    recipe = LinearRecipe.model_validate({
        "edgepack": 1, "linear": "only", **document, "gates": {"accuracy": {"metric": "accuracy", "min": 0.92}},
    })  # fmt: skip
    artifacts = {"data": built.data, "linear": combined_of(built).linear}
    return replace(built, recipe=recipe, artifacts=artifacts)


@pytest.fixture
def selection(tmp_path: Path) -> SelectArtifact:
    """Of four candidates, one of which failed, and one of which there was no time for."""
    nano = Compared(
        "model=./nano, hidden=false", interval(0.9), 10_569_000, 42_280_000, 35.2, "int8", 11_429_478, 1.214, 1.931,
        ("latency.p95_ms (1.931 > 1.9)",),
    )  # fmt: skip
    cut = Compared(
        "model={from: teacher, layers: 4}", interval(0.904), 19_300_000, 77_200_000, 81.0, "int8", 20_132_659, 1.105,
        None,
    )  # fmt: skip
    on_dev = message("select.on_dev", metric=message("metric.accuracy"), score="90.4 %")
    figures = joined(on_dev, "p50 1.10 ms", "19.2 MiB", by="list.comma")
    why = joined(message("select.only_one", n=2), figures)
    return SelectArtifact(tmp_path, (nano, cut), cut.name, why, None, "latency", ("model=./pico",))


def linears() -> tuple[LinearScales, ...]:
    """Of a model that has little: one layer's queries, keys and values, another's last product, and the head."""
    read = (-3.25, 4.4)
    layer = "ernie.encoder.layers"
    return (
        LinearScales(f"{layer}.0.self_attn.q_proj", "a" * 64, read, (0.125, 0.5)),
        LinearScales(f"{layer}.0.self_attn.k_proj", "b" * 64, read, (0.25, 0.3)),
        LinearScales(f"{layer}.0.self_attn.v_proj", "c" * 64, (-3.25, 4.5), (0.0625, 0.2)),
        LinearScales(f"{layer}.3.linear2", "d" * 64, (-0.17, 50.83), (0.1, 1.7)),
        LinearScales("classifier", "e" * 64, (0.1, 0.85), (0.054, 0.06)),
    )


def dynamic() -> Quantization:
    """The same weights with ranges that are found in each run."""
    return Quantization("dynamic", None, tuple(replace(linear, activation=None) for linear in linears()))


def ungated_of(built: Build) -> Build:
    """The same build of a recipe that sets no gates: measured, and passed because nothing was asked."""
    (item,) = built.target_results
    assert isinstance(item.gate, GateArtifact)
    left_out = [{"gate": "gates", "why": NO_GATES, "waived": True}]
    receipt = {**item.gate.receipt, "checks": [], "unmeasured": left_out, "verdict": "pass"}
    gate = replace(item.gate, receipt=receipt, verdict="pass", exit_code=0)
    return replace(built, target_results=(replace(item, gate=gate),))


def beside_one_not_run(built: Build) -> Build:
    """The build with a bundle for another machine beside its own."""
    (item,) = built.target_results
    bundle = replace(item.bundle, target="linux-aarch64", file_name="b.edgepack")
    gate = NotRunHere("it is for aarch64", "python3 b.edgepack gate")
    return replace(built, target_results=(item, TargetResult(bundle, gate)))


def width_pruned_of(built: Build) -> WidthPrunedArtifact:
    """The student of a build with three quarters of its width."""
    told = {field.name: getattr(built.student, field.name) for field in fields(ModelArtifact)}
    return WidthPrunedArtifact(
        **told | {"weight_bytes": 37_600_000, "parameters": 9_400_000, "train_seconds": 28.8},
        heads=9, heads_before=12, neurons=936, neurons_before=1248, dev_score_before=built.student.dev_score,
    )  # fmt: skip


def trimmed_of(built: Build) -> TrimmedArtifact:
    """The student of a build with fewer tokens."""
    told = {field.name: getattr(built.student, field.name) for field in fields(ModelArtifact)}
    return TrimmedArtifact(
        **told | {"weight_bytes": 24_000_000, "parameters": 6_000_000},
        tokens=3491, tokens_before=18_000, dev_score_before=built.student.dev_score, unknown=0.0237,
        unknown_before=0.0138,
    )  # fmt: skip


def recipe(folder: Path) -> Recipe:
    return Recipe.model_validate({
        "edgepack": 1, "name": "hotel-sentiment", "version": "1.2.0",
        "data": {split: str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
        "teacher": {"model": str(folder / "ernie-base"), "epochs": 3, "learning_rate": 3e-5},
        "student": {"model": "ernie-3.0-tiny-nano-v2-zh", "epochs": 3, "learning_rate": 3e-5, "max_length": 64},
        "gates": {
            "accuracy": {"metric": "accuracy", "min": 0.88, "max_drop_points": 1.0},
            "latency": {"p50_ms": 5, "p95_ms": 1.9},
        },
    })  # fmt: skip


def data(folder: Path) -> DataArtifact:
    rows: dict[Split, list[tuple[str, str]]] = {
        "train": [("很好", "正面"), ("太吵了", "负面"), ("早餐不错，下次还来", "正面")],
        "dev": [("还行", "正面"), ("不好", "负面")],
        "test": [("房间很大", "正面"), ("太差", "负面")],
    }
    for split, members in rows.items():
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in members]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    counts = {split: len(members) for split, members in rows.items()}
    reason, fix = message("found.repeats", split="train", line=3), message("found.remove_one")
    warning = Finding("warning", Path("train.tsv"), 7, reason, fix).sentence
    return DataArtifact(folder, ("负面", "正面"), counts, (warning,))


EM_X86_64 = 62
_PIP_DOWNLOAD = wheels.pip_download


@pytest.fixture
def pip_download() -> wheels.Download:
    """The real thing, for tests that put something else in the place of the process it starts."""
    return _PIP_DOWNLOAD


@pytest.fixture(autouse=True)
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit test that would reach for the network fails instead."""

    def refuse(requirements: Path, folder: Path, profile: Profile, python: tuple[int, int] | None) -> None:
        raise AssertionError("a unit test ran pip")

    monkeypatch.setattr(wheels, "pip_download", refuse)


@pytest.fixture
def profile() -> Profile:
    """A target that no machine's own Python decides."""
    return Profile(name="test-target", summary="for tests", machines=("x86_64",), interpreter="host")


@pytest.fixture
def make_elf() -> Callable[..., bytes]:
    """A factory of the smallest ELF files that state needs: `make_elf(symbols, libraries, machine=)`."""
    return _elf


def _elf(
    symbols: Sequence[str] = (),
    libraries: Sequence[str] = (),
    *,
    machine: int = EM_X86_64,
    sections: bool = True,
    provider: str = "libfake.so",
    runpath: str | None = None,
    stack: int | None = None,
    flags: int = 0,
    fatbin: bytes = b"",
) -> bytes:
    """64-bit little-endian ELF with .dynstr, .gnu.version_r, .dynamic and .nv_fatbin (System V gABI, chapters 4 and 5).

    `provider` has the symbols; `stack` are the flags of PT_GNU_STACK, none without; `flags` are those of DT_FLAGS.
    """
    strings = b"\0"
    offsets = {}
    for text in (provider, runpath or "", *symbols, *libraries):
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    needs = b""
    if symbols:
        needs = struct.pack("<HHIII", 1, len(symbols), offsets[provider], 16, 0)
        for index, symbol in enumerate(symbols):
            last = index == len(symbols) - 1
            needs += struct.pack("<IHHII", 0, 0, 2 + index, offsets[symbol], 0 if last else 16)
    entries = [(1, offsets[library]) for library in libraries]  # DT_NEEDED
    entries += [(29, offsets[runpath])] if runpath is not None else []
    entries += [(30, flags)] if flags else []
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in (*entries, (0, 0)))
    segments = b"" if stack is None else struct.pack("<IIQQQQQQ", 0x6474E551, stack, 0, 0, 0, 0, 0, 16)
    start = 64 + len(segments)
    names = b"\0.dynstr\0.gnu.version_r\0.dynamic\0.shstrtab\0.nv_fatbin\0"
    body = [(1, 3, strings, 0, 0, 0), (9, 0x6FFFFFFE, needs, 1, 1 if symbols else 0, 0)]
    body += [(24, 6, dynamic, 1, 0, 16)]
    body += [(43, 1, fatbin, 0, 0, 0)] if fatbin else []
    body += [(33, 3, names, 0, 0, 0)]
    data, table = b"", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, kind, content, link, info, entry in body:
        if kind == 0x6FFFFFFE and not content:
            kind = 1
        table += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, start + len(data), len(content), link, info, 1, entry)
        data += content
    count = len(body) + 1 if sections else 0
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    where = start + len(data) if sections else 0
    program = (64, 56, 1) if segments else (0, 0, 0)
    header = struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        machine,
        1,
        0,
        program[0],
        where,
        0,
        64,
        *program[1:],
        64,
        count,
        count - 1 if sections else 0,
    )
    return ident + header + segments + data + table


@pytest.fixture
def make_fatbin() -> Callable[..., bytes]:
    """A factory of GPU code as nvcc lays it out: `make_fatbin([("sass", 87), ("ptx", 80)])` is one container."""
    return _fatbin


def _fatbin(
    codes: Sequence[tuple[str, int]], *, header_bytes: int = 64, code_bytes: int = 24, flags: int = 0x11
) -> bytes:
    entries = b""
    for kind, sm in codes:
        number = {"ptx": 1, "sass": 2, "linked later": 64}[kind]
        entry = struct.pack("<HHIQIIHHIIIQ", number, 0x101, header_bytes, code_bytes, 0, 0, 7, 8, sm, 0, 0, flags)
        entries += entry.ljust(header_bytes, b"\0") + b"\x5a" * code_bytes
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
