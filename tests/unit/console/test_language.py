"""What a terminal of a Chinese locale has, and of any other."""

from __future__ import annotations

import ast
import inspect
import io
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tests.unit.conftest import combined_of

from edgepack.console import build_tables, gate_tables, tables
from edgepack.console.console import Console
from edgepack.errors import UsageError
from edgepack.messages import message


def _heads(module: ModuleType) -> Iterator[str]:
    """The columns that a module gives to `table`, or names in `heads`."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "table"
        named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "heads"
        given = node.args if called else node.value.elts if named and isinstance(node.value, ast.Tuple) else []  # type: ignore[attr-defined]
        yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))


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


HEADS = {name for section in (tables, build_tables, gate_tables) for name in _heads(section)}


@pytest.mark.parametrize("head", sorted(HEADS))
def test_the_head_of_a_column_is_in_the_language_of_the_table(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units and symbols are the same in every language."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert re.search(r"[\u4e00-\u9fff]", tables.column_head(head)) or re.fullmatch(r"MiB|n|p\d\d ms", head)
