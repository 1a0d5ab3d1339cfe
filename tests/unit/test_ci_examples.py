"""The examples for CI servers are YAML of the form these read, and what they run exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from edgepack.cli import main
from edgepack.recipe import load
from edgepack.targets import address
from edgepack.targets.profiles import load_profiles

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples"


def scripts(name: str) -> Iterator[str]:
    """Every command line of an example."""
    document = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    if name == "github-actions.yml":
        steps = [step for job in document["jobs"].values() for step in job["steps"]]
        assert all(("run" in step) != ("uses" in step) for step in steps)
        lines = [step["run"] for step in steps if "run" in step]
    else:
        jobs = [document[stage] for stage in document["stages"]]
        assert all(job["stage"] in document["stages"] for job in jobs)
        lines = [line for job in jobs for line in job["script"]]
    for text in lines:
        yield from text.splitlines()


def commands(name: str) -> list[list[str]]:
    """Those of edgepack, without the program."""
    words = [shlex.split(line) for line in scripts(name)]
    return [line[1:] for line in words if line and line[0] == ".venv/bin/edgepack"]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_every_command_is_one(name: str) -> None:
    found = commands(name)
    assert [line[0] for line in found] == ["build", "gate"]
    for verb, *arguments in found:
        context = click.Context(main)
        command = main.get_command(context, verb)
        assert command is not None
        options, rest, _ = command.make_parser(click.Context(command)).parse_args(list(arguments))
        assert rest == []
        given: dict[str, Any] = options
        if verb == "build":
            targets = {one: tuple(profile.engines) for one, profile in load_profiles(None).items()}
            recipe = load.load_recipe(ROOT / given["recipe"], targets, given["settings"])
        else:
            (bundle,) = given["bundles"]
            assert bundle == f"dist/{recipe.name}-{recipe.version}-{recipe.targets[0]}.edgepack"
            assert all(address.parse(target) for target in given["targets"])


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_what_is_made_is_what_is_shown(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    for option in ("--junit", "--markdown", "--receipts"):
        (made,) = re.findall(rf"{option} (\S+)", text)
        assert len(re.findall(rf"\b{re.escape(made)}\b", text)) > 1
    targets = re.findall(r"^\t?\s*- make (\S+)|^\s*make (\S+)$", text, flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets
    for target in map("".join, targets):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
