"""The catalogues: both languages of every message, each used, none missing; what a page makes of a message."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest

import edgepack
import edgepack_runtime
from edgepack.artifacts import CombineName, ModelArtifact
from edgepack.build.plan import State
from edgepack.bundle.inspect import PARTS
from edgepack.data.draft.recipe_text import TEMPLATE
from edgepack.export.selection import SHORT
from edgepack.messages import TEMPLATES, figure, message, render
from edgepack.recipe.model import Columns
from edgepack.report.i18n import in_languages, language_of_reader, shown, stage, t
from edgepack.results import NOT_RUN_HERE, Verdict
from edgepack.stages.stage import Stage
from edgepack_runtime.device.throttling import Throttle
from edgepack_runtime.install.status import RESULTS
from edgepack_runtime.messages.catalogue import TEMPLATES as OF_RUNTIME
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.figures import UNITS, quantity
from edgepack_runtime.stats.metrics import METRICS
from edgepack_runtime.tasks.registry import TASKS

PROGRAMS = {"python", "numpy", "tokenizers"}  # conditions that have the same name in every language
ALL = {**OF_RUNTIME, **TEMPLATES}
FOLDERS = [Path(package.__file__ or "").parent for package in (edgepack, edgepack_runtime)]
DRAFT = (FOLDERS[0] / "data" / "draft" / TEMPLATE).read_text(encoding="utf-8")  # whose names are messages, too
SOURCES = "".join(
    file.read_text(encoding="utf-8")
    for folder in FOLDERS
    for file in folder.rglob("*")
    if file.suffix in (".py", ".jinja") and file.name != "catalogue.py"
)


def stages(of: Any = Stage) -> Iterator[Any]:
    for one in of.__subclasses__():
        if one.__module__.startswith("edgepack."):
            yield from ([one] if hasattr(one, "name") else [])
            yield from stages(one)


# Messages that are looked up by a value, by section.
RULES = {f"rule_of_{task.name}" for task in TASKS if task.rule_answer(("", "")) is not None}
BY_VALUE = {
    "verdict": set(get_args(Verdict)),
    "goes": set(get_args(Verdict)) - {NOT_RUN_HERE},  # nothing was measured
    "metric": set(METRICS),
    "combined": set(get_args(CombineName)),
    "name": set(get_args(CombineName)) - {"linear"},  # which never ships without its encoder in such a sentence
    "condition": {*(one.name for one in dataclasses.fields(Conditions)), *Throttle._fields} - PROGRAMS,
    **{
        section: {name.partition(".")[2] for name in ALL if name.startswith(f"{section}.")}
        for section in ("column", "examined", "inspect")
    },
    "state": set(get_args(State)),
    "say": {"error", "why", "fix"},
    "table": {"gate", "measured", "interval", "limit", "n", "verdict"},
    "gate": {"recall", "precision", "f1", *RULES},
    "note": RULES,
    "scored": set(METRICS),
    "done": {name.replace(" ", "_") for name in RESULTS},
    "select": {"fastest", "smallest", "plain_fastest", "plain_smallest"},
    "warn": {"warning", "error"},
    "part": set(PARTS),
    "draft": {*Columns.model_fields},
    "trust": {"added", "removed"},
    "stage": {stage.kind.row_of(stage.name) for stage in stages() if issubclass(stage.kind, ModelArtifact)}
    | {"rule", "static graph", *(f"{short} ONNX" for short in SHORT.values()), *get_args(CombineName)} - {"encoder"},
}


def test_every_message_is_used_and_every_used_message_is_there() -> None:
    sections = "|".join({name.partition(".")[0] for name in ALL})
    used = {name for name in re.findall(rf'["\']((?:{sections})\.[a-z0-9_]+)["\']', SOURCES) if name in ALL}
    used |= {f"{section}.{value}" for section, values in BY_VALUE.items() for value in values}
    used |= {name for name in ALL if name.startswith("figure.")}  # `figure` tries them all
    used |= {f"draft.{name}" for name in re.findall(r"\$\{?(\w+)", DRAFT) if f"draft.{name}" in ALL}
    assert used ^ set(ALL) == set()
    assert not OF_RUNTIME.keys() & TEMPLATES.keys()


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_that_is_a_word_is_chinese_for_chinese_readers(unit: str) -> None:
    chinese = render(figure(quantity(1.5, unit)), "zh")
    assert chinese != quantity(1.5, unit) or unit in ("", "ms", "MiB", "percent", "fraction")  # signs and symbols


@pytest.mark.parametrize("name", ALL)
def test_a_message_has_the_same_fields_in_both_languages(name: str) -> None:
    english, chinese = ({field for _, field, _, _ in Formatter().parse(template) if field} for template in ALL[name])
    assert english == chinese


def test_fields_are_escaped_in_both_languages() -> None:
    expected = '<span class="en">Failed: &lt;b&gt;&amp;.</span><span class="zh" lang="zh">失败：&lt;b&gt;&amp;。</span>'
    assert t("candidates.failed", candidates="<b>&") == expected
    assert shown(message("candidates.failed", candidates="<b>&")) == expected
    assert render(message("figure.points", value="0.25"), "zh") == "0.25 个百分点"


def test_an_unknown_message_and_a_missing_field_are_errors() -> None:
    with pytest.raises(KeyError):
        t("candidates.unknown")
    with pytest.raises(KeyError):
        message("candidates.failed")


@pytest.mark.parametrize(
    ("variables", "labels", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, ["good"], "zh"),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, ["好"], "en"),
        ({"LC_ALL": "C.UTF-8"}, ["好", "bad"], "zh"),
        ({}, ["good"], "en"),
    ],
)
def test_the_language_is_that_of_the_reader(variables: dict[str, str], labels: list[str], language: str) -> None:
    assert language_of_reader(labels, variables) == language


def test_rows_of_the_ledger_have_a_name_in_each_language() -> None:
    assert in_languages(stage("static graph")) == ("static graph", "静态图")
    assert in_languages(stage("on local")) == ("on local", "在 local 上")
    assert in_languages(stage("INT8 ONNX")) == ("INT8 ONNX",)
    assert in_languages(stage("distilled again")) == ("distilled again",)  # of a later version
