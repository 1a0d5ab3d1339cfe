"""What a person sees: on a terminal, in a log, in quiet, and where the encoding holds no Chinese."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rich.console
from rich.cells import cell_len
from tests.golden import assert_golden
from tests.unit.forged import FORGED, commands, forge

from edgepack.artifacts import BundleArtifact, Checks, ContentCheck, LedgerRow, Score, SelectArtifact
from edgepack.console import build_tables, gate_tables
from edgepack.console.console import PLAIN_SECONDS, WIDTH, Console
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError
from edgepack.messages import local, message
from edgepack.recipe.findings import Finding
from edgepack.results import Build, NotRunHere
from edgepack_runtime.schema.gates import ABOVE_MAJORITY

Ledger = tuple[LedgerRow, ...]
Everything = Callable[["Screen"], None]
GOLDEN = Path(__file__).parents[1] / "golden" / "console.txt"
GOLDEN_LEDGER = Path(__file__).parents[1] / "golden" / "ledger.txt"
FINDINGS = [
    Finding("error", Path("recipe.yaml"), 3, "unknown key `epoch` in `teacher`", "did you mean `epochs`?"),
    Finding("warning", Path("train.tsv"), None, "12 more: repeated rows", "remove one of the two"),
]


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """A console with streams to look at."""

    def __init__(self, *, quiet: bool = False, terminal: bool = False) -> None:
        kind = Terminal if terminal else io.StringIO
        self.out, self.err, self.clock = kind(), kind(), Clock()
        self.console = Console(quiet=quiet, stdout=self.out, stderr=self.err, clock=self.clock)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs the tests, its terminal's settings stay out of them."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def everything(ledger: Ledger, receipt: dict[str, Any]) -> Everything:
    """Calls each method once, as a build would."""
    return lambda screen: call_everything(screen, ledger, receipt)


def call_everything(screen: Screen, ledger: Ledger, receipt: dict[str, Any]) -> None:
    console = screen.console
    console.stage("data", 1, 3, cached=True)
    console.stage("student", 2, 3, cached=False, why="train: 30 rows more\x1b[2J")
    console.line("device: cpu, 2 threads\nthe choice is recorded")
    with console.task("train [1/3]", 40) as task:
        for step in range(40):
            screen.clock.now += 1
            task.advance(note=f"loss {1 / (step + 1):.3f}")
    console.stage_done("student", 75.4)
    console.findings(FINDINGS)
    console.error(EnvironmentUnfitError("no card\x1b[2J", why="first\nsecond", fix="use `device: cpu`"))
    console.ledger(ledger)
    console.gate(receipt)
    console.closing(["wrote dist/a.edgepack", '  predict "服务很好"'])


def lines(stream: io.StringIO) -> list[str]:
    return [line.rstrip() for line in stream.getvalue().split("\n")]


def test_a_log_is_the_golden_file(everything: Everything) -> None:
    screen = Screen()
    everything(screen)
    found = "\n".join(["== stderr", *lines(screen.err), "== stdout", *lines(screen.out)])
    assert_golden(found, GOLDEN)
    assert max(len(line) for line in lines(screen.out)) <= WIDTH


@pytest.mark.parametrize("columns", [80, 90])
def test_a_log_has_the_columns_that_were_asked_for(
    columns: int, monkeypatch: pytest.MonkeyPatch, everything: Everything, receipt: dict[str, Any]
) -> None:
    """Lines go on between words, below their beginning; a table keeps its rows."""
    receipt["conditions"]["cpu_model"] = "AMD EPYC 7B13 with a name that is longer than the names of most processors"
    wide, screen = Screen(), Screen()
    everything(wide)
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen()
    everything(screen)
    screen.console.line("/a/path/" + "without/a/place/to/break/" * 6)
    *told, path = [line for stream in (screen.out, screen.err) for line in lines(stream) if line]
    assert max(map(len, told)) <= columns < len(path)
    assert not any("…" in line for line in told)
    words = {word.strip(":") for stream in (wide.out, wide.err) for word in stream.getvalue().split()}
    parts = {part for check in receipt["checks"] for part in joined_parts(check["gate"])}
    assert {word.strip(":") for line in told for word in line.split()} <= words | parts
    assert len([line for line in told if line.startswith("  ")]) > 4
    assert len(told) <= 2 * len([line for stream in (wide.out, wide.err) for line in lines(stream) if line])


def test_quiet_leaves_results_and_errors(everything: Everything) -> None:
    loud, quiet = Screen(), Screen(quiet=True)
    everything(loud)
    everything(quiet)
    assert quiet.out.getvalue() == loud.out.getvalue()
    assert lines(quiet.err) == [
        "recipe.yaml:3: error: unknown key `epoch` in `teacher`",
        "    fix: did you mean `epochs`?",
        "error: no card\\u001b[2J",
        "  why: first",
        "       second",
        "  fix: use `device: cpu`",
        "",
    ]


def test_lines_of_a_task_are_few() -> None:
    screen = Screen()
    with screen.console.task("train", 100_000) as task:
        for _ in range(100_000):
            screen.clock.now += 0.001
            task.advance()
    assert len(lines(screen.err)) - 1 == 100 / PLAIN_SECONDS
    assert lines(screen.err)[0] == "      train: 10000/100000 (10%), 1000.0/s, 1 min 30 s left"


def test_what_was_done_before_is_no_speed_of_today() -> None:
    screen = Screen()
    with screen.console.task("train", 100, 60) as task:
        for _ in range(40):
            screen.clock.now += 0.5
            task.advance()
    assert lines(screen.err)[:2] == [
        "      train: 80/100 (80%), 2.0/s, 10.0 s left",
        "      train: 100/100 in 20.0 s (2.0/s)",
    ]


def test_a_task_that_failed_is_not_called_done() -> None:
    screen = Screen()
    with pytest.raises(RuntimeError), screen.console.task("train", 3) as task:
        task.advance()
        raise RuntimeError
    assert screen.err.getvalue() == ""


def test_a_terminal_shows_bars_with_rate_and_time_left_and_clears_them() -> None:
    screen = Screen(terminal=True)
    with screen.console.task("outer", 4) as outer, screen.console.task("inner [b]", 2) as inner:
        inner.advance(2, note="file.onnx")
        outer.advance()
        screen.console.line("a line above")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.err.getvalue())
    for word in ("outer", "inner [b]", "2/2", "file.onnx", "a line above", "━", "outer: 1/4 in 0.0 s"):
        assert word in shown
    assert screen.err.getvalue().count("\x1b[?25l") == screen.err.getvalue().count("\x1b[?25h") == 1  # cursor
    with pytest.raises(RuntimeError), screen.console.task("broken", 4):
        raise RuntimeError
    assert screen.err.getvalue().count("\x1b[?25h") == 2


def test_a_terminal_without_colour_gets_none(monkeypatch: pytest.MonkeyPatch, receipt: dict[str, Any]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(terminal=True)
    screen.console.gate(receipt)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", screen.out.getvalue())


def printed(parts: Iterable[Any], columns: int) -> str:
    """As a terminal of so many columns shows them."""
    stream = io.StringIO()
    screen = rich.console.Console(file=stream, width=columns, color_system=None)
    for part in parts:
        screen.print(part)
    return stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("columns", [*range(50, 91), 100, 200])
def test_no_figure_of_the_ledger_is_cut(columns: int, terminal: bool, ledger: Ledger) -> None:
    text = printed(build_tables.ledger(ledger, live=terminal, width=columns), columns)
    for figure in ("91.2 % [89.0, 93.1]", "110.4", "5.22", "7.1e-02"):
        assert figure in text
    assert "…" not in text
    assert max(map(len, text.partition("accuracy with its interval")[0].splitlines())) <= columns


def test_of_a_ledger_that_does_not_fit_each_stage_has_lines_of_its_own(ledger: Ledger) -> None:
    told = [str(part) for part in build_tables.ledger(ledger, live=True, width=60)]
    assert told[:3] == ["teacher", "  accuracy 91.2 % [89.0, 93.1]", "  MiB 110.4"]  # and no times, which it has not
    assert told[3] == "student"


def with_long_stages(ledger: Ledger) -> Ledger:
    """As of a build of a token classifier, with stages of long names."""
    *first, float_onnx, small, last = (replace(row, score=replace(row.score, metric="entity_f1")) for row in ledger)
    note = "ptq hist, 0.12 points below float on 794 dev rows; float: layer 0 feed-forward in; 3 of 64 answers differ"
    small = replace(small, note=note)
    others = [replace(row, stage=f"{row.stage} (jetpack6)", parity_with="float ONNX") for row in (float_onnx, small)]
    return (*first, float_onnx, small, *others, last)


def test_notes_without_room_beside_the_figures_stand_below_them_as_in_the_golden_file(ledger: Ledger) -> None:
    screen = Screen()
    screen.console.ledger(with_long_stages(ledger))
    assert_golden("\n".join(lines(screen.out)), GOLDEN_LEDGER)


def test_a_row_names_what_it_has_another_of_than_the_row_before(ledger: Ledger) -> None:
    """Test rows, and what its parity is to."""
    screen = Screen()
    screen.console.ledger([LedgerRow(stage, Score(0.9, 0.8, 0.95, n, 0.95)) for stage, n in (("a", 100), ("b", 50))])
    assert "90.0 % [80.0, 95.0] 95 %, n=50" in screen.out.getvalue()
    first, last = replace(ledger[0], note="float", seconds=None), ledger[-1]
    moved = LedgerRow("c", last.score, parity=0.5, parity_with="teacher")
    screen.console.ledger([first, replace(last, stage="b"), moved])
    assert "5.0e-01 (to teacher)" in screen.out.getvalue()
    screen.console.ledger(
        [first, replace(last, stage="on linux-x86_64-cuda12"), moved]
    )  # wider than leaves room for notes
    assert "\nc: parity to teacher\n" in screen.out.getvalue()


def test_notes_wrap_beside_the_figures_in_30_columns_or_more(ledger: Ledger) -> None:
    wraps = set()
    for columns in range(70, 161):
        text = printed(build_tables.ledger(ledger, live=False, width=columns), columns)
        head, *table = text.partition("accuracy with its interval")[0].splitlines()
        if head.rstrip().endswith("note"):
            wraps.add(len(table) > len(ledger))
            assert len(table) == len(ledger) or columns - head.index("note") >= 30
    assert wraps == {True, False}


def test_a_note_that_would_take_many_lines_stands_below(ledger: Ledger) -> None:
    screen = Screen()
    note = "layer 0 feed-forward in, " * 10
    screen.console.ledger([replace(ledger[0], note=note), *ledger[1:]])
    head, first, *_ = lines(screen.out)
    assert head.endswith("parity") and first.endswith("-")
    assert f"teacher: {note}, 5 min 50 s" in lines(screen.out)


@pytest.mark.parametrize("columns", [80, 100])
def test_a_row_of_a_terminal_takes_few_lines(columns: int, monkeypatch: pytest.MonkeyPatch, ledger: Ledger) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    screen, rows = Screen(terminal=True), with_long_stages(ledger)
    screen.console.ledger(rows)
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines(screen.out)]
    table = shown[: 2 + len(rows)]  # with the rule below the head
    assert [line[: len(row.stage)] for line, row in zip(table[2:], rows, strict=True)] == [row.stage for row in rows]
    assert not any("…" in line for line in table) and max(map(len, table)) <= columns
    assert "INT8 ONNX (jetpack6): parity to float ONNX; ptq hist" in "\n".join(shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_what_the_encoding_lacks_is_escaped(encoding: str, ledger: Ledger) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(stdout=stream, stderr=stream)
    console.closing(["服务 😀 \ud83d"])
    console.ledger(ledger)
    console.findings([Finding("error", Path("酒店.tsv"), 1, "标签", "改")])
    stream.flush()
    shown = raw.getvalue().decode(encoding)
    assert "\\U0001f600" in shown
    assert ("服务" in shown) == (encoding == "gbk")
    assert "teacher" in shown


def test_text_is_never_markup_and_never_controls_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    screen = Screen(terminal=True)
    screen.console.line("[bold]a[/bold] \x1b]0;title\x07 \u202eabc :smile:")
    assert "[bold]a[/bold] \\u001b]0;title\\u0007 \\u202eabc :smile:" in screen.err.getvalue()
    row = LedgerRow("[red]a[/red]", Score(0.9, 0.8, 0.95, 100, 0.95), note="[b]n[/b]\x1b[2J")
    screen.console.ledger([row])
    assert "[red]a[/red]" in screen.out.getvalue()
    assert "[b]n[/b]\\u001b[2J" in screen.out.getvalue()


def test_an_error_with_findings_shows_them_in_place_of_the_cause() -> None:
    screen = Screen()
    error = RecipeInvalidError("the recipe r.yaml has 1 error", why="unknown key", fix="fix it", findings=FINDINGS[:1])
    screen.console.error(error)
    assert lines(screen.err) == [
        "recipe.yaml:3: error: unknown key `epoch` in `teacher`",
        "    fix: did you mean `epochs`?",
        "error: the recipe r.yaml has 1 error",
        "  fix: fix it",
        "",
    ]


def test_verbose_adds_the_traceback_of_the_cause() -> None:
    screen = Screen()
    try:
        try:
            os.environ["NO_SUCH_VARIABLE"]
        except KeyError as cause:
            raise EnvironmentUnfitError("no such thing") from cause
    except EnvironmentUnfitError as error:
        screen.console.error(error, verbose=True)
    assert "KeyError: 'NO_SUCH_VARIABLE'" in screen.err.getvalue()
    assert "Traceback" in screen.err.getvalue()


def test_candidates_are_shown_with_what_decided(selection: SelectArtifact) -> None:
    screen = Screen()
    screen.console.selection(selection)
    head, nano, missed, cut, chosen, *_ = lines(screen.out)
    assert head.split("  ")[0] == "dev accuracy"
    assert re.fullmatch(r"90\.0 % \[87\.8, 91\.9\] +1\.21 +10\.9 +int8 +model=\./nano, hidden=false; misses", nano)
    assert missed.strip() == "latency.p95_ms (1.931 > 1.9)"
    assert re.fullmatch(r"90\.4 % \[88\.2, 92\.3\] +1\.10 +19\.2 +int8 +yes +model=\{from: teacher, layers: 4\}", cut)
    assert chosen.startswith("chosen: model={from: teacher, layers: 4}: the only one of 2 that misses no gate")
    assert "the test rows had no say in the choice. Intervals: 95 %, n=794." in screen.out.getvalue()


def test_a_gate_that_was_not_run_here_has_what_to_type_and_what_install_does() -> None:
    for ungated, install in (
        (False, "(install gates it there too)"),
        (True, "(the recipe sets no gates: it measures, and gates nothing, as install does)"),
    ):
        screen, reason = Screen(), NotRunHere("it is for aarch64", "type this")
        screen.console.not_run("b.edgepack", "linux-aarch64", reason, ungated=ungated)
        assert lines(screen.out) == [
            "gate of b.edgepack for linux-aarch64: NOT RUN HERE", "  it is for aarch64",
            f"  on the device: type this  {install}", "",
        ]  # fmt: skip


def test_lines_are_not_broken_in_a_log() -> None:
    screen = Screen()
    long = Path("/".join(["folder"] * 40) + "/train.tsv")
    screen.console.findings([Finding("error", long, 12, "reason " * 30, "fix " * 50)])
    assert lines(screen.err)[0].startswith(f"{long}:12: error: reason reason")
    assert len(lines(screen.err)) == 3


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("columns", [72, 80, 90, 110, 120])
def test_names_of_gates_go_on_after_a_joint_and_figures_stay_whole(
    columns: int, live: bool, receipt: dict[str, Any]
) -> None:
    names = (
        "latency.sustained.max_slowdown_percent",
        "accuracy.max_regression_points",
        "latency.max_tokens_2048.p95_ms",
    )
    figures = {"value": -100.25, "low": -100.0, "high": 109.9, "limit": 12345.5, "unit": "points", "n": 13387}
    receipt["checks"] = [{**receipt["checks"][0], **figures, "gate": name} for name in names]
    text = printed(gate_tables.gate(receipt, live=live, width=columns), columns)
    lines = [line for line in text.splitlines() if "─" not in line and not line.startswith("measured")]
    head = next(number for number, line in enumerate(lines) if line.startswith("check"))
    end = next(number for number, line in enumerate(lines) if line.startswith(f"{names[0]}: "))
    parts = [line[: lines[head].index("verdict")].strip() for line in lines[head + 1 : end]]
    assert "".join(parts) == "".join(names)
    assert all(part[-1] in "._" or part.endswith(("percent", "points", "p95_ms")) for part in parts if part)
    words = " ".join(lines[head + 1 : end]).split()
    for figure in ("inconclusive", "-100.2", "[-100.0,", "109.9]", "<=", "12345.5", "13387"):
        assert words.count(figure) == 3, figure
    assert max(map(len, lines[head:end])) <= columns
    assert "…" not in text
    assert columns < 120 or end == head + 4  # there is room for all in one line


EVERY_GATE = (  # each with the unit of its figures
    ("accuracy.min", "fraction"), ("accuracy.max_drop_points", "points"), ("accuracy.max_regression_points", "points"),
    ("accuracy.per_class.precision", "fraction"), ("latency.p50_ms", "ms"), ("latency.max_tokens_2048.p95_ms", "ms"),
    ("latency.p99_ms", "ms"),
    ("latency.sustained.max_slowdown_percent", "percent"), ("memory.peak_rss_mib", "MiB"), ("cold_start.ms", "ms"),
    ("size.model_mib", "MiB"), ("size.bundle_mib", "MiB"),
)  # fmt: skip


@pytest.mark.parametrize("columns", [56, 60, 64, 70, 80])
@pytest.mark.parametrize("several", [1, 2, 3, len(EVERY_GATE)], ids=lambda several: f"{several} checks at once")
def test_on_a_narrow_terminal_lines_of_a_gate_go_on_between_words(
    several: int, columns: int, monkeypatch: pytest.MonkeyPatch, receipt: dict[str, Any]
) -> None:
    """In the head, in the table, in details and conditions; names of checks after a joint too."""
    monkeypatch.setenv("COLUMNS", str(columns))
    detail = "the interval holds the limit; about 3200 rows would decide, and its windows differ by more than a quarter"
    figures: dict[str, Any] = {"verdict": "inconclusive", "value": 1.25, "low": 1.125, "limit": 1.5, "n": 13387}
    ends = itertools.cycle([1310.2, None, 1.75])
    checks = [
        {**receipt["checks"][0], **figures, "gate": gate, "unit": unit, "high": next(ends), "detail": detail}
        for gate, unit in EVERY_GATE
    ]
    for some in (checks[begin : begin + several] for begin in range(0, len(checks), several)):
        screen = Screen(terminal=True)
        screen.console.gate({**receipt, "checks": some})
        told = re.sub(r"\x1b\[[0-9;]*m", "", screen.out.getvalue())
        assert max(map(len, told.splitlines())) <= columns
        wide = Screen()
        wide.console.gate({**receipt, "checks": some})
        words = {word.strip(":") for word in wide.out.getvalue().split()} | {""}  # a rule is nothing
        parts = {part for check in some for part in joined_parts(check["gate"])}
        broken = [word for word in told.split() if word.strip(":─") not in words | parts]
        assert broken == []


@pytest.mark.parametrize("language", ["C.UTF-8", "zh_CN.UTF-8"])
def test_in_80_columns_a_name_of_a_gate_takes_another_line_only_where_it_is_longer_than_the_room(
    language: str, monkeypatch: pytest.MonkeyPatch, receipt: dict[str, Any]
) -> None:
    """The longest names, with the widest figures that are usual: no line of the table holds less than it could."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LC_ALL", language)
    figures: dict[str, Any] = {"verdict": "inconclusive", "value": 41.7, "low": 38.37, "high": 45.01, "n": 13387}
    names = [*dict(EVERY_GATE), ABOVE_MAJORITY]
    units = {**dict(EVERY_GATE), ABOVE_MAJORITY: "points"}
    receipt["checks"] = [
        {**receipt["checks"][0], **figures, "gate": name, "unit": units[name], "limit": 0.5} for name in names
    ]
    screen = Screen(terminal=True)
    screen.console.gate(receipt)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", screen.out.getvalue()).splitlines()
    assert max(map(cell_len, printed)) <= 80
    rule = next(number for number, line in enumerate(printed) if set(line) == {"─"})
    reason = f"{names[0]}{local(message('mark.colon')).rstrip()}"
    end = next(number for number, line in enumerate(printed) if line.startswith(reason))
    cells = [line.split("  ")[0].strip() for line in printed[rule + 1 : end]]
    room = max(map(len, cells))
    assert "".join(cells) == "".join(names)
    assert len(cells) == sum(1 if len(name) <= room else 2 + (len(name) > 2 * room) for name in names)
    units_printed = [len(re.findall(r"\d (?:points|个百分点)", line)) for line in printed[rule + 1 : end]]
    assert (sum(units_printed), max(units_printed)) == (3, 1)


