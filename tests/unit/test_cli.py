"""The command line: bad input ends at once with file, line, reason and exit code 3, before anything is trained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.stage_lists import Begun, begun, known, ordered
from tests.unit.conftest import TINY_RECIPE
from tests.unit.forged import commands

from edgepack import cli
from edgepack.artifacts import ModelArtifact, ScalesArtifact
from edgepack.commands import options
from edgepack.errors import StageFailedError
from edgepack.evaluation import Latency
from edgepack.results import Build
from edgepack_runtime.errors import ExitCode


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        file = project / name
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    return change


def test_a_valid_recipe_passes(project: Path) -> None:
    result = run("check", "r.yaml")
    assert result.exit_code == 0, result.output
    assert "valid (3 train, 3 dev, 3 test rows)" in result.output


@pytest.mark.parametrize("command", ["check", "build"])
@pytest.mark.parametrize(
    ("change", "place", "reason"),
    [
        (edit("r.yaml", "dev.tsv", "gone.tsv"), "r.yaml:6", "gone.tsv"),
        (edit("r.yaml", "student:\n", "studnet:\n"), "r.yaml:8", "did you mean `student`"),
        (edit("dev.tsv", "很差\t0", "很差\tmixed"), "dev.tsv:3", "mixed"),
        (edit("train.tsv", "差\t0", "\t0"), "train.tsv:3", "empty"),
        (edit("r.yaml", "name: tiny", "name: [tiny"), "r.yaml:", "YAML"),
    ],
    ids=["missing file", "unknown key", "unknown label in dev", "empty text", "broken YAML"],
)
def test_bad_input_is_named_with_file_and_line(
    project: Path, command: str, change: Callable[[Path], None], place: str, reason: str
) -> None:
    change(project)
    result = run(command, "r.yaml")
    assert result.exit_code == ExitCode.RECIPE_INVALID, result.output
    assert place in result.output
    assert reason in result.output
    assert "fix:" in result.output
    assert "Traceback" not in result.output
    assert not (project / "dist").exists()
    assert not [path for path in (project / ".edgepack").glob("*/*") if path.suffix != ".lock"]  # no result


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["build", "nothing.yaml"], ExitCode.RECIPE_INVALID), (["verify", "r.yaml"], ExitCode.BUNDLE_INVALID)],
)
def test_a_missing_recipe_and_a_file_that_is_no_bundle_are_named(
    project: Path, arguments: list[str], code: ExitCode
) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert arguments[1] in result.output


def test_an_unexpected_error_is_one_line_and_exit_1(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(recipe: Path, settings: tuple[str, ...], profiles: Path | None) -> None:
        raise ZeroDivisionError("for once")

    monkeypatch.setattr(options, "load_recipe", break_down)
    result = run("check", "r.yaml")
    assert result.exit_code == ExitCode.UNEXPECTED
    assert "unexpected ZeroDivisionError: for once" in result.output
    assert "Traceback" not in result.output
    assert "Traceback" in run("-v", "check", "r.yaml").output


def test_the_text_of_an_unexpected_error_forges_no_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(recipe: Path, settings: tuple[str, ...], profiles: Path | None) -> None:
        raise ZeroDivisionError("odd\n::error::forged\x1b[8m")

    monkeypatch.setattr(options, "load_recipe", break_down)
    for arguments in ((), ("-v",)):
        output = run(*arguments, "check", "r.yaml").output
        assert ("Traceback" in output) == bool(arguments) and "forged" in output
        assert commands(output) == [] and "\x1b" not in output


def test_the_name_of_a_recipe_forges_no_line(project: Path) -> None:
    odd = (project / "r.yaml").rename(project / "::error::forged\x1b[8m\nr.yaml")
    output = run("check", odd.name).output
    assert "forged" in output and "\x1b" not in output
    assert commands(output) == [] and not [line for line in output.splitlines() if line.startswith("r.yaml")]


@pytest.mark.parametrize("before", [True, False])
def test_quiet_and_verbose_stand_before_or_after_the_command(
    project: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    def run_with(flag: str) -> Result:
        return run(flag, "check", "r.yaml") if before else run("check", "r.yaml", flag)

    assert "tokens in a text" in run("check", "r.yaml").stderr
    assert run_with("--quiet").stderr == ""
    (project / "r.yaml").write_text("x", encoding="utf-8")
    assert "Traceback" in run_with("-v").stderr
    assert "Traceback" not in run("check", "r.yaml").stderr


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)], ids=str)
def test_every_command_has_help(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_without_arguments_it_explains_itself() -> None:
    result = run()
    assert result.exit_code == ExitCode.USAGE
    assert "Usage:" in result.output
    assert "error:" not in result.output


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "edgepack.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("edgepack, version ")


def states(*arguments: str) -> dict[str, str]:
    """Stage -> state, as `edgepack plan` gives them."""
    result = run("plan", "r.yaml", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {stage["stage"]: stage["state"] for stage in json.loads(result.stdout)["stages"]}


def test_a_plan_lists_what_would_run(project: Path) -> None:
    first = states()
    # no teacher in this recipe
    assert known(first) == ordered({"data", "linear", "student", "quantize", "export", "combine", "bundle", "gate"})
    assert set(first.values()) == {"to run"}
    assert not (project / ".edgepack").exists()
    built = run("build", "r.yaml", "--until", "data")
    assert built.exit_code == 0, built.output
    assert "stopped after data (--until)" in built.stdout
    assert begun(built.stderr) == [Begun(1, len(first), "data", "", "")]
    assert begun(run("build", "r.yaml", "--until", "data").stderr) == [Begun(1, len(first), "data", "", "cached")]
    assert states() == {**first, "data": "cached"}
    assert states("--force") == first
    part = list(states("--until", "student").items())
    end = part.index(("student", "to run")) + 1
    assert [(stage, state) for stage, state in part[:end] if known([stage])] == [
        ("data", "cached"), ("linear", "to run"), ("student", "to run"),
    ]  # fmt: skip
    assert part[end:] == [(stage, "not asked for") for stage in list(first)[end:]]
    again = run("build", "r.yaml", "--until", "data", "--from", "data").stderr
    assert begun(again) == [Begun(1, len(first), "data", "", "--from data")]


def test_a_plan_shows_every_value_and_where_it_comes_from(project: Path) -> None:
    (project / "r.yaml").write_text(TINY_RECIPE + "  epochs: 2\n", encoding="utf-8")
    plan = json.loads(run("plan", "r.yaml", "--json").stdout)
    values = {value["key"]: (value["value"], value["given"]) for value in plan["values"]}
    assert values["student.epochs"] == (2.0, True)
    assert values["student.model.scratch.hidden"] == (8, True)
    assert values["student.batch_size"] == (32, False)
    assert values["student.distill"] == (None, False)  # there is no teacher
    assert values["teacher"] == (None, False)
    assert values["data.train"] == (str(project / "train.tsv"), True)
    assert values["data.train_rows"] == (None, False)
    text = run("plan", "r.yaml").stdout
    assert re.search(r"student\.batch_size +32  \(default\)\n", text)
    assert re.search(r"student\.epochs +2\.0\n", text)
    about = "at most 0.2 M weights; 2 steps of 32 (3 rows x 2 epochs, learning rate 0.01), cpu"
    assert f"\nstudent: {about}" in text


def test_a_plan_says_why_how_long_and_what_builds_it(project: Path) -> None:
    run("build", "r.yaml", "--until", "data")
    settings = ("--set", "student.epochs=2", "--until", "linear", "--offline", "-q")
    planned = run("plan", "r.yaml", *settings)
    assert re.search(r"\ndata +cached +result [0-9a-f]{12} *\n", planned.stdout)
    assert re.search(r"\nlinear +to run +\? +no result yet *\n", planned.stdout)
    assert "\nresults: .edgepack/STAGE/RESULT...\n" in planned.stdout
    assert planned.stdout.endswith(
        "\n1 stage of unknown time\nbuild it: edgepack build r.yaml --set student.epochs=2 --offline --until linear\n"
    )
    with (project / "train.tsv").open("a", encoding="utf-8") as stream:
        stream.write("早餐丰富\t1\n隔音太差\t0\n")
    document = json.loads(run("plan", "r.yaml", "--json").stdout)
    data, linear = document["stages"][:2]
    assert (data["why"], linear["why"]) == ("train: 2 rows more", "no result yet")
    assert data["estimate"]["source"] == "an earlier data"
    assert document["seconds"] >= data["estimate"]["seconds"]
    assert document["build"] == "edgepack build r.yaml"


SEARCH = "search={over: {student.epochs: [1, 2], student.seed: [3]}}"


def test_check_and_plan_list_the_candidates(project: Path) -> None:
    checked = run("check", "r.yaml", "--set", SEARCH)
    assert checked.exit_code == 0, checked.output
    assert "2 candidates:\n        epochs=1, seed=3\n        epochs=2, seed=3\n" in checked.stderr
    planned = run("plan", "r.yaml", "--set", SEARCH)
    assert re.search(r"\nstudent +to run +about \d+ s +epochs=1, seed=3; no result yet", planned.stdout)
    assert re.search(r"search\.over\.student\.epochs +\[1, 2\]\n", planned.stdout)
    refused = run("plan", "r.yaml", "--until", "select")
    assert refused.exit_code == ExitCode.USAGE
    assert "this recipe has no stage select" in refused.stderr


def test_a_candidate_that_was_left_out_does_not_pass_for_success(
    project: Path, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(stage: Any, ctx: Any, out: Path) -> ModelArtifact:
        if stage.section.epochs == 2:
            raise StageFailedError("student: it diverged", fix="a lower rate")
        return replace(built.student, folder=out)

    monkeypatch.setattr("edgepack.stages.train.StudentStage.run", train)
    monkeypatch.setattr("edgepack.stages.quantize.QuantizeStage.run", lambda _, ctx, out: ScalesArtifact(out, (), 0))
    monkeypatch.setattr("edgepack.stages.export.ExportStage.run", lambda _, ctx, out: replace(built.export, folder=out))
    monkeypatch.setattr("edgepack.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.evaluation.answers", lambda model, rows, *rest: [row.label for row in rows])
    monkeypatch.setattr("edgepack.evaluation.latency", lambda folders, *rest, stage: [Latency(1, 1, 2)])
    monkeypatch.setattr("edgepack.packages.wheels.fetch", lambda *inputs, **options: None)
    monkeypatch.setattr("edgepack.training.environment.versions", dict)
    arguments = ("build", "r.yaml", "--set", SEARCH, "--set", "linear=off", "--until", "select")
    ended = run(*arguments, "--keep-going")
    assert ended.exit_code == ExitCode.STAGE_FAILED
    assert "chosen: epochs=1, seed=3: the only candidate" in ended.stdout
    assert "not every candidate could be built: epochs=2, seed=3" in ended.stderr
    assert "fix: a lower rate" in ended.stderr
    stopped = run(*arguments)
    assert stopped.exit_code == ExitCode.STAGE_FAILED
    assert "error: student: it diverged" in stopped.stderr
    assert "chosen" not in stopped.stdout


def test_a_plan_counts_the_weights_that_a_pruned_student_keeps(project: Path) -> None:
    teacher = "teacher:\n  model: {scratch: {layers: 4, hidden: 312, heads: 12, max_vocabulary: 16}}\nstudent:\n"
    start, _, _ = TINY_RECIPE.partition("student:\n")
    millions = {}
    for width in (1, 0.5):
        student = f"  model: {{from: teacher, layers: 4, width: {width}}}\n"
        (project / "r.yaml").write_text(start + teacher + student, encoding="utf-8")
        found = re.search(r"\nstudent: (?:at most )?([0-9.]+) M weights", run("plan", "r.yaml").stdout)
        assert found is not None
        millions[width] = float(found[1])
    # Half of 4 x 312 x 312 and of 2 x 312 x 1248 in each of four layers.
    assert millions[1] - millions[0.5] == pytest.approx(4 * (2 * 312 * 312 + 312 * 1248) / 1e6, abs=0.1)


def test_an_environment_that_does_not_fit_shows_before_anything_runs(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: str) -> str:
        result = run(*arguments)
        assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
        assert not (project / ".edgepack").exists()
        return result.stderr

    assert "r.yaml/dist cannot be written" in refused("build", "r.yaml", "--dist", "r.yaml/dist")
    monkeypatch.setenv("EDGEPACK_CHECKPOINT_SECONDS", "often")
    for command in ("plan", "build"):
        assert "EDGEPACK_CHECKPOINT_SECONDS is 'often'" in refused(command, "r.yaml")


WHEEL = "onnxruntime_gpu-1.23.0-cp312-cp312-linux_aarch64.whl"
JETSON = ("--set", "targets=[jetpack7]")


def test_check_and_plan_name_a_missing_wheel_by_path(project: Path) -> None:
    checked = run("check", "r.yaml", *JETSON)
    assert checked.exit_code == 0, "--wheel may bring it"
    warning = " ".join(checked.stderr.split())
    assert "r.yaml: warning: target jetpack7 needs a wheel of onnxruntime-gpu that is given by path" in warning
    assert "write `wheels: {jetpack7: [FILE.whl]}` in the recipe, or add `--wheel FILE.whl`" in warning
    for result in (run(command, "r.yaml", *JETSON) for command in ("plan", "build")):
        assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
        assert "error: target jetpack7 needs a wheel of onnxruntime-gpu" in result.stderr
    (project / WHEEL).touch()
    assert run("plan", "r.yaml", *JETSON, "--wheel", WHEEL).exit_code == 0
    named = run("check", "r.yaml", *JETSON, "--set", f"wheels={{jetpack7: [{WHEEL}]}}")
    assert (named.exit_code, "needs a wheel" in named.stderr) == (0, False)


def test_a_wheel_that_does_not_fit_or_stands_twice_is_refused(project: Path) -> None:
    foreign = WHEEL.replace("aarch64", "x86_64")
    (project / foreign).touch()
    wheels = f"wheels={{jetpack7: [{foreign}]}}"
    for command in ("check", "plan"):
        result = run(command, "r.yaml", *JETSON, "--set", wheels)
        assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
        assert "x86_64, and the target is Linux on aarch64" in " ".join(result.stderr.split())
    (project / WHEEL).touch()
    twice = f"{TINY_RECIPE}targets: [jetpack7]\nwheels:\n  jetpack7:\n    - {WHEEL}\n    - ./{WHEEL}\n"
    (project / "r.yaml").write_text(twice, encoding="utf-8")
    result = run("check", "r.yaml")
    assert result.exit_code == ExitCode.RECIPE_INVALID
    assert "r.yaml:14:7: error: `wheels.jetpack7[1]`: duplicate wheel" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["plan", "build"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "teacher"], "this recipe has no stage teacher"),
        (["--from", "teacher"], "this recipe has no stage teacher"),
        (["--until", "packing"], "'packing' is not one of"),
        (["--force", "--from", "gate"], "--force runs every stage again"),
        (["--until", "data", "--from", "gate"], "--from gate comes after --until data"),
    ],
)
def test_a_part_that_cannot_be_built_is_a_usage_error(
    project: Path, command: str, arguments: list[str], words: str
) -> None:
    result = run(command, "r.yaml", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in result.output
    assert not (project / ".edgepack").exists()


def test_results_lie_beside_the_recipe(project: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    recipe = str(project / "r.yaml")
    built = run("build", recipe, "--until", "data")
    assert f"its result is in {project / '.edgepack' / 'data'}" in built.stdout
    plan = json.loads(run("plan", recipe, "--json").stdout)
    assert [stage["state"] for stage in plan["stages"] if stage["stage"] == "data"] == ["cached"]
    assert "there is no .edgepack" in run("clean", "--all").stdout
    assert "0.0 MiB freed" in run("clean", "--keep", recipe).stdout
    monkeypatch.chdir(project)
    assert states()["data"] == "cached"
    assert list(elsewhere.iterdir()) == []


def test_clean_keeps_what_a_recipe_takes_up(project: Path) -> None:
    run("build", "r.yaml", "--until", "data")
    assert "0.0 MiB would be freed" in run("clean", "--dry-run").stdout
    assert states()["data"] == "cached"
    (project / "other.yaml").write_text(TINY_RECIPE.replace("data:", "data:\n  seed: 1"), encoding="utf-8")
    run("build", "other.yaml", "--until", "data")
    kept = run("clean", "--keep", "r.yaml")
    assert kept.exit_code == 0, kept.output
    assert kept.stdout.count("removed") == 1
    assert states()["data"] == "cached"
    told = run("clean", "--all", "--dry-run")
    assert re.search(r"would remove \.edgepack/data/[0-9a-f]{64} \(result, ", told.stdout)
    assert states()["data"] == "cached"
    assert "removed .edgepack/data/" in run("clean", "--all").stdout
    assert states()["data"] == "to run"
    assert run("clean", "--all", "--keep", "r.yaml").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "words", "fix"),
    [
        (["chek"], "No such command 'chek'. Did you mean `check`?", "edgepack --help"),
        (["build"], "Missing argument 'RECIPE'", "edgepack build --help"),
        (["build", "r.yaml", "--untill", "data"], "No such option '--untill'", "edgepack build --help"),
        (["gate", "gone.edgepack"], "there is no file gone.edgepack", "edgepack gate --help"),
    ],
)
def test_usage_errors_look_like_all_others(project: Path, arguments: list[str], words: str, fix: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert words in first
    assert last == f"  fix: {fix.replace('edgepack', 'main', 1)}"  # as the test calls it


def test_nothing_is_written_that_every_user_may_change(tmp_path: Path) -> None:
    rows = "".join(f"{'很好' if number % 2 else '很差'}{number}\t{number % 2}\n" for number in range(200))
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    (tmp_path / "rows.tsv").chmod(0o644)
    line = [sys.executable, "-m", "edgepack.cli", "init", "rows.tsv", "--output", "deep/er/recipe.yaml"]
    done = subprocess.run(line, cwd=tmp_path, umask=0, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o002]
    assert (tmp_path / "deep/er/train.tsv").is_file() and written == []


def test_temporary_files_lie_where_no_other_user_can_replace_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "below").mkdir()
    command = [sys.executable, "-m", "edgepack.cli", "targets", "list"]
    done = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path / "below")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "other users may replace the temporary files in it" in done.stderr
