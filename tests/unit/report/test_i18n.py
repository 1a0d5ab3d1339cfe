"""The catalogue: both languages of every message, each used, none missing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

from edgepack import report
from edgepack.artifacts import CombineName
from edgepack.report.i18n import MESSAGES, figure, language_of_reader, t, text
from edgepack.results import NOT_RUN_HERE, Verdict
from edgepack_runtime.device.throttling import Throttle
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.figures import UNITS, quantity
from edgepack_runtime.stats.metrics import METRICS, SCORE

PROGRAMS = {"python", "numpy", "tokenizers"}  # conditions that have the same name in every language
FOLDER = Path(report.__file__).parent
SOURCES = "".join(file.read_text(encoding="utf-8") for file in FOLDER.rglob("*") if file.suffix in (".py", ".jinja"))
SOURCES += (FOLDER.parent / "console" / "build_tables.py").read_text(encoding="utf-8")
# Messages that are looked up by a value, by section.
BY_VALUE = {
    "verdict": set(get_args(Verdict)),
    "goes": set(get_args(Verdict)) - {NOT_RUN_HERE},  # nothing was measured
    "metric": {*METRICS, SCORE},
    "combined": set(get_args(CombineName)),
    "condition": {*(one.name for one in dataclasses.fields(Conditions)), *Throttle._fields} - PROGRAMS,
}


def test_every_message_is_used_and_every_used_message_is_there() -> None:
    sections = "|".join({message.partition(".")[0] for message in MESSAGES})
    used = set(re.findall(rf'"((?:{sections})\.[a-z0-9_]+)"', SOURCES))
    used |= {f"{section}.{value}" for section, values in BY_VALUE.items() for value in values}
    used |= {message for message in MESSAGES if message.startswith("figure.")}  # `figure` tries them all
    assert used == set(MESSAGES)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_that_is_a_word_is_chinese_for_chinese_readers(unit: str) -> None:
    chinese = re.findall(r'class="zh"[^>]*>([^<]*)', figure(quantity(1.5, unit)))
    assert chinese or unit in ("", "ms", "MiB", "percent", "fraction")  # signs and symbols


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_has_the_same_fields_in_both_languages(message: str) -> None:
    texts = MESSAGES[message]
    assert set(texts) == {"en", "zh"}
    english, chinese = (sorted(filter(None, fields(texts[language]))) for language in ("en", "zh"))
    assert english == chinese


def fields(template: str) -> list[str | None]:
    return [field for _, field, _, _ in Formatter().parse(template)]


def test_fields_are_escaped_in_both_languages() -> None:
    assert t("candidates.failed", candidates="<b>&") == (
        '<span class="en">Failed: &lt;b&gt;&amp;.</span><span class="zh" lang="zh">失败：&lt;b&gt;&amp;。</span>'
    )
    assert text("zh", "figure.points", value="0.25") == "0.25 个百分点"


def test_an_unknown_message_and_a_missing_field_are_errors() -> None:
    with pytest.raises(KeyError):
        t("candidates.unknown")
    with pytest.raises(KeyError):
        t("candidates.failed")


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
