"""What the docs promise is what the code has."""

from __future__ import annotations

import ast
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from markdown.extensions.toc import slugify
from pydantic import BaseModel
from rich.cells import cell_len
from tests.integration.doc_commands import TITLES, blocks, commands, commands_of, parse_build_side
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack.build.options import STAGES
from edgepack.recipe import schema_files
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import FromScratch, Scratch
from edgepack_runtime.cli import main
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import ExitCode, UsageError

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
    page = (ROOT / "docs" / "reference" / "recipe-file.md").read_text(encoding="utf-8")
    words = set(re.findall(r"[a-z0-9_]+", page))
    wanted = keys(Recipe) | keys(Scratch)
    assert "peak_rss_mib" in wanted
    assert sorted(wanted - words) == []


def test_the_exit_code_page_has_every_code_once() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, flags=re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == [(code.value, code.name) for code in ExitCode]


def test_the_page_of_attacks_names_tests_that_exist() -> None:
    page = (ROOT / "docs/reference/threats.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (ROOT / "tests").rglob("test_*.py")
    written = {
        name for file in files for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text("utf-8"), re.M)
    }
    assert len(named) > 50
    assert sorted(named - written) == []


GENERATED = [ROOT / "docs/reference" / name for name in ("recipe.md", "commands.md")]  # by `make docs`, not in git
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if page not in GENERATED)
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


def test_links_of_the_pages_exist() -> None:
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    links = [(page, target) for page in (*PAGES, *READMES) for target in link.findall(page.read_text(encoding="utf-8"))]
    assert {page for page, _ in links} >= {*READMES}
    files = [(page, (page.parent / target).resolve()) for page, target in links]
    dead = [(page.name, file.name) for page, file in files if file in GENERATED or not file.exists()]
    assert dead == []  # a forge shows what is in git, which the generated pages are not


def test_links_from_the_generated_pages_name_headings(tmp_path: Path) -> None:
    recipe, commands = GENERATED
    written = tmp_path / "commands.md"
    subprocess.run([sys.executable, str(ROOT / "scripts/commands_page.py"), str(written)], check=True)
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    texts |= {recipe: schema_files.page(), commands: written.read_text(encoding="utf-8")}
    links = [
        (page, (page.parent / target).resolve() if target else page, anchor)
        for page, text in texts.items()
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", text)
    ]
    links = [link for link in links if {link[0], link[1]} & set(GENERATED)]
    anchors = {
        target: {slugify(heading, "-") for heading in re.findall(r"^#+ (.*)$", texts[target], re.MULTILINE)}
        for _, target, _ in links
    }
    assert links
    assert [(page.name, anchor) for page, target, anchor in links if anchor not in anchors[target]] == []


# Wordings of messages and pages that readers stumbled over. "There is no ..." is usual English.
STUMBLED_OVER = re.compile(
    r"\bmend|\bto be had\b|\bstands? twice\b|\bnever reached\b"
    r"|\b(?:was|were|is|are) due\b(?! to)|\bfor who has\b|\banew\b"
    r"|\bwant of time\b|\bhas an owner\b|\bnot shown to be\b|\bwho clones\b"
    r"|(?<![Tt]here )\b(?:is|are) no (?:valid|[A-Z])"
)


