"""Copy files of this repository into `files/`, and write them with their types: the examples of this recipe."""

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent
TYPES = {
    "README.md": "markdown",
    "docs/how-to/serving.zh-CN.md": "markdown",
    "pyproject.toml": "toml",
    "packager/edgepack/cli.py": "python",
    "runtime/edgepack_runtime/cli/main.py": "python",
    "runtime/edgepack_runtime/serve/page.html": "html",
    "docs/report.png": "png",
    "docs/report.zh-CN.png": "png",
    "docs/quickstart.svg": "svg",
    "recipes/recipe.schema.json": "json",
    "recipes/quickstart.yaml": "yaml",
    "mkdocs.yml": "yaml",
    "Makefile": "makefile",
    "Containerfile": "dockerfile",
    "LICENSE": "txt",
    "scripts/mutate": "shell",
}

(HERE / "files").mkdir(exist_ok=True)
with (HERE / "examples.jsonl").open("w", encoding="utf-8") as lines:
    for number, (name, kind) in enumerate(TYPES.items()):
        copy = f"files/{number:02}"  # the model sees no name
        shutil.copy(HERE.parents[1] / name, HERE / copy)
        lines.write(json.dumps({"file": copy, "expected": kind}) + "\n")
