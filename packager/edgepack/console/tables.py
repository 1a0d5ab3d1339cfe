"""Building blocks of tables (cells, widths), tables of profiles, recipe values, content checks and this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from edgepack.messages import joined, local, message
from edgepack.report.i18n import metric
from edgepack.util.nvidia import sm_name
from edgepack.util.text import mib, rounded_duration, shortest
from edgepack.util.text import safe as plain_safe
from edgepack_runtime.messages import message_or
from edgepack_runtime.schema.figures import NOTHING
from edgepack_runtime.schema.receipt import UNGATED
from edgepack_runtime.stats import intervals

if TYPE_CHECKING:
    from pathlib import Path

    from edgepack.artifacts import BundleArtifact, ContentCheck
    from edgepack.build.plan import Plan
    from edgepack.console.target_tables import Short
    from edgepack.training import diagnosis


STYLES: Final = {
    intervals.PASS: "green",
    intervals.FAIL: "bold red",
    intervals.INCONCLUSIVE: "yellow",
    "not run here": "yellow",
    UNGATED: "yellow",
    "error": "red",
    "warning": "yellow",
}
COLUMN_GAP: Final = 2  # between two columns of `table`
SHORT_DIGEST: Final = 12  # characters that tell results apart
_OF_WORDS: Final = ("note", "before", "after", "candidate", "limits", "wheels", "device's glibc", "interpreter")  # fold
_NUMERIC: Final = (
    "MiB",
    "packed MiB",
    "on the device MiB",
    "mean ms",
    "p50 ms",
    "p95 ms",
    "drift",
    "value",
    "limit",
    "n",
)


def targets(found: Sequence[Short], *, live: bool) -> Iterator[Table | Text]:
    """A row for each profile."""
    made = table(live, "target", "interpreter", "device's glibc", "runs on", "wheels", "runs here")
    for one in found:
        count = message("profile.unlocked") if one.wheels is None else message("profile.locked", n=one.wheels)
        wheels = joined(count, message("profile.by_path") if one.by_path else "", by="list.comma")
        here = message("figure.yes" if one.runs_here else "figure.no")
        cells = (one.interpreter, one.glibc or message("profile.any"), one.provider, wheels, here)
        made.add_row(*map(safe, (one.name, *cells)))
    yield made
    yield Text("")
    yield from (Text(safe(f"{one.name}: {one.summary}")) for one in found)


def facts(found: Mapping[str, Any]) -> Iterator[Text]:
    """A line for each fact; nested facts are indented."""
    width = max(map(len, found))
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield Text(safe(name))
            yield from (Text(safe(f"  {key}: {shown(inner)}")) for key, inner in value.items())
        else:
            yield Text(safe(f"{name:<{width}}  {shown(value)}"))


def plan(planned: Plan, results: Path, command: str, *, live: bool) -> Iterator[Table | Text]:
    """Every resolved value, with defaults dimmed (marked without colours), the stages, and the next command.

    Args:
        results: the folder of the stage results.
        command: it builds what is planned.
    """
    width = max(len(value.key) for value in planned.values)
    for value in planned.values:
        line = f"{value.key:<{width}}  {safe(json.dumps(value.value, ensure_ascii=False))}"
        yield (
            Text(line) if value.given else Text(line if live else safe(message("plan.default", line=line)), style="dim")
        )
    yield Text("")
    stages = table(live, "stage", "state", "time", "note")
    for stage in planned.stages:
        time, note = "", stage.why
        if stage.folder is not None:
            note = message("plan.result", digest=stage.folder.name[:SHORT_DIGEST])
        if stage.state == "to run":
            time = "?" if stage.estimate is None else safe(_about(stage.estimate.seconds))
        note = joined(stage.candidate or "", note)
        stages.add_row(
            safe(" ".join(filter(None, (stage.stage, stage.target)))),
            safe(message(f"state.{stage.state}")),
            time,
            safe(note),
        )
    yield stages
    yield Text("")
    for stage in planned.stages:
        if stage.about:
            yield Text(safe(f"{stage.stage} {stage.candidate or ''}".rstrip() + f": {stage.about}"))
    if any(stage.folder is not None for stage in planned.stages):
        yield Text(safe(message("plan.results", folder=shortest(results))))
    yield Text(safe(planned.downloads.sentence))
    yield Text(safe(_total(planned)))
    yield Text(safe(message("plan.build", command=command)))


def _total(planned: Plan) -> str:
    if not planned.to_run:
        return message("plan.nothing")
    count, time = sum(stage.estimate is None for stage in planned.to_run), _about(planned.seconds)
    unknown = message("plan.unknown", n=count)
    if planned.seconds == 0:
        return unknown
    return message("plan.part", time=time, unknown=unknown) if count else message("plan.total", time=time)


def _about(seconds: float) -> str:
    return message("plan.about", time=rounded_duration(seconds))


def shown(value: Any) -> str:
    """A value of a recipe or a manifest; `-` for None."""
    return (
        NOTHING if value is None else safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    )


def safe(text: object) -> str:
    """`text` in the language of the terminal, as one line that does nothing to it."""
    return plain_safe(local(text) if isinstance(text, str) else text)


def verdict_name(name: str) -> str:
    """A verdict in the language of the terminal; one of a later version as it is."""
    return safe(message(f"verdict.{name}") if name in STYLES else name)


def named_facts(found: Mapping[str, Any], section: str = "inspect") -> Iterator[Text]:
    """A line for each fact; its name is a message of the section, or itself."""
    names = {name: column_head(name, section) for name in found}
    width = max(map(cell_len, names.values()))
    for name, value in found.items():
        yield Text(f"{names[name]}{' ' * (width - cell_len(names[name]))}  {safe(value)}")


def column_head(name: str, section: str = "column") -> str:
    """The head of a column in the language of the terminal, from its English name or a message."""
    return safe(message_or(f"{section}.{name}", name))


def table(live: bool, first: str, *columns: str) -> Table:
    """An empty table; `live` draws a rule below its head. Columns with figures are right-aligned."""
    made = Table(
        box=box.SIMPLE_HEAD if live else None,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1 if live else 2, 0, 0),  # the rule takes one column
        header_style="bold",
    )
    made.add_column(column_head(first), no_wrap=True)
    for name in columns:
        justify: JustifyMethod = "right" if name in _NUMERIC else "left"
        if name in _OF_WORDS:
            made.add_column(column_head(name), overflow="fold")
        else:  # a cut figure ends in an ellipsis, so that it is not misread
            made.add_column(column_head(name), justify=justify, no_wrap=True, overflow="ellipsis")
    return made


def table_width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The width of `table` without cuts."""
    columns = sum(max(map(cell_len, column)) for column in zip(map(column_head, heads), *rows, strict=True))
    return columns + COLUMN_GAP * (len(heads) - 1)


