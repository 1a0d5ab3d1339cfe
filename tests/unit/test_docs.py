"""What the docs promise is what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from pydantic import BaseModel
from tiny_model import write_model_folder

from edgepack.cli import main as edgepack
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import FromScratch, Scratch
from edgepack_runtime.cli import main
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import ExitCode

ROOT = Path(__file__).parents[2]


def keys(section: type[BaseModel]) -> set[str]:
    """Every key a recipe may hold, at any depth."""
    found: set[str] = set()
    for name, field in section.model_fields.items():
        found.add(field.alias or name)
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel) and part is not FromScratch:
                found |= keys(part)
    return found


def test_the_recipe_page_names_every_key() -> None:
    page = (ROOT / "docs" / "how-to" / "recipe.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z0-9_]+", page))
    wanted = keys(Recipe) | keys(Scratch)
    assert "peak_rss_mib" in wanted
    assert sorted(wanted - words) == []


def test_the_exit_code_page_has_every_code_once() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, flags=re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code.value, code.name) for code in ExitCode]


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_links_of_the_readmes_exist(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_links_of_the_pages_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_navigation_has_every_page_once() -> None:
    named = re.findall(
        r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)


@pytest.mark.parametrize("folder", ["packager", "runtime", "recipes", "docs", "benchmarks", "scripts"])
def test_pages_that_messages_and_comments_name_exist(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".yaml", ".yml", ".md", ".toml", ""}]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w/-]+\.md\b", text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_of_commands_names_every_command_and_verb() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    headings = [line[4:] for line in page.splitlines() if line.startswith("### ")]
    wanted = [f"edgepack {name}" for name in edgepack.list_commands(click.Context(edgepack))]
    [verbs] = [action for action in build_parser(Context("edgert", None, None))._actions if action.dest == "verb"]
    assert isinstance(verbs.choices, dict)
    wanted += verbs.choices
    assert [name for name in wanted if not any(f"{heading} ".startswith(f"{name} ") for heading in headings)] == []


PREDICTING = (ROOT / "docs" / "how-to" / "predicting.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PREDICTING, flags=re.DOTALL))
def test_the_examples_of_predicting_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    write_model_folder(tmp_path / "model")
    (tmp_path / "reviews.txt").write_text("很好\n太差\n好\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "predicting.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_what_the_page_of_predicting_tells_of_bad_rows_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model_folder(tmp_path / "model")
    (tmp_path / "reviews.csv").write_text("id,text\n" + "1,好\n" * 15 + "2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    line = ["predict", "--model", "model", "--input", "reviews.csv", "--output", "out.jsonl"]
    assert main.run(line, Context("edgert", None, None)) == 0
    for name in ("out.jsonl.errors.jsonl", "out.jsonl"):
        told = (tmp_path / name).read_text(encoding="utf-8").splitlines()[-1]
        assert f"`{told}`" in PREDICTING
        assert json.loads(told)


def test_the_page_of_predicting_names_every_option() -> None:
    [verbs] = [action for action in build_parser(Context("edgert", None, None))._actions if action.dest == "verb"]
    assert isinstance(verbs.choices, dict)
    options = verbs.choices["predict"]._option_string_actions
    assert [option for option in options if option not in PREDICTING and option not in ("-h", "--help")] == []