def joined_parts(name: str) -> set[str]:
    """What lines of a name may hold: it ends after `.` or `_`, or is its end."""
    ends = [place + 1 for place, character in enumerate(name) if character in "._"]
    return {name[begin:end] for begin in (0, *ends) for end in (*ends, len(name)) if begin < end}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("columns", [32, 40, 48])
def test_where_a_table_does_not_fit_each_check_has_lines_of_its_own(
    columns: int, live: bool, receipt: dict[str, Any]
) -> None:
    figures = {"value": -100.25, "low": -100.0, "high": 109.9, "limit": 12345.5, "unit": "points", "n": 13387}
    nothing = {"value": None, "low": None, "high": None, "limit": 3.0, "unit": "ms", "n": 0, "verdict": "inconclusive"}
    receipt["checks"] = [
        {**receipt["checks"][0], **figures, "gate": "accuracy.max_regression_points", "verdict": "pass"},
        {**receipt["checks"][0], **nothing, "gate": "cold_start.ms"},
    ]
    text = printed(gate_tables.gate(receipt, live=live, width=columns), columns)
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    for line in ("  value -100.2 points", "  n 13387", "cold_start.ms: inconclusive", "  limit <= 3.00 ms"):
        assert lines.count(line) == 1, line
    assert [line[:8] for line in lines if line.startswith("  ")].count("  value ") == 1
    assert "interval [-100.0, 109.9]" in " ".join(text.split())