def texts(file: Path) -> list[str]:
    """What a reader may see of a file: the strings of a Python module without its docstrings, else all of it."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        return text.splitlines()
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return [line for node in strings if isinstance(node.value, str) for line in node.value.splitlines()]


def test_messages_and_pages_use_plain_words() -> None:
    folders = ("packager/edgepack", "runtime/edgepack_runtime", "deploy", "templates", "docs")
    kinds = (".py", ".toml", ".sh", ".txt", ".jinja", ".yaml", ".yml", ".md")
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*")) if file.suffix in kinds]
    files += [*READMES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    lines = [(file, line) for file in files for line in texts(file)]
    assert len(files) > 400 and len(lines) > 10_000
    assert [f"{file.relative_to(ROOT)}: {line}" for file, line in lines if STUMBLED_OVER.search(line)] == []


def test_the_navigation_has_every_page_once() -> None:
    named = re.findall(
        r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in (*PAGES, *GENERATED))


def test_pages_that_messages_and_comments_name_exist() -> None:
    folders = ("packager", "runtime", "recipes", "docs", "benchmarks", "scripts")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    files = [path for path in paths if path.suffix in {".py", ".yaml", ".yml", ".md", ".toml", ""}]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()]
    named = {name for text in texts for name in re.findall(r"\bdocs/[\w/-]+\.md\b", text)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_walk_through_the_code_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    paths = [
        path.as_posix() for folder in ("packager", "runtime", "scripts", "tests") for path in (ROOT / folder).rglob("*")
    ]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page)
    assert len(named) > 50
    made = "dist/"  # by builds
    assert [name for name in named if name != made and not any(p.endswith(f"/{name.rstrip('/')}") for p in paths)] == []
    assert len(page.splitlines()) <= 60


def test_the_route_of_a_recipe_is_that_of_the_imports() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts/route.py")], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["lost"]) == (0, [])
    assert found["files"] <= 60 and found["climbs"] <= 29
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    assert f"each of the {found['files']} files" in page and f"{found['climbs']} climbs" in page


def test_the_page_of_stages_has_each_stage_in_order() -> None:
    page = (ROOT / "docs/reference/stages.md").read_text(encoding="utf-8")
    table = page.partition("## Stages\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| (\w+) \|", table, flags=re.MULTILINE)[1:]) == STAGES


@pytest.mark.parametrize("name", ["peers.svg", "peers.zh-CN.svg"])
def test_the_chart_of_the_readme_is_current(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "peers_chart.py"), str(tmp_path / name)], check=True)
    assert (tmp_path / name).read_bytes() == (ROOT / "docs" / name).read_bytes()


RECORDED = re.compile(
    r'<text style="animation-delay:([0-9.]+)s"[^>]* x="([0-9.]+)"[^>]* textLength="([0-9.]+)"[^>]*>([^<]*)'
)


def test_a_recording_appears_line_by_line_and_a_chinese_character_takes_two_columns(tmp_path: Path) -> None:
    command = ["sh", "-c", "printf '门禁：通过  pass\\n准确率      a < b\\n'"]
    target = tmp_path / "recorded.svg"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "record.py"), str(target), *command], check=True)
    found = RECORDED.findall(target.read_text(encoding="utf-8"))
    texts = [(float(x) / 12.2, float(wide) / 12.2, html.unescape(text)) for _, x, wide, text in found]
    assert texts[0][2].startswith("$\xa0sh")
    assert [(round(x, 6), round(wide, 6), text) for x, wide, text in texts[-4:]] == [
        (0, 10, "门禁：通过"), (10, 6, "\xa0\xa0pass"), (0, 6, "准确率"), (6, 11, "\xa0" * 6 + "a\xa0<\xa0b"),
    ]  # fmt: skip
    delays = [float(delay) for delay, *_ in found]
    assert delays == sorted(delays) and len(set(delays)) >= 3


@pytest.mark.parametrize("name", ["demo.svg", "demo.zh-CN.svg", "quickstart.svg"])
def test_recordings_of_the_docs_have_the_widths_of_a_terminal(name: str) -> None:
    found = RECORDED.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(found) > 30
    assert all(float(wide) == pytest.approx(12.2 * cell_len(html.unescape(text))) for *_, wide, text in found)


COMMANDS = [(page, command) for page in (*PAGES, *READMES) for command in commands(page)]


def accept(program: str, arguments: list[str]) -> None:
    if program.endswith("edgepack") and "." not in Path(program).name:
        parse_build_side(arguments)
    elif program.endswith("edgert"):
        build_parser(Context("edgert", None, None)).parse_args(arguments)
    else:
        if not program.endswith(".edgepack") and arguments[-1:] and arguments[-1].endswith(".edgepack"):
            arguments = arguments[:-1]  # an installed release takes the file of a newer one
        build_parser(Context(program, Path("x.edgepack"), None)).parse_args(arguments)


def test_the_parser_accepts_every_command_of_the_pages() -> None:
    for page, (program, *arguments) in COMMANDS:
        try:
            accept(program, arguments)
        except (click.UsageError, UsageError) as error:
            pytest.fail(f"{page}: {program} {arguments}: {error}")


def test_commands_with_wrong_options_are_found() -> None:
    with pytest.raises(click.UsageError):
        parse_build_side(["build", "recipe.yaml", "--restart"])
    with pytest.raises(click.UsageError):
        parse_build_side(["completion"])
    with pytest.raises(UsageError):
        build_parser(Context("x", Path("x.edgepack"), None)).parse_args(["predict", "--restart"])
    assert len(COMMANDS) > 150


def test_titles_of_command_blocks_are_those_of_the_convention() -> None:
    for page in PAGES:
        assert {block.title for block in blocks(page)} <= {"", *TITLES}, page


def test_the_home_page_explains_every_title() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [title for title in TITLES if f"*{title}*" not in home] == []


TRANSLATED = sorted((ROOT / "docs").rglob("*.zh-CN.md"))


def test_every_how_to_and_tutorial_is_translated() -> None:
    pages = {page.with_suffix("").name for page in PAGES if page.parent.name in ("how-to", "tutorial")}
    assert {page[: -len(".zh-CN")] for page in pages if page.endswith(".zh-CN")} == {
        page for page in pages if not page.endswith(".zh-CN")
    }


def test_translations_have_the_same_commands() -> None:
    for page in TRANSLATED:
        english = page.with_name(page.name.replace(".zh-CN.md", ".md"))
        theirs, ours = ([(b.title, commands_of(b.text)) for b in blocks(file)] for file in (page, english))
        assert theirs == ours, page
        headings, wanted = (file.read_text(encoding="utf-8").count("\n## ") for file in (page, english))
        assert headings == wanted, page


def test_how_tos_readmes_and_explanations_are_short() -> None:
    for page in (*PAGES, *READMES):
        limit = 120 if page in READMES else 75 if page.parent.name == "how-to" else 500
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= limit, page
        assert page.parent.name != "explanation" or len(text.split()) <= 900, page


PREDICTING = (ROOT / "docs" / "reference" / "predict.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PREDICTING, flags=re.DOTALL))
def test_the_examples_of_predicting_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    write_model_folder(tmp_path / "model")
    (tmp_path / "reviews.txt").write_text("很好\n太差\n好\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "predict.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_the_bad_rows_on_the_page_of_predict_are_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model_folder(tmp_path / "model")
    (tmp_path / "reviews.csv").write_text("id,text\n" + "1,好\n" * 15 + "2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    arguments = ["predict", "--model", "model", "--input", "reviews.csv", "--output", "out.jsonl"]
    assert main.run(arguments, Context("edgert", None, None)) == 0
    for name in ("out.jsonl.errors.jsonl", "out.jsonl"):
        line = (tmp_path / name).read_text(encoding="utf-8").splitlines()[-1]
        assert f"`{line}`" in PREDICTING
        assert json.loads(line)


def test_the_page_of_predicting_names_every_option() -> None:
    [verbs] = [action for action in build_parser(Context("edgert", None, None))._actions if action.dest == "verb"]
    assert isinstance(verbs.choices, dict)
    options = verbs.choices["predict"]._option_string_actions
    assert [option for option in options if option not in PREDICTING and option not in ("-h", "--help")] == []