def one_by_one(titles: Sequence[Text], heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    """A table that does not fit, as lines: the title of each row, then a line for each figure."""
    for title, figures in zip(titles, rows, strict=True):
        yield title
        for head, figure in zip(heads, figures, strict=True):
            if figure != NOTHING:
                yield Text(f"  {column_head(head)} {figure}")


def mib_column(size_bytes: int) -> str:
    """A size in MiB, without the unit."""
    return mib(size_bytes).removesuffix(" MiB")


def score_head(metrics: Sequence[str]) -> str:
    """The head of a column of scores: the name of the metric, if there is only one."""
    return metric(metrics[0]) if len(metrics) == 1 else "score"


_JOINTS = re.compile(r"[^._]*[._]+|[^._]+")  # `latency.p95_ms` splits into `latency.`, `p95_` and `ms`


def widths(columns: Sequence[Sequence[str]], least: Sequence[int], order: Sequence[int], room: int) -> list[int] | None:
    """Widths of `columns` (lists of texts) that fit into `room` together; None if they do not fit.

    Only the columns in `order` shrink, each to its `least` width before the next one.
    """
    found = [max(map(cell_len, column)) for column in columns]
    for place in order:
        found[place] -= min(max(sum(found) - room, 0), max(found[place] - least[place], 0))
    return found if sum(found) <= room else None


def longest_word(texts: Sequence[str]) -> int:
    """The least width of a column of `texts` that wrap between words."""
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def longest_part(names: Sequence[str]) -> int:
    """The least width of a column of `names` that wrap after `.` or `_`."""
    return max((cell_len(part) for name in names for part in _JOINTS.findall(name)), default=0)


def at_joints(name: str, width: int) -> str:
    """`name` wrapped to `width` columns after `.` or `_`."""
    lines = [""]
    for part in _JOINTS.findall(name):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def examination(report: diagnosis.Report) -> Iterator[Text]:
    """The report of `edgepack doctor`: facts, problems, then the device of a training."""
    yield from named_facts(dict(_examined(report)), "examined")
    for problem in report.problems:
        severity = message("say.finding", severity=message(f"warn.{problem.severity}"))
        why, fix = (safe(message(f"say.{name}")) for name in ("why", "fix"))
        yield Text(safe(severity), style=STYLES[problem.severity]).append(
            f"{safe(problem.what)}\n    {why}{safe(problem.why)}\n    {fix}{safe(problem.fix)}",
            style="not bold default",
        )
    if report.can_train and report.device is not None:
        yield Text(safe(message("examined.chosen", device=report.device.splitlines()[0])), style="bold")


def _examined(report: diagnosis.Report) -> Iterator[tuple[str, str]]:
    driver, here = report.driver, report.machine
    yield (
        "packages",
        ", ".join(
            f"{name} {version or local(message('examined.missing'))}" for name, version in report.packages.items()
        ),
    )
    if report.paddle is not None:
        yield "paddle", report.paddle.about
    cuda = message("examined.cuda", version=driver.cuda) if driver.cuda else ""
    none = message("examined.no_driver", why=driver.why)
    yield "driver", joined(driver.driver, cuda, by="list.comma") if driver.driver else none
    for gpu in driver.gpus:
        facts = [gpu.name, gpu.sm and sm_name(gpu.sm), gpu.memory_mib and f"{gpu.memory_mib} MiB"]
        facts += [] if gpu.mig is None else [f"MIG: {', '.join(gpu.mig) or local(message('examined.no_instance'))}"]
        yield local(message("examined.gpu", index=gpu.index)), ", ".join(str(part) for part in facts if part)
    for card in report.paddle.cards if report.paddle is not None else ():
        state = message("examined.cannot", why=card.failure) if card.failure else message("examined.computes")
        yield f"gpu:{card.index}", joined(card.name, sm_name(card.sm), f"{card.memory_mib} MiB", state, by="list.comma")
    yield "cpu", f"{here.cpu_model}, {here.cores}"
    sizes = {
        "total": here.memory.total_bytes,
        "available": here.memory.available_bytes,
        "most": here.memory.limit_bytes,
    }
    memory = [message(f"examined.{name}", size=mib(size)) for name, size in sizes.items() if size is not None]
    yield "memory", joined(*memory, by="list.comma") or message("examined.unknown")
    for setting in report.settings:
        how = "examined.given" if setting.given else "examined.set"
        yield setting.name, message(how, value=setting.value, why=setting.why)
    cached = ", ".join(
        f"{model.name} ({mib(model.size_bytes)})" if model.size_bytes else model.name for model in report.models
    )
    names = cached or message("examined.no_models")
    yield "models", message("examined.kept_in", names=names, folder=str(report.models_folder))
    yield "disk", message("examined.free", size=mib(report.free_bytes), folder=str(report.workspace))


def checks(bundles: Sequence[BundleArtifact], *, live: bool) -> Iterator[Table | Text]:
    """A row for each bundle and a column for each check, then GPU code and notes."""
    columns = list(dict.fromkeys(check.check for one in bundles for check in one.checks.passed if not check.package))
    if not columns:
        return
    made = table(live, "checked for", *columns)
    for one in bundles:
        found = {check.check: _cell(check) for check in one.checks.passed}
        made.add_row(safe(one.target), *(safe(found.get(column, NOTHING)) for column in columns))
    yield made
    yield Text(safe(message("say.checks")), style="dim")
    for one in bundles:
        for check in one.checks.passed:
            if check.package:
                found_there = joined(check.found, check.allowed)
                yield Text(safe(joined(one.target, check.package, found_there, by="list.colon")))
        for line in one.checks.notes:
            yield Text(safe(joined(one.target, line, by="list.colon")))


def _cell(check: ContentCheck) -> str:
    return f"{local(check.found)} {local(check.allowed)}".rstrip()
