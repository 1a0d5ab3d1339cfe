"""The examples for CI servers are YAML of the form these read, and what they run exists."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from edgepack.cli import main
from edgepack.gating import address
from edgepack.recipe import loader
from edgepack.targets.profiles import load_profiles

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples"
PROGRAMS = {".venv/bin/edgepack": "install", ".venv-light/bin/edgepack": "install-light"}  # and what makes each


EACH = pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(FOLDER / name)
    return document


def jobs(name: str) -> dict[str, list[str]]:
    """The command lines of each job, which may run on a machine of its own."""
    document = example(name)
    if name == "github-actions.yml":
        steps = {job: about["steps"] for job, about in document["jobs"].items()}
        assert all(("run" in step) != ("uses" in step) for one in steps.values() for step in one)
        texts = {job: [step["run"] for step in found if "run" in step] for job, found in steps.items()}
    else:
        assert all(document[stage]["stage"] in document["stages"] for stage in document["stages"])
        texts = {stage: document[stage]["script"] for stage in document["stages"]}
    lines = {job: [text.replace("\\\n", " ").splitlines() for text in found] for job, found in texts.items()}
    return {job: list(itertools.chain.from_iterable(found)) for job, found in lines.items()}


def scripts(name: str) -> list[str]:
    """Every command line of an example."""
    return list(itertools.chain.from_iterable(jobs(name).values()))


def commands(name: str) -> list[list[str]]:
    """Those of edgepack, without the program."""
    words = [shlex.split(line) for line in scripts(name)]
    return [line[1:] for line in words if line and line[0] in PROGRAMS]


@EACH
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
            targets = load_profiles(None)
            recipe = loader.load_recipe(ROOT / given["recipe"], targets, given["settings"])
        else:
            (bundle,) = given["bundles"]
            assert bundle == f"recipes/dist/{recipe.name}-{recipe.version}-{recipe.targets[0]}.edgepack"
            assert all(address.parse(target) for target in given["targets"])


def test_what_devices_say_is_no_command_to_the_runner() -> None:
    lines = scripts("github-actions.yml")
    (gate,) = (number for number, line in enumerate(lines) if " gate " in line)
    before = lines[gate - 4 : gate]
    assert before[0].startswith("token=")
    assert before[1:] == ["trap 'echo \"::$token::\"' EXIT", "exec 2>&1", 'echo "::stop-commands::$token"']


@EACH
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


@EACH
def test_every_job_makes_the_environment_that_it_runs(name: str) -> None:
    for lines in jobs(name).values():
        made: set[str] = set()
        ran = 0
        for words in map(str.split, lines):
            if words[0] == "make":
                made.update(words[1:])
            elif words[0] in PROGRAMS:
                assert PROGRAMS[words[0]] in made
                ran += 1
        assert ran


@pytest.mark.parametrize(
    ("name", "programs"),
    [("github-actions.yml", {"gh", "make"}), ("gitlab-ci.yml", {"make"})],
    ids=["GitHub", "GitLab"],
)
def test_what_a_runner_of_ones_own_has_to_have_is_named(name: str, programs: set[str]) -> None:
    """Beside what every system has; `ssh` is what a gate on a device runs, and `python3` what `make` does."""
    shell = {"umask", "printf", "token=$(cat", "trap", "exec", "echo", "chmod"}
    first = {line.split()[0] for line in scripts(name)} - shell - PROGRAMS.keys()
    assert first == programs
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    head = " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert all(f"`{program}`" in head for program in {*programs, "ssh", "python3"})
    assert ("`gh`" in head) is ("gh" in programs)


def test_a_bundle_alone_goes_from_one_job_to_the_next() -> None:
    assert example("gitlab-ci.yml")["build"]["artifacts"] == {"paths": ["recipes/dist/*.edgepack"]}


def test_no_pull_request_cancels_the_gate_of_another() -> None:
    """Of one group GitHub lets one run and one wait: a third would cancel the second, which then has no gate."""
    concurrency = example("github-actions.yml")["concurrency"]
    assert concurrency == {"group": "gate-${{ github.ref }}", "cancel-in-progress": True}
