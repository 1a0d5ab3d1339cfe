"""Reports of several builds side by side; a file that is no report is an error."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole
from rich.table import Table
from tests.stubs import STUB, STUB_SHA256
from tests.unit.conftest import combined_of
from tests.unit.forged import FORGED, commands, forge

from edgepack.bundle.archive import write_bundle
from edgepack.cli import main
from edgepack.console import build_tables
from edgepack.errors import UsageError
from edgepack.report import document, model
from edgepack.report.model import to_json
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, Manifest, TargetFacts, dump
from edgepack_runtime.errors import ExitCode

Write = Callable[..., Path]


@pytest.fixture
def write(built: Any, tmp_path: Path) -> Write:
    """Writes the report of a build with the given values."""
    (tmp_path / "dist").mkdir()

    def of(
        version: str, *, value: float = 0.8955, epochs: float = 3.0, cpu: str | None = None, name: str = "",
        metric: str = "accuracy", disturbed: bool | None = False, **latency: Any,
    ) -> Path:  # fmt: skip
        report = json.loads(model.dumps(document.make(built)))
        receipt = report["targets"][0]["receipt"]
        receipt["accuracy"] |= {"value": value, "metric": metric}
        receipt["conditions"]["cpu_model"] = cpu or receipt["conditions"]["cpu_model"]
        receipt["latency"] |= {"contention": {"disturbed": disturbed}, "stable": True, "threads": 1, **latency}
        report["recipe"]["teacher"]["epochs"] = epochs
        report["version"], report["name"] = version, name or report["name"]
        report["tools"] = {"python": "3.11.7"}
        file = tmp_path / "dist" / f"{report['name']}-{version}.report.json"
        file.write_text(json.dumps(report), encoding="utf-8")
        return file

    return of


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_folder_is_read_by_version(write: Write, tmp_path: Path) -> None:
    for version in ("1.10.0", "1.9.0", "1.2.0"):
        write(version)
    found = build_tables.read([tmp_path / "dist"])
    assert [row.build for row in found.builds] == ["1.2.0", "1.9.0", "1.10.0"]
    assert [change.values for change in found.changes] == [{}, {}]


def bundle_of(version: str, folder: Path) -> Path:
    """A bundle without a model."""
    facts = TargetFacts("local", ("x86_64",), "2.5", "host", "CPUExecutionProvider")
    manifest = Manifest("hotel-sentiment", version, 1, "task", facts, {}, {}, (), {}, "0" * 64, STUB_SHA256, (), ())
    file = folder / f"any-name-{version}.edgepack"
    write_bundle({MANIFEST_NAME: dump(manifest)}, file, STUB)
    return file


def test_a_bundle_stands_for_the_report_beside_it(write: Write, tmp_path: Path) -> None:
    bundles = [bundle_of(version, tmp_path / "dist") for version in ("1.2.0", "1.10.0")]
    alone = run(*bundles)
    assert alone.exit_code == ExitCode.USAGE
    assert "hotel-sentiment-1.2.0.report.json" in alone.output
    assert "edgepack diff" in alone.output
    for version, bundle in zip(("1.2.0", "1.10.0"), bundles, strict=True):
        file = write(version)
        report = json.loads(file.read_bytes())
        with Archive(bundle) as archive:
            digest = hashlib.sha256(archive.read(MANIFEST_NAME, 1 << 20)).hexdigest()
        report["targets"][0]["bundle"]["manifest_sha256"] = digest
        file.write_text(json.dumps(report), encoding="utf-8")
    assert [row.build for row in build_tables.read(bundles[::-1]).builds] == ["1.10.0", "1.2.0"]
    named = tmp_path / "dist" / "hotel-sentiment-1.2.0-local.report.json"
    shutil.move(tmp_path / "dist" / "hotel-sentiment-1.2.0.report.json", named)
    write("1.2.0")  # of another target
    assert [row.build for row in build_tables.read(bundles).builds] == ["1.2.0", "1.10.0"]
    assert [row.build[:6] for row in build_tables.read([tmp_path / "dist"]).builds] == ["1.2.0 ", "1.2.0 ", "1.10.0"]
    named.unlink()
    other = run(*bundles)
    assert other.exit_code == ExitCode.USAGE
    assert "is not the report of" in other.output


def test_a_refused_bundle_in_the_workspace_has_its_report_in_dist(write: Write, tmp_path: Path) -> None:
    kept = tmp_path / ".edgepack" / "bundle" / ("0" * 64)
    kept.mkdir(parents=True)
    bundle = bundle_of("1.2.0", kept)
    assert run(bundle).exit_code == ExitCode.USAGE
    file = write("1.2.0")
    report = json.loads(file.read_bytes())
    with Archive(bundle) as archive:
        digest = hashlib.sha256(archive.read(MANIFEST_NAME, 1 << 20)).hexdigest()
    report["targets"][0]["bundle"]["manifest_sha256"] = digest
    file.write_text(json.dumps(report), encoding="utf-8")
    assert [row.build for row in build_tables.read([bundle]).builds] == ["1.2.0"]


def test_names_of_builds_differ(write: Write, tmp_path: Path) -> None:
    found = build_tables.read([write("1.0.0"), write("1.0.0", name="comments")])
    assert [row.build for row in found.builds] == ["hotel-sentiment 1.0.0", "comments 1.0.0"]
    file, copy = write("1.0.0"), tmp_path / "other.report.json"
    shutil.copy(file, copy)
    found = build_tables.read([file, copy, write("1.1.0")])
    assert [row.build for row in found.builds] == [f"1.0.0 ({file})", f"1.0.0 ({copy})", "1.1.0"]


@pytest.mark.parametrize("width", [50, 80, 100, 200])
@pytest.mark.parametrize("live", [True, False])
def test_no_figure_is_cut_on_a_terminal(write: Write, width: int, live: bool) -> None:
    found = build_tables.read([write("1.2.0"), write("1.3.0", disturbed=True)])
    out = RichConsole(width=width, force_terminal=live, color_system=None, file=io.StringIO())
    for part in build_tables.tables(found, live=live, width=width):
        out.print(part)
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in printed
    figures = ("1.2.0", "89.5 % [87.2, 91.5]", "794", "1.25", "2.02", "1.25*", "10.9", "24.7", "fail", "packed MiB")
    assert [figure for figure in figures if figure not in printed] == []


def test_the_command_prints_a_table_and_the_changes(write: Write) -> None:
    files = write("1.2.0"), write("1.3.0", value=0.91, epochs=4.0)
    result = run(*files)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert " ".join(lines[1].split()) == "1.2.0 local fail 89.5 % [87.2, 91.5] 794 1.30 1.25 2.02 10.9 24.7"
    assert lines[3:] == ["1.2.0 -> 1.3.0", "  recipe.teacher.epochs: 3.0 -> 4.0"]
    as_json = json.loads(run(*files, "--json").output)
    assert [row["build"] for row in as_json["builds"]] == ["1.2.0", "1.3.0"]
    first = as_json["builds"][0]
    assert (first["metric"], first["score"], round(first["model_mib"], 1)) == ("accuracy", 0.8955, 10.9)
    assert as_json["changes"] == [
        {"before": "1.2.0", "after": "1.3.0", "values": {"recipe.teacher.epochs": [3.0, 4.0]}}
    ]


def test_the_weights_are_those_of_all_models_that_ship(write: Write, built: Any) -> None:
    file = write("1.2.0")
    report = json.loads(file.read_text(encoding="utf-8"))
    combined = to_json(document.make(combined_of(built)))["combined"]
    for chosen, shown in (("cascade", "11.1"), ("linear", "0.2")):
        file.write_text(json.dumps({**report, "combined": {**combined, "chosen": chosen}}), encoding="utf-8")
        assert run(file, write("1.3.0")).output.splitlines()[1].split()[-2] == shown


def test_other_data_are_a_change_and_another_verdict_is_an_error(write: Write) -> None:
    before, after = write("1.0.0"), write("1.1.0")
    report = json.loads(after.read_text(encoding="utf-8"))
    report["data"]["splits"]["test"]["sha256"] = "0" * 64
    after.write_text(json.dumps(report), encoding="utf-8")
    assert f"  data.test.sha256: {'0' * 64} -> " in run(after, before).output
    report["targets"][0]["verdict"] = ""
    after.write_text(json.dumps(report), encoding="utf-8")
    result = run(after, before)
    assert result.exit_code == 2, result.output
    assert "`targets[0].verdict` is ''" in result.stderr


@pytest.mark.parametrize(
    ("latency", "disturbed"),
    [
        ({"disturbed": False}, False),
        ({"disturbed": True}, True),
        ({"disturbed": None}, True),
        ({"contention": None}, True),
        ({"stable": False}, True),
    ],
)
def test_times_of_a_busy_machine_are_marked(write: Write, latency: dict[str, Any], disturbed: bool) -> None:
    output = run(write("1.0.0"), write("1.1.0", **latency)).output
    assert ("1.25*" in output, "* other processes may have disturbed" in output) == (disturbed, disturbed)
    assert "1.25 " in output


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"cpu": "Cortex-A76"}, "times are from different CPUs and cannot be compared: AMD EPYC 7B13, Cortex-A76"),
        ({"threads": 2}, "times are with different numbers of threads and cannot be compared: 1, 2"),
        ({"metric": "macro_f1"}, "scores are in different metrics and cannot be compared: accuracy, macro F1"),
        ({}, ""),
    ],
)
def test_figures_that_cannot_be_compared(write: Write, values: dict[str, Any], warning: str) -> None:
    output = run(write("1.0.0"), write("1.1.0", **values)).output
    assert warning in output
    assert ("cannot be compared" in output) is bool(values)


@pytest.mark.parametrize(
    ("content", "why"),
    [("{", "Expecting"), ("[]", "the document is"), ('{"report": 1}', "`name` is missing"), (None, "No such file")],
)
def test_a_file_that_is_no_report(content: str | None, why: str, tmp_path: Path, write: Write) -> None:
    file = tmp_path / "x.report.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        build_tables.read([write("1.0.0"), file])
    assert "x.report.json" in caught.value.what and why in caught.value.why


@pytest.mark.parametrize("kind", ["named pipe", "device"])
def test_a_folder_of_reports_cannot_hold_a_reader_up(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.report.json"
    if kind == "device":
        file.symlink_to("/dev/zero")
    else:
        os.mkfifo(file)
    with pytest.raises(UsageError) as caught:
        build_tables.read([tmp_path])
    assert caught.value.why == "it is not a regular file"


@pytest.mark.parametrize("key", ["bundle_bytes", "onnx_bytes", "n", "threads"])
def test_a_number_that_nothing_has_is_refused(key: str, write: Write) -> None:
    file = write("1.0.0")
    text, many = re.subn(rf'"({key}": (?:{{\s*"[^"]*": )?)\d+', rf'"\g<1>{"9" * 400}', file.read_text(encoding="utf-8"))
    assert many
    file.write_text(text, encoding="utf-8")
    result = run(file, write("1.1.0"))
    assert result.exit_code == 2, result.output
    assert "is not a report of a build" in result.stderr and "` is 99999" in result.stderr


@pytest.mark.parametrize("text", FORGED)
def test_nothing_in_reports_is_a_command_to_ci(text: str, write: Write) -> None:
    files = []
    for number in (1, 2):
        report = json.loads((file := write(f"1.{number}.0")).read_text(encoding="utf-8"))
        report["recipe"]["teacher"]["epochs"] = number
        report = forge(report, f"{text}{number}", keep=("verdict", "metric", "unit", "inconclusive"))
        file.write_text(json.dumps(report), encoding="utf-8")
        files.append(file)
    for options in ([], ["--json"]):
        result = run(*files, *options)
        assert result.exit_code == 0, result.output
        assert result.output.count("forged") > 4
        assert commands(result.output) == []


def test_one_report_is_a_table_of_one_build(write: Write, tmp_path: Path) -> None:
    found = build_tables.read([write("1.0.0")])
    assert (len({row.build for row in found.builds}), found.changes) == (1, ())
    assert list(build_tables.tables(found, live=False, width=100))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no report"):
        build_tables.read([tmp_path / "empty"])


@given(st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_other_json_is_an_error(value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.report.json")
        file.write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(UsageError):
            build_tables.read([file, file])


def test_differences_of_two_bundles_are_drawn_with_their_units() -> None:
    values = {
        "ledger.on local.accuracy": [0.467, 0.972],
        "ledger.on local.model_mib": [18.5, 4.8],
        "bundle_bytes": [36700160, 18350080],
        "version": ["1.0.0", "1.1.0"],
        "ledger.INT8 ONNX.accuracy": [None, 0.9],
    }
    table, last = build_tables.comparison({"values": values, "files": {}}, live=False)
    assert isinstance(table, Table)
    assert str(last).endswith("reports must lie beside the bundles.")
    rows = list(zip(*(list(column.cells) for column in table.columns), strict=True))
    assert rows == [
        ("ledger.on local.accuracy", "46.7 %", "97.2 %", "+50.5 points"),
        ("ledger.on local.model_mib", "18.5", "4.8", "0.26 x"),
        ("bundle_bytes", "35.0 MiB", "17.5 MiB", "0.50 x"),
        ("version", "1.0.0", "1.1.0", ""),
        ("ledger.INT8 ONNX.accuracy", "-", "90.0 %", ""),
    ]
