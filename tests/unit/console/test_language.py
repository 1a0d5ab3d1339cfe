"""What a terminal of a Chinese locale has, and of any other."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.unit.conftest import combined_of

from edgepack.console.console import Console
from edgepack.errors import UsageError
from edgepack.messages import message


def printed(built: Any) -> str:
    stream = io.StringIO()
    console = Console(stdout=stream, stderr=stream)
    console.ledger(built.ledger)
    console.checks([item.bundle for item in built.target_results])
    console.gate(built.target_results[0].gate.receipt)
    console.error(UsageError(message("mistake.no_file", path="'a.tsv'"), fix=message("mistake.path")))
    return stream.getvalue()


def test_a_terminal_has_the_language_of_its_locale(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    english = printed(combined_of(built))
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    chinese = printed(combined_of(built))
    assert "error: there is no file 'a.tsv'\n  fix: give a path" in english
    for told in (
        "错误：文件 'a.tsv' 不存在\n  解决办法：",
        "阶段",
        "一致性",
        "门禁：未通过",
        "没有证据表明编码器优于线性模型",
    ):
        assert told in chinese and told not in english
