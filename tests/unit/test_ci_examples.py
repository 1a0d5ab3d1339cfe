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
from edgepack.targets.profile_file import load_profiles

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples"
PROGRAMS = {"$EDGEPACK", "$made/.venv-light/bin/edgepack"}
EACH = pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(FOLDER / name)
    return document


def steps() -> list[dict[str, Any]]:
    """Those of the one job on GitHub."""
    [job] = example("github-actions.yml")["jobs"].values()
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    found: list[dict[str, Any]] = job["steps"]
    return found


def scripts(name: str) -> list[str]:
    """Every command line of an example."""
    if name == "github-actions.yml":
        texts = [step["run"] for step in steps() if "run" in step]
    else:
        texts = example(name)["gate"]["script"]
    return list(itertools.chain.from_iterable(text.replace("\\\n", " ").splitlines() for text in texts))


def inputs(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an example gives the action or the component, and the inputs that this takes."""
    documents = YAML(typ="safe", pure=True)
    if name == "github-actions.yml":
        [given] = [step["with"] for step in steps() if step.get("id") == "edgepack"]
        return given, documents.load(ROOT / "action.yml")["inputs"]
    [used] = example(name)["include"]
    head, _ = documents.load_all(ROOT / "templates" / "edgepack.yml")
    return used["inputs"], head["spec"]["inputs"]


@EACH
def test_what_is_given_is_an_input(name: str) -> None:
    given, taken = inputs(name)
    assert given.keys() <= taken.keys()
    assert {key for key, about in taken.items() if "default" not in about} <= given.keys()
    assert given["targets"] in load_profiles(None)


@EACH
def test_the_gate_is_a_command_on_the_bundle_that_was_built(name: str) -> None:
    [(verb, *arguments)] = [words[1:] for words in map(shlex.split, scripts(name)) if words[0] in PROGRAMS]
    assert verb == "gate"
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    options, rest, _ = command.make_parser(click.Context(command)).parse_args(list(arguments))
    assert rest == []
    given: dict[str, Any] = options
    [bundle] = given["bundles"]
    dist = "$DIST" if name == "github-actions.yml" else "dist"
    assert bundle == f"{dist}/*-{inputs(name)[0]['targets']}.edgepack"
    assert all(address.parse(target) for target in given["targets"])


def test_the_gate_takes_the_outputs_of_the_action() -> None:
    [gate] = [step for step in steps() if " gate " in step.get("run", "")]
    assert gate["env"] == {name.upper(): f"${{{{ steps.edgepack.outputs.{name} }}}}" for name in ("dist", "edgepack")}
    outputs = YAML(typ="safe", pure=True).load(ROOT / "action.yml")["outputs"]
    assert {"dist", "edgepack"} <= outputs.keys()


def test_the_gate_takes_the_artifacts_of_the_component() -> None:
    document = example("gitlab-ci.yml")
    _, component = YAML(typ="safe", pure=True).load_all(ROOT / "templates" / "edgepack.yml")
    [needed] = document["gate"]["needs"]
    assert "dist/*.edgepack" in component[needed]["artifacts"]["paths"]
    assert document["stages"] == [inputs("gitlab-ci.yml")[0]["stage"], document["gate"]["stage"]]
    (tree,) = {path for line in scripts("gitlab-ci.yml") for path in re.findall(r"make -C (\S+) install-light", line)}
    assert tree == '"$made"'
    assert re.search(r"^install-light:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)


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


@pytest.mark.parametrize(
    ("name", "programs", "named"),
    [
        ("github-actions.yml", set(), {"gh", "ssh"}),
        ("gitlab-ci.yml", {"git", "make"}, {"git", "make", "ssh", "python3"}),
    ],
    ids=["GitHub", "GitLab"],
)
def test_what_a_runner_of_ones_own_has_to_have_is_named(name: str, programs: set[str], named: set[str]) -> None:
    """Beside what every system has; the action runs `gh`, a gate on a device `ssh`, and `make` `python3`."""
    shell = {"umask", "printf", "token=$(cat", "trap", "exec", "echo", "chmod", "cat", "made=$(mktemp"}
    first = {line.split()[0].strip('"') for line in scripts(name)} - shell - PROGRAMS
    assert first == programs
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    head = " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert {program for program in ("gh", "git", "make", "python3", "ssh") if f"`{program}`" in head} == named


@EACH
def test_an_example_needs_nothing_of_this_tree(name: str) -> None:
    """A repository of one's own has no Makefile and no recipes/ of edgepack."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert not re.search(r"make install\b(?!-)|recipes/|\.venv/", text)


def test_no_pull_request_cancels_the_gate_of_another() -> None:
    """Of one group GitHub lets one run and one wait: a third would cancel the second, which then has no gate."""
    concurrency = example("github-actions.yml")["concurrency"]
    assert concurrency == {"group": "gate-${{ github.ref }}", "cancel-in-progress": True}
