"""action.yml: its steps are run as a runner runs them, with stand-ins for edgepack, pip and GitHub."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / "action.yml")
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"] if "run" in step}
EDGEPACK = """\
#!/bin/sh
printf '%s\\n' "$@" > "$RUNNER_TEMP/arguments"
mkdir -p "$RUNNER_TEMP/dist"
echo "## Gate: pass" > "$RUNNER_TEMP/dist/a-1.0.0.report.md"
echo "::add-mask::x"
exit "${CODE:-0}"
"""
GH = """\
#!/bin/sh
echo "$*" >> "$RUNNER_TEMP/gh"
case "$*" in *--jq*) [ ! -f "$RUNNER_TEMP/id" ] || cat "$RUNNER_TEMP/id" ;; *POST*) echo 17 > "$RUNNER_TEMP/id" ;; esac
"""


class Runner:
    """A folder with a checkout, and the environment of a step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temp = folder, folder / "temp"
        # Outside of the checkout, where a pull request could bring results.
        self.places = ["--workspace", f"{folder}/.cache/edgepack/stages", "--dist", f"{self.temp}/dist"]
        (folder / "bin").mkdir(parents=True)
        (self.temp / "edgepack" / "bin").mkdir(parents=True)
        self._program(self.temp / "edgepack" / "bin" / "edgepack", EDGEPACK)
        self._program(folder / "bin" / "gh", GH)

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step. `inputs` are those of the action; further names are variables."""
        defaults = {key: str(about["default"]) for key, about in ACTION["inputs"].items()}
        values = {f"${{{{ inputs.{key} }}}}": inputs.get(key, default) for key, default in defaults.items()}
        values |= {"${{ github.event.number }}": "7", "${{ inputs.token }}": "secret"}
        step = STEPS[name]
        assert "${{" not in step["run"], "an expression in a script is code of whoever names a branch"
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.temp), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_REPOSITORY": "me/mine",
            "GITHUB_OUTPUT": str(self.temp / "output"), "GITHUB_STEP_SUMMARY": str(self.temp / "summary"),
            **{key: values[value] for key, value in step.get("env", {}).items()},
            **{key: value for key, value in inputs.items() if key.isupper()},
        }  # fmt: skip
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def text(self, name: str) -> str:
        return (self.temp / name).read_text()


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path / "runner")


@pytest.mark.parametrize("code", [0, 6, 7])
def test_the_build_has_its_exit_code_and_a_summary(runner: Runner, code: int) -> None:
    done = runner.run("build", recipe="a b.yaml", targets="local,linux", CODE=str(code))
    assert done.returncode == code
    assert runner.text("arguments").splitlines() == [
        "build",
        "a b.yaml",
        *runner.places,
        "--set",
        "targets=[local,linux]",
    ]
    assert runner.text("output") == f"exit-code={code}\n"
    assert runner.text("summary") == "## Gate: pass\n"
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("::stop-commands::") and last == f"::{first.removeprefix('::stop-commands::')}::"


def test_without_targets_those_of_the_recipe_stay(runner: Runner) -> None:
    assert runner.run("build").returncode == 0
    assert runner.text("arguments").splitlines() == ["build", "recipe.yaml", *runner.places]


def test_the_comment_is_written_once_and_then_edited(runner: Runner) -> None:
    assert runner.run("comment").returncode == 0, "no report: nothing to write"
    assert not (runner.temp / "gh").exists()
    runner.run("build")
    for method, place in (("POST", "issues/7/comments"), ("PATCH", "issues/comments/17")):
        done = runner.run("comment")
        assert done.returncode == 0, done.stderr
        assert f"--method {method} repos/me/mine/{place} -F body=@" in runner.text("gh").splitlines()[-1]
    mark, body = runner.text("comment.md").splitlines()
    assert mark.startswith("<!-- edgepack: ") and body == "## Gate: pass"
    runner.run("comment", recipe="another.yaml")
    assert runner.text("comment.md").splitlines()[0] != mark


def test_the_install_takes_locked_packages_and_then_the_action_itself(runner: Runner) -> None:
    shutil.rmtree(runner.temp / "edgepack")
    log = json.dumps(str(runner.temp / "pip"))
    python = f'#!/bin/sh\necho "$*" >> {log}\n'
    make = f"""mkdir -p "$3/bin"\ncat > "$3/bin/python" <<'END'\n{python}END\nchmod 755 "$3/bin/python"\n"""
    runner._program(runner.folder / "bin" / "python3", f"#!/bin/sh\n{make}")
    done = runner.run("install edgepack")
    assert done.returncode == 0, done.stderr
    *locked, own = runner.text("pip").splitlines()
    assert len(locked) == 2 and all("--require-hashes" in line for line in locked)
    assert own.endswith(f"--no-deps --no-build-isolation {ROOT}")


def test_other_actions_are_pinned_and_artifacts_are_globs() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert used and all(len(name.partition("@")[2]) == 40 for name in used)
    [upload] = [step for step in ACTION["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert all("*" in path for path in upload["with"]["path"].splitlines())
