"""The direction of imports, read from the sources: a folder imports only folders that stand above it in its list."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"edgepack": ROOT / "packager" / "edgepack", "edgepack_runtime": ROOT / "runtime" / "edgepack_runtime"}

# Folders, and modules that stand alone, bottom-up.
BUILD_SIDE = [
    "errors", "progress", "util", "messages", "sandbox", "recipe", "calibration", "artifacts", "results", "tasks",
    "onnx_graph", "targets", "evaluation", "binaries", "interpreter", "packages", "bundle", "oci", "export", "data",
    "report", "training", "gating", "stages", "imported", "build", "sweep", "console", "commands", "cli",
]  # fmt: skip
DEVICE_SIDE = [
    "errors", "util", "messages", "rows", "stats", "tasks", "schema", "bundle", "device", "install", "engine",
    "inference", "gate", "batch", "serve", "cli", "launcher", "__main__",
]  # fmt: skip
ORDER = {"edgepack": BUILD_SIDE, "edgepack_runtime": DEVICE_SIDE}

PADDLE = {"paddle", "paddlenlp", "paddleslim", "paddle2onnx"}  # imported in training/ and by the losses of tasks alone
# Packages that bundles carry, and the folders that may import them; everything else is the standard library.
CARRIED = {"serve": {"starlette", "uvicorn", "h11", "prometheus_client"}}

FILES = {
    ".".join([package, *file.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): file
    for package, folder in SOURCES.items()
    for file in sorted(folder.rglob("*.py"))
}
DEVICE_MODULES = [module for module in FILES if module.startswith("edgepack_runtime")]


@functools.cache
def imports(file: Path) -> set[str]:
    """Modules that `file` imports, dotted, but not those for typing alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in FILES or node.module not in FILES else str(node.module))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(file.read_text(encoding="utf-8")))
    return found


def own(module: str) -> set[str]:
    """Modules of its own package that `module` imports."""
    package = module.split(".")[0]
    return {name for name in imports(FILES[module]) if name in FILES and name.split(".")[0] == package}


def test_a_folder_imports_only_folders_above_it() -> None:
    for module in FILES:
        package, *path = module.split(".")
        if not path:
            continue  # the package itself: `__init__` imports lazily what it offers
        order = ORDER[package]
        assert path[0] in order, f"{path[0]} is in neither list"
        for name in own(module):
            folder = name.split(".")[1] if "." in name else path[0]
            assert folder == path[0] or order.index(folder) < order.index(path[0]), f"{module} imports {name}"


@pytest.mark.parametrize("package", SOURCES)
def test_no_two_files_or_folders_import_each_other(package: str) -> None:
    files = {module: own(module) - {module} for module in FILES if module.split(".")[0] == package}
    folders: dict[str, set[str]] = {}
    for module, others in files.items():
        if module != package:  # its `__init__` offers what lies in folders
            here = folder(module)
            folders.setdefault(here, set()).update({folder(other) for other in others} - {here, package})
    for graph in (files, folders):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def folder(module: str) -> str:
    return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]


def test_paddle_is_imported_in_training_alone() -> None:
    for module in FILES:
        if not module.startswith(("edgepack.training", "edgepack.tasks.losses")):
            assert not {name.split(".")[0] for name in imports(FILES[module])} & PADDLE, module


def test_the_device_side_imports_only_what_bundles_carry() -> None:
    for module in DEVICE_MODULES:
        folder = module.split(".")[1] if "." in module else ""
        allowed = {"edgepack_runtime", *sys.stdlib_module_names, *CARRIED.get(folder, set())}
        assert {name.split(".")[0] for name in imports(FILES[module])} <= allowed, module


def test_a_cold_start_loads_nothing_of_the_server() -> None:
    probe = "import sys, edgepack_runtime.cli.main, edgepack_runtime.inference.predictor; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    for module in ("edgepack_runtime.serve", "asyncio", "starlette", "uvicorn", "prometheus_client"):
        assert f"'{module}'" not in loaded


def test_help_is_quick_and_leaves_paddle_alone() -> None:
    probe = "import sys, edgepack.cli; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    for module in (*PADDLE, "onnx", "onnxruntime", "numpy", "matplotlib", "rich", "pydantic"):
        assert f"'{module}'" not in loaded


def test_the_device_side_is_python_3_8() -> None:
    for module in DEVICE_MODULES:
        ast.parse(FILES[module].read_text(encoding="utf-8"), module, feature_version=(3, 8))
