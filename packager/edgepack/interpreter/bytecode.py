"""Modules as bytecode, compiled by the CPython that will run them; which of the standard library travel."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from edgepack.errors import StageFailedError

_NOT_LIBRARY: Final = ("lib-dynload", "dist-packages", "site-packages", "__pycache__")
# Leaves out docstrings, a seventh of it, unless the modules are to stay `whole`: numpy needs its own, and others read
# theirs. Of these a file may be no valid module, such as a template: it is passed over. The header of a .pyc (PEP 552)
# says that no source is looked at: a release is compared with its manifest, not with the times of its files.
_COMPILE: Final = """\
import ast, importlib.util, json, marshal, os, sys
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
whole, jobs = json.load(sys.stdin)
for source, name, target in jobs:
    try:
        with open(source, "rb") as file:
            tree = ast.parse(file.read(), name)
        for node in () if whole else ast.walk(tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
        code = compile(tree, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        if whole:
            continue
        raise
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0" + bytes(8) + marshal.dumps(code))
"""


class Compiler:
    """Compiles modules with the interpreter that `command` starts."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "-I", "-S", "-B", "-X", "utf8", "-c", _COMPILE]

    def bytecode(self, sources: Mapping[str, Path], folder: Path, *, whole: bool = False) -> dict[str, Path]:
        """The bytecode of modules, written below `folder`, by their path in a package.

        Args:
            sources: the modules, by that path.
            folder: where to.
            whole: keep docstrings, and pass over files that are not valid in this Python.

        Raises:
            StageFailedError: one is not valid in this Python, or it does not start.
        """
        compiled = {name: folder / f"{name}c" for name in sorted(sources)}
        jobs = [(str(sources[name]), name, str(file)) for name, file in compiled.items()]
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps([whole, jobs]),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            raise StageFailedError("the bundle's interpreter cannot be started", why=str(error)) from error
        if done.returncode != 0:
            raise StageFailedError("the bundle's modules cannot be compiled", why=done.stderr[-1500:].strip())
        return {name: file for name, file in compiled.items() if file.is_file()} if whole else compiled


def cached(source: str, version: str) -> str:
    """Where CPython `version` looks for the bytecode of a module: `a/b.py` -> `a/__pycache__/b.cpython-311.pyc`."""
    parent, _, file = source.rpartition("/")
    major, minor = version.split(".")[:2]
    return f"{parent}/__pycache__/{file.removesuffix('.py')}.cpython-{major}{minor}.pyc"


def library_modules(library: Path, left_out: Collection[str], encodings: Collection[str]) -> Iterator[str]:
    """The modules of a standard library that travel, as POSIX paths in the folder `library`, sorted.

    Args:
        left_out: modules and packages that do not, such as "asyncio/windows_utils".
        encodings: the only modules of the package `encodings` that do.
    """
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        top, _, rest = name.partition("/")
        if top in _NOT_LIBRARY or top.removesuffix(".py") in left_out or name.removesuffix(".py") in left_out:
            continue
        if top != "encodings" or rest.removesuffix(".py") in encodings:
            yield name


def rules_of(document: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    """The modules that `interpreter.toml` leaves out, and the encodings that it keeps."""
    left_out = frozenset(name for names in document["left_out"].values() for name in names)
    return left_out, frozenset(document["encodings"]["kept"])
