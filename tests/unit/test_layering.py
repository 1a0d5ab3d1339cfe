"""The direction of imports, read from the sources themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "packager" / "edgepack"
DEVICE = ROOT / "runtime" / "edgepack_runtime"

# From the top down: a layer imports only from layers below it (and from itself).
LAYERS: list[set[str]] = [
    {"cli"},
    {"commands"},
    {"inspection", "examination", "fleet"},
    {"pipeline"},
    {"stages", "console"},
    {"checked", "compared", "variants", "bundle_tables", "gate_tables", "ledger_tables"},
    {"tables", "int8", "choice", "model_writer"},
    {"signing"},
    {"gating"},
    {"paddle_ml", "graph", "targets", "report"},
    {"datasets", "results", "scores"},
    {"selection", "reduced"},
    {"artifacts"},
    {"quantization", "content", "examples"},
    {"recipe"},
    {
        "errors",
        "progress",
        "digest",
        "versions",
        "differences",
        "toml",
        "wording",
        "fitting",
        "machine",
        "nvidia",
        "signals",
        "streams",
    },
]
HEAVY = {"paddle", "paddlenlp", "paddleslim", "paddle2onnx"}
STDLIB_ONLY = {
    "archive", "unpacking", "manifest", "verify", "install", "durable", "recovery", "hashing",
    "doctor", "state", "cli", "launcher", "errors",
    "__init__", "__main__", "commit", "isolated", "texts", "model_config", "stats", "predict_verb",
    "distributions",
    "spans", "metrics", "scoring", "golden", "gate_limits", "tuning", "located", "cuda_driver",
    "device", "cores", "jetson", "nvidia_libraries", "probe", "onnx_file",
    "parsing", "options", "model_options", "meant", "release_verbs", "model_verbs",
    "receipts", "owned", "rollback", "uninstall",
    "rows", "wording", "writing", "resume", "progress", "predict_files", "windows",
    "alone", "interference", "latency_limits", "accuracy_limits", "gate_values", "throttling",
    "sshsig", "trust", "trust_verb", "sealing",
    "serve_verb", "serve/__init__", "serve/settings", "serve/model_info", "serve/http_errors", "serve/logs",
    "serve/systemd", "serve/openapi", "serve/page",
}  # fmt: skip
# What every bundle carries; nothing else can be imported on a device.
DEVICE_PACKAGES = {"numpy", "onnxruntime", "tokenizers"}
SERVE_PACKAGES = {"starlette", "uvicorn", "prometheus_client"}  # what bundles with `serve: true` carry besides


def imports(file: Path, *, lazy: bool = True, as_if: Path | None = None) -> set[str]:
    """Modules that `file` imports, dotted; without those inside functions unless `lazy`, never those for typing."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if not lazy and isinstance(node, ast.FunctionDef):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(part for part in (_above(as_if or file, node.level), node.module) if part)
            found.update(f"{module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(file.read_text(encoding="utf-8")))
    return found


def _above(file: Path, level: int) -> str:
    """The package that a relative import starts from: `..` in edgepack/graph/view.py is edgepack."""
    if level == 0:
        return ""
    root = BUILD.parent if file.is_relative_to(BUILD) else DEVICE.parent
    return ".".join(file.relative_to(root).parts[:-level])


def part(file: Path, root: Path) -> str:
    return file.relative_to(root).with_suffix("").parts[0]


BUILD_FILES = sorted(file for file in BUILD.rglob("*.py") if file.relative_to(BUILD).parts != ("__init__.py",))
DEVICE_FILES = sorted(DEVICE.rglob("*.py"))


def test_the_sources_were_found() -> None:
    assert len(BUILD_FILES) > 20
    assert len(DEVICE_FILES) > 10


@pytest.mark.parametrize("file", BUILD_FILES, ids=lambda file: str(file.relative_to(BUILD)))
def test_imports_go_down(file: Path) -> None:
    rank = {name: level for level, names in enumerate(LAYERS) for name in names}
    here = part(file, BUILD)
    assert here in rank, f"{here} belongs to no layer"
    for module in imports(file):
        parts = module.split(".")
        if parts[0] == "edgepack" and parts[1] in rank:
            assert parts[1] == here or rank[parts[1]] > rank[here], f"{here} imports {module}"


@pytest.mark.parametrize("file", sorted((BUILD / "stages").glob("*.py")), ids=lambda file: file.name)
def test_no_stage_imports_another(file: Path) -> None:
    assert not [module for module in imports(file) if module.startswith("edgepack.stages")]


@pytest.mark.parametrize("file", BUILD_FILES, ids=lambda file: str(file.relative_to(BUILD)))
def test_only_paddle_ml_imports_paddle(file: Path) -> None:
    if part(file, BUILD) != "paddle_ml":
        assert not {module.split(".")[0] for module in imports(file)} & HEAVY


@pytest.mark.parametrize("file", DEVICE_FILES, ids=lambda file: str(file.relative_to(DEVICE)))
def test_the_device_side_imports_nothing_it_does_not_carry(file: Path) -> None:
    allowed = {"edgepack_runtime", *sys.stdlib_module_names}
    name = file.relative_to(DEVICE).with_suffix("").as_posix()
    if name not in STDLIB_ONLY:
        allowed |= DEVICE_PACKAGES | (SERVE_PACKAGES if name.startswith("serve/") else set())
        found = imports(file)
    else:  # the verbs that predict import the rest inside functions, after the release is on the path
        found = imports(file, lazy=False)
    assert {module.split(".")[0] for module in found} <= allowed
    assert not [module for module in imports(file) if module.split(".")[0] == "edgepack"], "not even inside a function"


@pytest.mark.parametrize("file", DEVICE_FILES, ids=lambda file: str(file.relative_to(DEVICE)))
def test_only_the_verb_serve_imports_the_server(file: Path) -> None:
    name = file.relative_to(DEVICE).with_suffix("").as_posix()
    if not name.startswith("serve/") and name != "serve_verb":
        assert not [module for module in imports(file, lazy=False) if "edgepack_runtime.serve" in module]


def test_a_cold_start_loads_nothing_of_the_server() -> None:
    probe = "import sys, edgepack_runtime.cli, edgepack_runtime.predictor; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    for module in ("edgepack_runtime.serve", "edgepack_runtime.serve_verb", "asyncio", *sorted(SERVE_PACKAGES)):
        assert f"'{module}'" not in loaded


@pytest.mark.parametrize(
    ("place", "line", "found"),
    [
        ("packager/edgepack/recipe/findings.py", "from ..paddle_ml import device", "edgepack.paddle_ml.device"),
        ("packager/edgepack/recipe/findings.py", "from . import model", "edgepack.recipe.model"),
        ("packager/edgepack/cli.py", "from .recipe.load import load_recipe", "edgepack.recipe.load.load_recipe"),
        ("runtime/edgepack_runtime/verify.py", "from edgepack import recipe", "edgepack.recipe"),
        ("runtime/edgepack_runtime/engine/x.py", "from ..gate import run", "edgepack_runtime.gate.run"),
    ],
)
def test_no_form_of_import_escapes(tmp_path: Path, place: str, line: str, found: str) -> None:
    file = tmp_path / "x.py"
    file.write_text(f"def late():\n    {line}\n", encoding="utf-8")
    assert imports(file, as_if=ROOT / place) == {found}


def test_help_is_quick_and_leaves_paddle_alone() -> None:
    probe = "import sys, edgepack.cli; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    for module in (*HEAVY, "onnx", "onnxruntime", "numpy", "matplotlib", "rich", "pydantic"):
        assert f"'{module}'" not in loaded


@pytest.mark.parametrize("file", sorted(DEVICE.rglob("*.py")), ids=lambda file: file.relative_to(DEVICE).as_posix())
def test_the_device_side_is_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
