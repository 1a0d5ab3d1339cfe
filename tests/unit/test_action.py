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
while [ "$1" != --dist ]; do shift; done
[ "${CODE:-0}" = 3 ] || { mkdir -p "$2"; echo "## Gate: pass" > "$2/a-1.0.0.report.md"; }
echo "::add-mask::x"
exit "${CODE:-0}"
"""
GH = """\
#!/bin/sh
[ -z "$FORK" ] || { echo "HTTP 403: Resource not accessible by integration" >&2; exit 1; }
echo "$*" >> "$RUNNER_TEMP/gh"
case "$*" in *--jq*) [ ! -f "$RUNNER_TEMP/id" ] || cat "$RUNNER_TEMP/id" ;; *POST*) echo 17 > "$RUNNER_TEMP/id" ;; esac
"""


class Runner:
    """A folder with a checkout, and the environment of a step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temp = folder, folder / "temp"
        (folder / "bin").mkdir(parents=True)
        (self.temp / "edgepack" / "bin").mkdir(parents=True)
        self._program(self.temp / "edgepack" / "bin" / "edgepack", EDGEPACK)
        self._program(folder / "bin" / "gh", GH)

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def names(self, **inputs: str) -> dict[str, str]:
        """The outputs of the step `names`."""
        assert self._run("names", {}, inputs).returncode == 0
        return dict(line.split("=", 1) for line in self.text("output").splitlines())

    def arguments(self, **inputs: str) -> list[str]:
        """The first arguments of a build. No result lies in the checkout, where a pull request could bring some."""
        dist = self.names(**inputs)["dist"]
        assert Path(dist).parent == self.temp
        recipe = inputs.get("recipe", "recipe.yaml")
        return ["build", recipe, "--strict", "--workspace", f"{self.folder}/.cache/edgepack/stages", "--dist", dist]

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step. `inputs` are those of the action; further names are variables."""
        return self._run(name, self.names(**inputs), inputs)

    def _run(self, name: str, names: dict[str, str], inputs: dict[str, str]) -> subprocess.CompletedProcess[str]:
        defaults = {key: str(about["default"]) for key, about in ACTION["inputs"].items()}
        values = {f"${{{{ inputs.{key} }}}}": inputs.get(key, default) for key, default in defaults.items()}
        values |= {f"${{{{ steps.names.outputs.{key} }}}}": value for key, value in names.items()}
        values |= {"${{ github.event.number }}": "7", "${{ inputs.token }}": "secret"}
        values |= {"${{ github.event.pull_request.head.sha || github.sha }}": "0123456789abcdef"}
        (self.temp / "output").unlink(missing_ok=True)
        step = STEPS[name]
        assert "${{" not in step["run"], "an expression in a script is code of whoever names a branch"
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.temp), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_REPOSITORY": "me/mine",
            "GITHUB_SERVER_URL": "https://github.example", "GITHUB_RUN_ID": "5",
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
    inputs = {"recipe": "a b.yaml", "targets": "local,linux"}
    done = runner.run("build", **inputs, CODE=str(code))
    assert done.returncode == code
    assert runner.text("output") == f"exit-code={code}\n"
    assert runner.text("arguments").splitlines() == [*runner.arguments(**inputs), "--set", "targets=[local,linux]"]
    assert runner.text("summary") == "Commit 01234567:\n\n## Gate: pass\n"
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("::stop-commands::") and last == f"::{first.removeprefix('::stop-commands::')}::"


def test_without_targets_those_of_the_recipe_stay(runner: Runner) -> None:
    assert runner.run("build").returncode == 0
    assert runner.text("arguments").splitlines() == runner.arguments()


def test_every_line_of_set_is_one_value(runner: Runner) -> None:
    value = "sign.key=a b\"c'$(touch x)`touch x`*"
    assert runner.run("build", set=f"{value}\n\ngates.golden.rows=9\n").returncode == 0
    rest = runner.text("arguments").splitlines()[7:]
    assert rest == ["--set", value, "--set", "gates.golden.rows=9"]
    assert not (runner.folder / "x").exists()


def test_uses_with_other_recipes_or_targets_share_neither_results_nor_comments(runner: Runner) -> None:
    used = [{}, {"recipe": "b.yaml"}, {"targets": "linux"}, {"recipe": "recipe.yaml\nlinux"}, {"RUNNER_ARCH": "ARM64"}]
    made = [runner.names(**inputs) for inputs in [*used, {"set": "version=1.2.0"}]]
    assert len({names["key"] for names in made}) == len({names["dist"] for names in made}) == len(used) + 1
    assert len({names["stages"] for names in made}) == len(used) and made[0]["stages"] == made[-1]["stages"]
    steps = ACTION["runs"]["steps"]
    assert steps[0]["name"] == "names"
    named = [step["with"].get("name") or step["with"].get("key") for step in steps if "@" in step.get("uses", "")]
    assert sum("${{ steps.names.outputs.stages }}" in str(name) for name in named) == 1  # of the cache
    assert sum("${{ steps.names.outputs.key }}" in str(name) for name in named) == 1  # of the artifacts
    assert {step["env"].get("KEY") for step in steps if "env" in step} == {None, "${{ steps.names.outputs.key }}"}


def test_the_outputs_are_the_folder_and_the_program(runner: Runner) -> None:
    names = runner.names()
    assert names["edgepack"] == str(runner.temp / "edgepack" / "bin" / "edgepack")
    for key in ("dist", "edgepack"):
        assert ACTION["outputs"][key]["value"] == f"${{{{ steps.names.outputs.{key} }}}}"


def test_the_comment_is_written_once_and_then_edited(runner: Runner) -> None:
    runner.run("build")
    for method, place in (("POST", "issues/7/comments"), ("PATCH", "issues/comments/17")):
        done = runner.run("comment")
        assert done.returncode == 0, done.stderr
        assert f"--method {method} repos/me/mine/{place} -F body=@" in runner.text("gh").splitlines()[-1]
    mark, commit, _, body = runner.text("comment.md").splitlines()
    assert mark.startswith("<!-- edgepack: ") and commit == "Commit 01234567:" and body == "## Gate: pass"
    runner.run("comment", recipe="another.yaml")
    assert runner.text("comment.md").splitlines()[0] != mark


def test_a_build_without_a_verdict_replaces_the_comment(runner: Runner) -> None:
    log = "see [the log](https://github.example/me/mine/actions/runs/5)."
    assert runner.run("comment").returncode == 0
    mark, text = runner.text("comment.md").splitlines()
    assert text == f"The build of commit 01234567 ended without a verdict: {log}"
    assert runner.run("build", CODE="3").returncode == 3
    assert runner.text("summary") == f"The build of commit 01234567 ended with exit code 3, without a verdict: {log}\n"
    assert runner.run("comment").returncode == 0
    assert runner.text("comment.md") == f"{mark}\n{runner.text('summary')}"
    assert "--method PATCH" in runner.text("gh").splitlines()[-1]


def test_a_comment_that_cannot_be_written_is_a_warning(runner: Runner) -> None:
    runner.run("build")
    done = runner.run("comment", FORK="yes")
    assert done.returncode == 0
    assert "403" in done.stderr
    assert done.stdout.startswith("::warning::The comment was not written")


def test_the_install_takes_locked_packages_and_then_the_action_itself(runner: Runner) -> None:
    shutil.rmtree(runner.temp / "edgepack")
    log = json.dumps(str(runner.temp / "pip"))
    python = f'#!/bin/sh\necho "$PIP_CACHE_DIR $*" >> {log}\n'
    make = f"""mkdir -p "$3/bin"\ncat > "$3/bin/python" <<'END'\n{python}END\nchmod 755 "$3/bin/python"\n"""
    runner._program(runner.folder / "bin" / "python3", f"#!/bin/sh\n{make}")
    done = runner.run("install edgepack")
    assert done.returncode == 0, done.stderr
    *locked, own = runner.text("pip").splitlines()
    assert len(locked) == 2 and all("--require-hashes" in line for line in locked)
    assert own.endswith(f"--no-deps --no-build-isolation {ROOT}")
    assert all(line.startswith(f"{runner.folder}/.cache/edgepack/pip ") for line in (*locked, own))


def test_other_actions_are_pinned_and_artifacts_are_globs() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert used and all(len(name.partition("@")[2]) == 40 for name in used)
    [upload] = [step for step in ACTION["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert all("*" in path for path in upload["with"]["path"].splitlines())


def test_the_cache_is_saved_after_a_missed_gate() -> None:
    steps = ACTION["runs"]["steps"]
    [restore], [save] = (
        [step for step in steps if f"cache/{kind}@" in step.get("uses", "")] for kind in ("restore", "save")
    )
    assert restore["uses"].partition("@")[2] == save["uses"].partition("@")[2]
    assert save["if"] == "always()"
    assert save["with"] == {
        "path": restore["with"]["path"],
        "key": f"${{{{ steps.{restore['id']}.outputs.cache-primary-key }}}}",
    }
    assert (
        steps.index(restore) < steps.index(STEPS["install edgepack"]) < steps.index(STEPS["build"]) < steps.index(save)
    )
    assert "~/.cache/edgepack" in save["with"]["path"].splitlines()


def test_the_reference_lists_every_input_and_output_with_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8").partition("## Action\n")[2]
    action, component = page.split("## Component")
    inputs = YAML(typ="safe", pure=True).load((ROOT / "templates" / "edgepack.yml").read_text().split("\n---")[0])
    for part, names in ((action, [*ACTION["inputs"], *ACTION["outputs"]]), (component, inputs["spec"]["inputs"])):
        assert [line.split("`")[1] for line in part.splitlines() if line.startswith("| `")] == list(names)
    for name, value in {**ACTION["inputs"], **inputs["spec"]["inputs"]}.items():
        default = value.get("default")
        if isinstance(default, str) and default and name != "token":
            assert f"| `{name}` | `{default}` |" in page
