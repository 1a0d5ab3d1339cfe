"""Reports of builds side by side; what is no report is told."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole

from edgepack import compared, history
from edgepack.cli import main
from edgepack.errors import UsageError
from edgepack.report import document
from edgepack_runtime.contention import Contention

Write = Callable[..., Path]


def beside(others_cores: float | None) -> dict[str, Any]:
    """What a receipt of ten seconds on two cores tells of others."""
    others_ms = None if others_cores is None else 10_000.0 * others_cores
    return Contention(10_000.0, 9_000.0, None if others_cores is None else 2, others_ms).as_json()


@pytest.fixture
def write(built: Any, tmp_path: Path) -> Write:
    """Writes the report of a build, changed as told."""
    (tmp_path / "dist").mkdir()

    def of(
        version: str, *, value: float = 0.8955, epochs: float = 3.0, cpu: str | None = None, name: str = "",
        test: str = "", metric: str = "accuracy", **latency: Any,
    ) -> Path:  # fmt: skip
        report = document.make(built)
        receipt = report["targets"][0]["receipt"]
        receipt["accuracy"] |= {"value": value, "metric": metric}
        receipt["conditions"]["cpu_model"] = cpu or receipt["conditions"]["cpu_model"]
        receipt["latency"] |= {"contention": beside(0.0), "stable": True, "threads": 1, **latency}
        report["data"]["splits"]["test"]["sha256"] = test or report["data"]["splits"]["test"]["sha256"]
        report["recipe"]["teacher"]["epochs"] = epochs
        report["version"], report["name"] = version, name or report["name"]
        report["tools"] = {"python": "3.11.7"}
        file = tmp_path / "dist" / f"{report['name']}-{version}.report.json"
        file.write_text(document.dumps(report), encoding="utf-8")
        return file

    return of


def test_figures_and_what_changed(write: Write) -> None:
    found = history.read([write("1.2.0"), write("1.3.0", value=0.91, epochs=4.0), write("1.4.0", epochs=4.0)])
    assert [(row.build, row.target, row.verdict) for row in found.rows] == [
        (version, "linux-x86_64-cpu", "fail") for version in ("1.2.0", "1.3.0", "1.4.0")
    ]
    first = found.rows[0]
    assert first.score is not None and (first.score.value, first.score.n) == (0.8955, 794)
    assert (first.p50_ms, first.p95_ms, first.onnx_bytes, first.bundle_bytes) == (1.248, 2.02, 11_429_478, 25_856_000)
    assert [change.values for change in found.changes] == [{"recipe.teacher.epochs": (3.0, 4.0)}, {}]
    assert (found.changes[0].before, found.changes[0].after) == ("1.2.0", "1.3.0")


def test_a_folder_is_read_by_version(write: Write, tmp_path: Path) -> None:
    for version in ("1.10.0", "1.9.0", "1.2.0"):
        write(version)
    assert [row.build for row in history.read([tmp_path / "dist"]).rows] == ["1.2.0", "1.9.0", "1.10.0"]


def test_builds_of_several_names_are_called_by_them(write: Write) -> None:
    found = history.read([write("1.0.0"), write("1.0.0", name="comments")])
    assert [row.build for row in found.rows] == ["hotel-sentiment 1.0.0", "comments 1.0.0"]
    file = write("1.0.0")
    assert [row.build for row in history.read([file, file]).rows] == ["1.0.0 (#1)", "1.0.0 (#2)"]


def test_builds_of_one_version_are_called_by_what_their_paths_differ_in(write: Write, tmp_path: Path) -> None:
    file, places = write("1.0.0"), ("monday/dist", "tuesday/dist")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        shutil.copy(file, tmp_path / place / file.name)
    copies = [tmp_path / place / file.name for place in places]
    shutil.copy(file, tmp_path / "dist" / "other.report.json")
    found = history.read([*copies, write("1.1.0")])
    assert [row.build for row in found.rows] == ["1.0.0 (monday)", "1.0.0 (tuesday)", "1.1.0"]
    found = history.read([file, tmp_path / "dist" / "other.report.json"])
    assert [row.build for row in found.rows] == ["1.0.0 (hotel-sentiment-1.0.0)", "1.0.0 (other)"]
    shutil.copy(file, tmp_path / file.name)  # in the folder above: of its path nothing is left
    assert [row.build for row in history.read([tmp_path / file.name, file]).rows] == ["1.0.0 (#1)", "1.0.0 (dist)"]


@pytest.mark.parametrize("width", [70, 80, 100, 200])
@pytest.mark.parametrize("live", [True, False])
def test_no_figure_and_no_name_is_cut_on_a_terminal(write: Write, tmp_path: Path, width: int, live: bool) -> None:
    file = write("1.2.0")
    (tmp_path / "from-another-machine").mkdir()
    shutil.copy(file, tmp_path / "from-another-machine" / file.name)
    found = history.read([file, tmp_path / "from-another-machine" / file.name])
    out = RichConsole(width=width, force_terminal=live, color_system=None, file=io.StringIO())
    for part in compared.builds(found, live=live, width=width):
        out.print(part)
    told = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in told
    for figure in ("89.5 %", "[87.2, 91.5]", "794", "1.25", "2.02", "10.9", "24.7", "fail", "packed MiB"):
        assert figure in told, figure
    assert told.count("build") == (1 if width == 200 else 2)
    if width == 200:
        assert "1.2.0 (from-another-machine)" in told


def test_the_command_prints_them(write: Write) -> None:
    files = [str(write("1.2.0")), str(write("1.3.0", value=0.91, epochs=4.0, cpu="Cortex-A76"))]
    result = CliRunner().invoke(main, ["report", *files])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert " ".join(lines[1].split()) == "1.2.0 linux-x86_64-cpu fail 89.5 % [87.2, 91.5] 794 1.25 2.02 10.9 24.7"
    assert "times are from different CPUs, and cannot be compared: AMD EPYC 7B13, Cortex-A76" in result.output
    assert lines[-2:] == ["1.2.0 -> 1.3.0", "  recipe.teacher.epochs: 3.0 -> 4.0"]
    told = json.loads(CliRunner().invoke(main, ["report", *files, "--json"]).output)
    assert [row["build"] for row in told["builds"]] == ["1.2.0", "1.3.0"]
    assert told["changes"] == [{"before": "1.2.0", "after": "1.3.0", "values": {"recipe.teacher.epochs": [3.0, 4.0]}}]


def test_times_beside_others_are_marked_wherever_they_are_told(write: Write) -> None:
    files = [
        str(write("1.0.0")),
        str(write("1.1.0", contention=beside(1.34))),
        str(write("1.2.0", stable=False, window_p50_ms=[4.74, 3.61], threads=2)),
        str(write("1.3.0", contention=None)),
        str(write("1.4.0", contention=beside(None))),
    ]
    result = CliRunner().invoke(main, ["report", *files])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    cells = {line.split()[0]: line for line in lines if " linux-x86_64-cpu " in line}
    assert {name: "1.25* 2.02*" in line for name, line in cells.items()} == {
        "1.0.0": False, "1.1.0": True, "1.2.0": True, "1.3.0": True, "1.4.0": True,
    }  # fmt: skip
    (told,) = (line for line in lines if line.startswith("* "))
    assert told == (
        "* times that may be the machine's rather than the model's: "
        "1.1.0: others used 1.34 of 2 cores while it was measured; "
        "1.2.0: unstable, medians of its windows in ms: 4.74 3.61; "
        "1.3.0: its receipt does not tell what else ran; "
        "1.4.0: this device does not tell what else ran while it was measured"
    )
    assert "times are with different numbers of threads: 1.0.0: 1; 1.1.0: 1; 1.2.0: 2; 1.3.0: 1; 1.4.0: 1" in lines

    rows = json.loads(CliRunner().invoke(main, ["report", *files, "--json"]).output)["builds"]
    assert [row["others_cores"] for row in rows] == [0.0, 1.34, 0.0, None, None]
    assert [row["threads"] for row in rows] == [1, 1, 2, 1, 1]
    assert [len(row["doubts"]) for row in rows] == [0, 1, 1, 1, 1]


def test_of_many_doubted_times_some_are_explained(write: Write) -> None:
    files = [str(write(f"1.{number}.0", contention=beside(0.5))) for number in range(8)]
    output = CliRunner().invoke(main, ["report", *files]).output
    assert output.count("others used 0.50 of 2 cores") == 5
    assert "; and 3 more: --json has them all" in output


def test_on_quiet_machines_and_the_same_rows_nothing_is_marked(write: Write) -> None:
    files = [str(write("1.0.0")), str(write("1.1.0", contention=beside(0.02)))]
    result = CliRunner().invoke(main, ["report", *files])
    assert "*" not in result.output


def test_scores_of_other_rows_than_the_build_before_are_marked(write: Write) -> None:
    files = [str(write("1.0.0")), str(write("1.1.0", test="0" * 64)), str(write("1.2.0", test="0" * 64))]
    result = CliRunner().invoke(main, ["report", *files])
    assert [" ** [87.2, 91.5]" in line for line in (" ".join(x.split()) for x in result.output.splitlines()[1:4])] == [
        False, True, False,
    ]  # fmt: skip
    assert "** scores on other test rows than those of the build before: 1.1.0\n" in result.output
    rows = json.loads(CliRunner().invoke(main, ["report", *files, "--json"]).output)["builds"]
    assert [row["same_rows"] for row in rows] == [None, False, True]


def test_scores_of_two_metrics_are_named_as_such(write: Write) -> None:
    same = [str(write("1.0.0")), str(write("1.1.0"))]
    for files, other in ((same, False), ([*same, str(write("1.2.0", metric="macro_f1"))], True)):
        output = CliRunner().invoke(main, ["report", *files]).output
        assert ("scores are of different metrics: accuracy, macro F1" in output) is other


def test_a_report_with_a_verdict_that_is_none_is_told(write: Write) -> None:
    file = write("1.0.0")
    report = json.loads(file.read_text(encoding="utf-8"))
    for place in (report, report["targets"][0]):
        before, place["verdict"] = place["verdict"], ""
        file.write_text(json.dumps(report), encoding="utf-8")
        result = CliRunner().invoke(main, ["report", str(file), str(file)])
        assert result.exit_code == 2, result.output
        assert "verdict: Input should be 'pass', 'fail', 'inconclusive', 'not run here' or 'no gates'" in result.stderr
        place["verdict"] = before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "Invalid JSON"),
        ("[]", "the file:"),
        ('{"report": 1}', "name: Field required"),
        (None, "No such file"),
    ],
)
def test_what_is_no_report_is_told(content: str | None, why: str, tmp_path: Path, write: Write) -> None:
    file = tmp_path / "x.report.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        history.read([write("1.0.0"), file])
    assert "x.report.json" in caught.value.what and why in caught.value.why


def test_one_report_is_nothing_to_compare(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        history.read([write("1.0.0")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no report"):
        history.read([tmp_path / "empty"])


@given(st.recursive(st.none() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_no_json_breaks_it(value: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.report.json")
        file.write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(UsageError):
            history.read([file, file])
