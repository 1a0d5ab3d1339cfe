"""What bundles tell of themselves, and of each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs import STUB, STUB_SHA256
from tests.unit.forged import FORGED, commands

from edgepack import cli
from edgepack.artifacts import LedgerRow, proportion
from edgepack.bundle import bundled_interpreters
from edgepack.bundle.archive import write_bundle
from edgepack.bundle.inspect import compare, inspect
from edgepack.console import build_tables
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import FileEntry, Interpreter, Manifest, TargetFacts, dump, parse
from edgepack_runtime.errors import ExitCode

CONTENT = {
    "__main__.py": b"print()\n",
    "model/model.onnx": b"\x12\xb5\x17" + b"m" * 2997,
    "model/model.json": json.dumps({"labels": ["好", "差"], "max_length": 32}).encode(),
    "site/numpy/core.so": b"n" * 2000,
    "site/numpy.libs/blas.so": b"b" * 1000,
    "site/numpy-2.0.dist-info/METADATA": b"x" * 10,
    "site/tokenizers/lib.so": b"t" * 500,
    "golden/rows.jsonl": b"{}\n",
}


def entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name, len(data), hashlib.sha256(data).hexdigest())


def bundle(
    path: Path, *, accuracy: int = 18, metric: str = "accuracy", version: str = "1.2.0",
    facts: Mapping[str, Any] = {}, **changed: bytes | None,
) -> Path:  # fmt: skip
    """A bundle of CONTENT, with other `facts` in its manifest.

    `changed` replaces members (`model__model_onnx` for model/model.onnx) or takes them away.
    """
    names = {name.replace("/", "__").replace(".", "_"): name for name in CONTENT}
    content = CONTENT | {names.get(key, key): value for key, value in changed.items()}
    files = {name: value for name, value in content.items() if value is not None}
    score = replace(proportion(accuracy, 20), metric=metric)
    manifest = Manifest(
        name="hotel",
        version=version,
        sequence=1_002_000,
        task="text-classification",
        target=TargetFacts("local", ("x86_64",), "2.28", "host", "CPUExecutionProvider"),
        model={"precision": "int8"},
        gates={"accuracy": {"min": 0.8, "max_drop_points": None}, "latency": None},
        ledger=(asdict(LedgerRow("INT8 ONNX", score, 2.5, parity=0.03)),),
        tools={"numpy": "2.0"},
        recipe_sha256="0" * 64,
        stub_sha256=STUB_SHA256,
        interpreters=(),
        files=tuple(entry(name, data) for name, data in sorted(files.items())),
    )
    write_bundle({**files, "manifest.json": dump(replace(manifest, **facts))}, path, STUB)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def test_the_parts_add_up(tmp_path: Path) -> None:
    path = bundle(tmp_path / "a.edgepack")
    found = inspect(path)
    assert sum(part["packed"] for part in found["parts"].values()) == found["bundle_bytes"] == path.stat().st_size
    assert sum(part["unpacked"] for part in found["parts"].values()) == found["unpacked_bytes"]
    assert found["parts"]["golden"]["unpacked"] == 3
    assert found["packages"] == {"numpy": 3000, "tokenizers": 500}


def test_of_a_bundle_for_two_machines_the_one_that_takes_more_counts(tmp_path: Path) -> None:
    content = {name: data for name, data in CONTENT.items() if not name.startswith("site/")}
    content |= {"aarch64/site/onnxruntime/a.so": b"a" * 900, "x86_64/site/onnxruntime/a.so": b"x" * 1000}
    carried = {"aarch64/python/bin/python3": b"p" * 50, "x86_64/python/bin/python3": b"q" * 30}
    archives, packed = {}, []
    for machine, (name, data) in zip(("aarch64", "x86_64"), carried.items(), strict=True):
        (tmp_path / machine).write_bytes(data)
        raw = bundled_interpreters.pack([(entry(name, data), tmp_path / machine)], f"{machine}/python/")
        packed.append(Interpreter(machine, "3.11.2", len(raw), hashlib.sha256(raw).hexdigest()))
        archives[packed[-1].member] = raw
    with Archive(bundle(tmp_path / "a.edgepack")) as archive:
        manifest = parse(archive.read("manifest.json", 10**6))
    files = tuple(entry(name, data) for name, data in sorted({**content, **carried}.items()))
    target = TargetFacts("linux", ("aarch64", "x86_64"), "2.36", "bundled", "CPUExecutionProvider")
    manifest = replace(manifest, target=target, interpreters=tuple(packed), files=files)
    path = tmp_path / "b.edgepack"
    write_bundle({**content, **archives, "manifest.json": dump(manifest)}, path, STUB)
    found = inspect(path)
    assert found["parts"]["interpreter"] == {"packed": sum(map(len, archives.values())), "unpacked": 30}
    assert found["parts"]["site"]["unpacked"] == 1000
    assert found["packages"] == {"onnxruntime": 1000}
    assert sum(part["unpacked"] for part in found["parts"].values()) == found["unpacked_bytes"]
    shown = run("inspect", path).stdout
    assert "Linux on aarch64 or x86_64 (Python and a C library are carried), CPUExecutionProvider" in shown


def test_limits_within_limits_are_shown_and_open_ones_are_not() -> None:
    asked = {
        "p50_ms": None,
        "threads": 1,
        "by_length": [{"max_tokens": 32, "p50_ms": None, "p95_ms": 3.0}, {"max_tokens": 64, "p95_ms": 5.0}],
        "sustained": {"seconds": 60.0, "max_slowdown_percent": 15.0},
    }
    assert build_tables._limits(asked) == (
        "threads 1, by_length (max_tokens 32, p95_ms 3.0), by_length (max_tokens 64, p95_ms 5.0), "
        "sustained (seconds 60.0, max_slowdown_percent 15.0)"
    )


def test_inspect_shows_model_target_gates_and_ledger(tmp_path: Path) -> None:
    result = run("inspect", bundle(tmp_path / "a.edgepack"))
    assert result.exit_code == 0, result.output
    for words in (
        "hotel 1.2.0 for local (1.2.0-", "2 labels: 好, 差", "int8, cuts texts to 32 tokens",
        "Linux on x86_64, glibc 2.28 or newer, Python 3.8 or newer", "numpy 2.0", "min 0.8\n",
        "INT8 ONNX  90.0 %    2.5  3.0e-02",
    ):  # fmt: skip
        assert words in result.stdout, words
    assert "max_drop_points" not in result.stdout  # not limited
    assert "latency" not in result.stdout
    assert json.loads(run("inspect", tmp_path / "a.edgepack", "--json").stdout)["sequence"] == 1_002_000
    shown = run("inspect", bundle(tmp_path / "b.edgepack", metric="entity_f1")).stdout
    assert "stage      entity F1  MiB" in shown and "accuracy  MiB" not in shown


def test_a_damaged_bundle_is_not_inspected(tmp_path: Path) -> None:
    path = bundle(tmp_path / "a.edgepack")
    path.write_bytes(path.read_bytes()[:-1])
    for command in (["inspect", path], ["diff", path, path]):
        assert run(*command).exit_code == ExitCode.BUNDLE_INVALID


def test_a_difference_is_shown_by_value_and_by_file(tmp_path: Path) -> None:
    one, same = bundle(tmp_path / "a.edgepack"), bundle(tmp_path / "same.edgepack")
    assert compare(inspect(one), inspect(same)) == {"values": {}, "files": {}}
    assert run("diff", one, same).stdout == "the two bundles hold the same\n"
    two = bundle(
        tmp_path / "b.edgepack", version="1.3.0", accuracy=17,
        model__model_onnx=b"\x12\x9d\x1f" + b"M" * 3997, golden__rows_jsonl=None, LICENSE=b"free",
    )  # fmt: skip
    found = compare(inspect(one), inspect(two))
    assert found["values"]["version"] == ["1.2.0", "1.3.0"]
    assert found["values"]["ledger.INT8 ONNX.accuracy"] == [0.9, 0.85]
    assert found["values"]["parts.model.unpacked"][1] - found["values"]["parts.model.unpacked"][0] == 1000
    assert "tools.numpy" not in found["values"]
    assert found["files"] == {
        "model": {"changed": ["model/model.onnx"]},
        "golden": {"went": ["golden/rows.jsonl"]},
        "other": {"came": ["LICENSE"]},
    }
    shown = run("diff", one, two).stdout
    assert "files of model: 1 changed (model/model.onnx)" in shown
    assert "parts.model.unpacked" not in shown  # 0.0 MiB more


def test_what_ships_is_compared_with_scores_that_one_side_lacks(tmp_path: Path) -> None:
    config = json.dumps({"labels": ["好", "差"], "max_length": 32, "linear": {"mode": "cascade"}}).encode()
    row = LedgerRow("cascade", proportion(19, 20), 2.6)
    one = bundle(tmp_path / "a.edgepack")
    two = bundle(tmp_path / "b.edgepack", model__model_json=config, facts={"ledger": (asdict(row),)})
    assert compare(inspect(one), inspect(two))["values"]["ships"] == ["encoder", "cascade"]
    lines = [line.split() for line in run("diff", one, two).stdout.splitlines()]
    assert ["ships", "encoder", "cascade"] in lines
    assert ["ledger.cascade.accuracy", "-", "95.0", "%"] in lines


@pytest.mark.parametrize("text", [*FORGED, "\x1b[8m\x9b8m\x7f\u202e forged"])
def test_nothing_in_a_bundle_acts_on_a_terminal_or_on_ci(tmp_path: Path, text: str) -> None:
    score = proportion(18, 20)
    rows = [LedgerRow(text, replace(score, metric=metric), 2.5, note=text) for metric in (text, "accuracy")]
    facts = {"model": {"precision": text}, "gates": {text: {text: text}}, "ledger": tuple(map(asdict, rows))}
    config = json.dumps({"labels": [text], "max_length": 32}).encode()
    one = bundle(tmp_path / "a.edgepack", facts=facts, model__model_json=config)
    for command in (["inspect", one], ["diff", one, bundle(tmp_path / "b.edgepack")]):
        for options in ([], ["--json"]):
            result = run(*command, *options)
            assert result.exit_code == 0, result.output
            assert "forged" in result.stdout or command[0] == "diff"  # which cuts it
            assert commands(result.stdout) == []
            assert re.search(r"[\0-\t\v-\x1f\x7f-\x9f\u202e]", result.stdout) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["stage", "score", "note", "precision", "latency", "odd"]), VALUES)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["ledger", "gates", "model", "tools", "labels"]), st.lists(OBJECTS, max_size=3), VALUES)
def test_odd_facts_are_shown_or_are_one_error(
    tmp_path_factory: pytest.TempPathFactory, field: str, rows: list[dict[str, Any]], value: Any
) -> None:
    path = tmp_path_factory.mktemp("odd") / "odd.edgepack"
    if field == "labels":
        bundle(path, model__model_json=json.dumps(value).encode())
    else:
        bundle(path, facts={field: tuple(rows) if field == "ledger" else dict(*rows[:1])})
    done = run("inspect", path)
    assert done.exit_code in (ExitCode.OK, ExitCode.BUNDLE_INVALID), done.output
    assert "Traceback" not in done.output


def test_what_a_ledger_leaves_out_and_files_of_odd_names_are_shown(tmp_path: Path) -> None:
    row = {"stage": "INT8 ONNX", "score": asdict(proportion(18, 20)), "model_mib": 2.5}
    found = inspect(bundle(tmp_path / "a.edgepack", facts={"ledger": (row,)}, x86_64=b"a file, no folder"))
    assert (found["ledger"][0]["note"], found["ledger"][0]["parity"]) == ("", None)
    assert found["parts"]["other"]["unpacked"] >= 17
    assert run("inspect", tmp_path / "a.edgepack").exit_code == ExitCode.OK