@pytest.mark.parametrize("text", FORGED)
def test_no_text_from_outside_is_a_command_to_ci(text: str, receipt: dict[str, Any]) -> None:
    screen = Screen()
    screen.console.line(text)
    screen.console.stage(text, 1, 1, cached=False)
    with screen.console.task(text, 1) as task:
        task.advance(note=text)
    screen.console.error(StageFailedError(text, why=text, fix=text), verbose=True)
    screen.console.findings([Finding("error", Path(text), 1, text, text)])
    screen.console.closing([text])
    receipt["unmeasured"] = [{"gate": text, "why": text, "waived": False}]
    forged = forge(receipt, text, keep=("verdict", "unit"))
    for width in (40, 100):
        screen.console.show(gate_tables.gate(forged, live=False, width=width))
    screen.console.not_run(text, text, NotRunHere(text, text), ungated=False)
    screen.console.ledger([LedgerRow(text, Score(0.9, 0.8, 0.95, 100, 0.95), note=text)])
    for stream in (screen.err, screen.out):
        assert stream.getvalue().count("forged") > 8
        assert commands(stream.getvalue()) == []


@pytest.fixture
def bundle(built: Build) -> BundleArtifact:
    return built.target_results[0].bundle


def shown(*bundles: BundleArtifact) -> list[str]:
    out = io.StringIO()
    Console(stdout=out, stderr=io.StringIO()).checks(bundles)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_each_bundle_has_a_row_and_what_takes_room_stands_below(bundle: BundleArtifact) -> None:
    checks = Checks((ContentCheck("glibc", "2.34", "<= 2.35"), ContentCheck("opset", "17", "<= 23")))
    jetson = replace(bundle, target="jetpack6", checks=checks)
    assert shown(bundle, jetson) == [
        "checked for  ELF  glibc         opset",
        "local        18   2.28          -",
        "jetpack6     -    2.34 <= 2.35  17 <= 23",
        "value found, and the target's limit; without a limit the device compares",
        "local: onnxruntime-gpu 1.23.0: machine code for sm_87, no PTX; for sm_87",
        "local: a.so looks for libraries in /opt/lib, as it was on the machine that built it",
    ]
    assert shown() == shown(replace(bundle, checks=Checks())) == []
