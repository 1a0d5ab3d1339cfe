"""Benchmarks are run by hand and seldom: what they import must be there all the same."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def names(file: Path) -> set[str]:
    """Top-level names of a module, by its source: importing it may need what is not installed here."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("script", sorted(BENCHMARKS.rglob("*.py")), ids=lambda file: file.stem)
def test_what_a_benchmark_imports_of_ours_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("edgepack"):
            continue
        spec = find_spec(str(node.module))
        assert spec is not None and spec.origin is not None, node.module
        source = Path(spec.origin)
        for alias in node.names:
            inside = source.parent / alias.name
            submodule = source.name == "__init__.py" and (inside.with_suffix(".py").is_file() or inside.is_dir())
            assert submodule or alias.name in names(source), f"{node.module} has no {alias.name}"
