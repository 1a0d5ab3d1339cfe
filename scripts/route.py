"""Check the route of a recipe through the code, as docs/explanation/architecture.md describes it, against the imports.

Each file of the route must be imported by one before it. A *climb* is a step to a file that the one before it does not
import: the reader goes back to a file that was left. Calls are not followed, so that a second call of a file counts
nothing. Ends in one JSON line; exits 1 where no file before imports one.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packager/edgepack"
PAGE = ROOT / "docs/explanation/architecture.md"
SECTION = re.compile(r"^## A recipe, followed.*?(?=^Beside the route)", re.MULTILINE | re.DOTALL)


def imported(file: Path) -> set[Path]:
    """The files of the package that `file` imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {PACKAGE.parent / f"{name.replace('.', '/')}.py" for name in names}
    return {path for path in found if path.is_file()}


def main() -> int:
    section = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert section is not None
    route = [PACKAGE / name for name in re.findall(r"`([\w/]+\.py)`", section[0]) if name != "scripts/route.py"]
    lost: list[str] = []
    climbs = 0
    for number, file in enumerate(route[1:], start=1):
        if file in imported(route[number - 1]):
            continue
        climbs += 1
        if not any(file in imported(earlier) for earlier in route[:number]):
            lost.append(file.relative_to(PACKAGE).as_posix())
    sys.stdout.write(json.dumps({"files": len(route), "climbs": climbs, "lost": lost}) + "\n")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
