"""`edgepack demo`: each command is printed and run, and one that ends otherwise is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgepack import cli
from edgepack.commands import demo

FIRST = demo._Step("First.", ("echo 好 > a.txt", "cat a.txt recipe.yaml"))


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli.main, ["demo", *arguments])
    return found.exit_code, found.output


def test_commands_are_printed_with_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_STEPS", (FIRST, demo._Step("Refused.", ("true", "echo no >&2; exit 8"), 8)))
    code, said = run("--keep", str(tmp_path / "new" / "demo"))
    assert code == 0
    assert "1. First.\n$ echo 好 > a.txt\n$ cat a.txt recipe.yaml\n  好\n  edgepack: 1\n" in said
    assert "2. Refused.\n$ true\n$ echo no >&2; exit 8\n  no\n" in said
    assert sorted(path.name for path in (tmp_path / "new" / "demo").iterdir()) == ["a.txt", "recipe.yaml"]


@pytest.mark.parametrize(("command", "code"), [("exit 3", 0), ("true", 8)])
def test_a_command_that_ends_otherwise_ends_the_demo(command: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_STEPS", (demo._Step("Next.", (command,), code), FIRST))
    found, said = run()
    assert found == 5
    assert command in said and "First." not in said


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    assert run("--keep", str(tmp_path))[0] == 2
    assert list(tmp_path.iterdir()) == []
