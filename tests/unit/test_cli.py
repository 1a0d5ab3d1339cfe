"""The command line: bad input ends at once with file, line, reason and exit code 3, before anything is trained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.far import far_bundle

from edgepack import cli
from edgepack.artifacts import ModelArtifact, ScalesArtifact
from edgepack.commands import options
from edgepack.errors import StageFailedError
from edgepack.evaluation import Latency
from edgepack.recipe.training import Student
from edgepack.results import Build
from edgepack_runtime.errors import ExitCode

RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data:
  train: train.tsv
  dev: dev.tsv
  test: test.tsv
student:
  model: {scratch: {layers: 1, hidden: 8, heads: 2}}
"""
ROWS = "text\tlabel\n好\t1\n差\t0\n{}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a valid recipe and data; the commands run in it."""
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    for split, text in (("train", "不错\t1"), ("dev", "还行\t1"), ("test", "很好\t1")):
        other = {"train": "好\t1\n差\t0", "dev": "挺好\t1\n很差\t0", "test": "真好\t1\n真差\t0"}[split]
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{other}\n{text}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / name
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    return change


def test_a_valid_recipe_passes(folder: Path) -> None:
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
    folder: Path, command: str, change: Callable[[Path], None], place: str, reason: str
) -> None:
    change(folder)
    result = run(command, "r.yaml")
    assert result.exit_code == ExitCode.RECIPE_INVALID, result.output
    assert place in result.output
    assert reason in result.output
    assert "fix:" in result.output
    assert "Traceback" not in result.output
    assert not (folder / "dist").exists()
    assert not [path for path in (folder / ".edgepack").glob("*/*") if path.suffix != ".lock"]  # no stage left a result


def test_a_recipe_that_is_not_there(folder: Path) -> None:
    result = run("build", "nothing.yaml")
    assert result.exit_code == ExitCode.RECIPE_INVALID
    assert "nothing.yaml" in result.output


def test_verify_of_something_else_exits_8(folder: Path) -> None:
    result = run("verify", "r.yaml")
    assert result.exit_code == ExitCode.BUNDLE_INVALID
    assert "r.yaml" in result.output


def test_an_unexpected_error_is_one_line_and_exit_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(recipe: Path, settings: tuple[str, ...], profiles: Path | None) -> None:
        raise ZeroDivisionError("for once")

    monkeypatch.setattr(options, "load_recipe", break_down)
    result = run("check", "r.yaml")
    assert result.exit_code == ExitCode.UNEXPECTED
    assert "unexpected ZeroDivisionError: for once" in result.output
    assert "Traceback" not in result.output
    assert "Traceback" in run("-v", "check", "r.yaml").output


@pytest.mark.parametrize("before", [True, False])
def test_quiet_and_verbose_stand_before_or_after_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    def run_with(flag: str) -> Result:
        return run(flag, "check", "r.yaml") if before else run("check", "r.yaml", flag)

    assert "tokens in a text" in run("check", "r.yaml").stderr
    assert run_with("--quiet").stderr == ""
    (folder / "r.yaml").write_text("x", encoding="utf-8")
    assert "Traceback" in run_with("-v").stderr
    assert "Traceback" not in run("check", "r.yaml").stderr


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)], ids=str)
def test_every_command_has_help(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgepack.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("edgepack, version ")


def states(*arguments: str) -> dict[str, str]:
    """Stage -> state, as `edgepack plan` gives them."""
    result = run("plan", "r.yaml", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {stage["stage"]: stage["state"] for stage in json.loads(result.stdout)["stages"]}


def test_a_plan_tells_what_would_run(folder: Path) -> None:
    stages = ("data", "student", "quantize", "export", "bundle", "gate")  # no teacher in this recipe
    assert states() == dict.fromkeys(stages, "to run")
    assert not (folder / ".edgepack").exists()
    built = run("build", "r.yaml", "--until", "data")
    assert built.exit_code == 0, built.output
    assert "ended after data, as asked" in built.stdout
    assert "[1/6] data\n" in built.stderr
    assert "[1/6] data (cached)" in run("build", "r.yaml", "--until", "data").stderr
    assert states() == {**dict.fromkeys(stages, "to run"), "data": "cached"}
    assert states("--force") == dict.fromkeys(stages, "to run")
    assert states("--until", "student") == {
        **dict.fromkeys(stages, "not asked for"), "data": "cached", "student": "to run",
    }  # fmt: skip
    assert "[1/6] data\n" in run("build", "r.yaml", "--until", "data", "--from", "data").stderr


def test_a_damaged_result_is_made_anew_and_said(folder: Path) -> None:
    run("build", "r.yaml", "--until", "data")
    (rows,) = (folder / ".edgepack" / "data").glob("*/train.jsonl")
    rows.write_bytes(rows.read_bytes()[:-2])
    told = "cached result is damaged; rebuilding"
    assert told in run("build", "r.yaml", "--until", "data").stderr
    assert told not in run("build", "r.yaml", "--until", "data").stderr


def test_a_plan_shows_every_value_and_where_it_comes_from(folder: Path) -> None:
    (folder / "r.yaml").write_text(RECIPE + "  epochs: 2\n", encoding="utf-8")
    plan = json.loads(run("plan", "r.yaml", "--json").stdout)
    values = {value["key"]: (value["value"], value["given"]) for value in plan["values"]}
    assert values["student.epochs"] == (2.0, True)
    assert values["student.model.scratch.hidden"] == (8, True)
    assert values["student.batch_size"] == (32, False)
    assert values["student.distill"] == (None, False)  # there is no teacher
    assert values["teacher"] == (None, False)
    assert values["data.train"] == (str(folder / "train.tsv"), True)
    assert values["data.train_rows"] == (None, False)
    text = run("plan", "r.yaml").stdout
    assert re.search(r"student\.batch_size +32  \(default\)\n", text)
    assert re.search(r"student\.epochs +2\.0\n", text)
    assert re.search(r"student +- +to run +at most 0\.2 M weights; 2 steps of 32 \(3 rows x 2 epochs\), cpu", text)


SEARCH = "search={over: {student.epochs: [1, 2], student.seed: [3]}}"


def test_check_and_plan_tell_the_candidates(folder: Path) -> None:
    checked = run("check", "r.yaml", "--set", SEARCH)
    assert checked.exit_code == 0, checked.output
    assert "2 candidates:\n        epochs=1, seed=3\n        epochs=2, seed=3\n" in checked.stderr
    planned = run("plan", "r.yaml", "--set", SEARCH)
    assert re.search(r"student +- +to run +epochs=1, seed=3; at most", planned.stdout)
    assert re.search(r"search\.over\.student\.epochs +\[1, 2\]\n", planned.stdout)
    refused = run("plan", "r.yaml", "--until", "select")
    assert refused.exit_code == ExitCode.USAGE
    assert "this recipe has no stage select" in refused.stderr


def test_a_candidate_that_was_left_out_does_not_pass_for_success(
    folder: Path, built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(section: Student, data: Any, teacher: Any, out: Path, *rest: Any) -> ModelArtifact:
        if section.epochs == 2:
            raise StageFailedError("student: it diverged", fix="a lower rate")
        return replace(built.student, folder=out)

    monkeypatch.setattr("edgepack.pipeline.stages.train.student", train)
    monkeypatch.setattr("edgepack.pipeline.stages.quantize.run", lambda *inputs: ScalesArtifact(inputs[6], (), 0))
    monkeypatch.setattr(
        "edgepack.pipeline.stages.export.run", lambda *inputs, **_: replace(built.export, folder=inputs[4])
    )
    monkeypatch.setattr("edgepack.pipeline.stages.select.Predictor", lambda folder: folder)
    monkeypatch.setattr("edgepack.evaluation.answers", lambda model, rows, *rest: [row.label for row in rows])
    monkeypatch.setattr("edgepack.evaluation.latency", lambda folders, *rest, stage: [Latency(1, 2)])
    monkeypatch.setattr("edgepack.bundle.wheels.fetch", lambda *inputs, **options: None)
    monkeypatch.setattr("edgepack.training.environment.versions", dict)
    arguments = ("build", "r.yaml", "--set", SEARCH, "--until", "select")
    ended = run(*arguments, "--keep-going")
    assert ended.exit_code == ExitCode.STAGE_FAILED
    assert "chosen: epochs=1, seed=3: the only candidate" in ended.stdout
    assert "not every candidate could be built: epochs=2, seed=3" in ended.stderr
    assert "fix: a lower rate" in ended.stderr
    stopped = run(*arguments)
    assert stopped.exit_code == ExitCode.STAGE_FAILED
    assert "error: student: it diverged" in stopped.stderr
    assert "chosen" not in stopped.stdout


def test_a_plan_counts_the_weights_that_a_pruned_student_keeps(folder: Path) -> None:
    teacher = "teacher:\n  model: {scratch: {layers: 4, hidden: 312, heads: 12, max_vocabulary: 16}}\nstudent:\n"
    start, _, _ = RECIPE.partition("student:\n")
    millions = {}
    for width in (1, 0.5):
        student = f"  model: {{from: teacher, layers: 4, width: {width}}}\n"
        (folder / "r.yaml").write_text(start + teacher + student, encoding="utf-8")
        found = re.search(r"student +- +to run +(?:at most )?([0-9.]+) M weights", run("plan", "r.yaml").stdout)
        assert found is not None
        millions[width] = float(found[1])
    # Half of 4 x 312 x 312 and of 2 x 312 x 1248 in each of four layers.
    assert millions[1] - millions[0.5] == pytest.approx(4 * (2 * 312 * 312 + 312 * 1248) / 1e6, abs=0.1)


@pytest.mark.parametrize("command", ["plan", "build"])
def test_a_variable_that_makes_no_sense_shows_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EDGEPACK_CHECKPOINT_SECONDS", "often")
    result = run(command, "r.yaml")
    assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
    assert "EDGEPACK_CHECKPOINT_SECONDS is 'often'" in result.stderr
    assert not (folder / ".edgepack").exists()


def test_a_place_for_bundles_that_cannot_be_made_shows_before_anything_runs(folder: Path) -> None:
    result = run("build", "r.yaml", "--dist", "r.yaml/dist")
    assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
    assert "r.yaml/dist cannot be written" in result.stderr
    assert not (folder / ".edgepack").exists()


WHEEL = "onnxruntime_gpu-1.23.0-cp312-cp312-linux_aarch64.whl"
JETSON = ("--set", "targets=[jetpack7]")


def test_check_and_plan_tell_that_a_wheel_by_path_is_missing(folder: Path) -> None:
    checked = run("check", "r.yaml", *JETSON)
    assert checked.exit_code == 0, "--wheel may bring it"
    told = " ".join(checked.stderr.split())
    assert "r.yaml: warning: target jetpack7 needs a wheel of onnxruntime-gpu that is given by path" in told
    assert "write `wheels: {jetpack7: [FILE.whl]}` in the recipe, or add `--wheel FILE.whl`" in told
    refused = {command: run(command, "r.yaml", *JETSON) for command in ("plan", "build")}
    for result in refused.values():
        assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
        assert "error: target jetpack7 needs a wheel of onnxruntime-gpu" in result.stderr
    (folder / WHEEL).touch()
    assert run("plan", "r.yaml", *JETSON, "--wheel", WHEEL).exit_code == 0
    named = run("check", "r.yaml", *JETSON, "--set", f"wheels={{jetpack7: [{WHEEL}]}}")
    assert (named.exit_code, "needs a wheel" in named.stderr) == (0, False)


def test_check_tells_that_a_wheel_of_the_recipe_does_not_fit(folder: Path) -> None:
    (folder / WHEEL.replace("cp312", "cp310")).touch()
    wheels = f"wheels={{jetpack7: [{WHEEL.replace('cp312', 'cp310')}]}}"
    for command in ("check", "plan"):
        result = run(command, "r.yaml", *JETSON, "--set", wheels)
        assert result.exit_code == ExitCode.ENVIRONMENT_UNFIT
        assert "it is for cp310-cp310, and the target runs CPython 3.12" in " ".join(result.stderr.split())


def test_a_wheel_that_a_recipe_names_twice_is_a_finding(folder: Path) -> None:
    (folder / WHEEL).touch()
    (folder / "r.yaml").write_text(
        f"{RECIPE}targets: [jetpack7]\nwheels:\n  jetpack7:\n    - {WHEEL}\n    - ./{WHEEL}\n", encoding="utf-8"
    )
    result = run("check", "r.yaml")
    assert result.exit_code == ExitCode.RECIPE_INVALID
    assert f"r.yaml:14: error: `wheels.jetpack7`: './{WHEEL}' stands twice" in " ".join(result.stderr.split())


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
    folder: Path, command: str, arguments: list[str], words: str
) -> None:
    result = run(command, "r.yaml", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in result.output
    assert not (folder / ".edgepack").exists()


def test_clean_keeps_what_a_recipe_takes_up(folder: Path) -> None:
    run("build", "r.yaml", "--until", "data")
    assert "0.0 MiB would be freed" in run("clean", "--dry-run").stdout
    assert states()["data"] == "cached"
    (folder / "other.yaml").write_text(RECIPE.replace("data:", "data:\n  seed: 1"), encoding="utf-8")
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
        (["gate", "gone.edgepack"], "'gone.edgepack' does not exist", "edgepack gate --help"),
        (["split", "x.edgepack", "--size", "60M"], "`split` was removed", cli.REMOVED["split"]),
        (["build", "r.yaml", "--split", "60M"], "No such option '--split'", cli.REMOVED["--split"]),
    ],
)
def test_usage_errors_look_like_all_others(folder: Path, arguments: list[str], words: str, fix: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert words in first
    assert last == f"  fix: {fix.replace('edgepack', 'main', 1)}"  # as the test calls it


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["plan", "r.yaml"]], ids=lambda a: a[0])
def test_output_that_finds_no_room_is_a_plain_error(folder: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        ExitCode.ENVIRONMENT_UNFIT,
        "error: the output cannot be written\n  why: No space left on device\n",
    )


REFUSED = """
import errno
from edgepack import cli
from edgepack.pipeline import runner

def build(*others):
    raise OSError(errno.ENOMEM, "Cannot allocate memory")

runner.build = build
cli.main()
"""


def test_an_error_of_the_system_is_none_of_the_output(folder: Path) -> None:
    command = [sys.executable, "-c", REFUSED, "build", "r.yaml"]
    done = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.UNEXPECTED
    assert "Traceback" in done.stderr and "in build" in done.stderr
    assert "error: unexpected OSError: [Errno 12] Cannot allocate memory" in done.stderr
    assert "output" not in done.stderr


EACH_WAY_TO_PRINT = [
    ["--help"],  # before there is a command
    ["gate", "--help"],  # before it runs
    ["check", "r.yaml"],
    ["targets", "list"],
    ["gate", "hotel.edgepack", "-q"],
    ["gate", "hotel.edgepack", "-q", "--json"],
]


@pytest.mark.parametrize("arguments", EACH_WAY_TO_PRINT, ids=" ".join)
def test_a_reader_that_has_had_enough(folder: Path, arguments: list[str]) -> None:
    far_bundle(folder / "hotel.edgepack", gate="fail")
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, "Broken" in done.stderr, "error" in done.stderr) == (141, False, False), done.stderr


@pytest.fixture(params=["full", "left"])
def unwritable(request: pytest.FixtureRequest) -> Iterator[int]:
    """A file without room, and a pipe that nobody reads from."""
    if request.param == "left":
        read, write = os.pipe()
        os.close(read)
    elif Path("/dev/full").exists():
        write = os.open("/dev/full", os.O_WRONLY)
    else:
        pytest.skip("needs /dev/full")
    yield write
    os.close(write)


def test_errors_that_cannot_be_written_have_their_exit_code(folder: Path, unwritable: int) -> None:
    (folder / "bad.yaml").write_text("edgepack: 2\n", encoding="utf-8")
    codes = []
    for arguments in ([], ["chek"], ["check", "gone.yaml"], ["check", "bad.yaml", "-v"]):
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        codes.append(subprocess.run(command, stdout=unwritable, stderr=unwritable, check=False).returncode)
    assert codes == [ExitCode.USAGE] * 2 + [ExitCode.RECIPE_INVALID] * 2


MISSED = """
from edgepack import cli
from edgepack.errors import GateFailedError
from edgepack.pipeline import runner

def build(recipe, workspace, console, *others):
    console.stage("gate", 1, 1, cached=False)
    with console.task("rows", 2) as task:
        task.advance(2)
    print("told", flush=True)
    raise GateFailedError("gate fail: no bundle was delivered")

runner.build = build
cli.main()
"""


def test_a_build_ends_with_its_verdict_where_errors_cannot_be_written(folder: Path, unwritable: int) -> None:
    command = [sys.executable, "-c", MISSED, "build", "r.yaml"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=unwritable, text=True, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.GATE_FAILED, "told\n")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", EACH_WAY_TO_PRINT, ids=" ".join)
def test_closed_streams_are_no_crash(folder: Path, arguments: list[str], closed: str) -> None:
    far_bundle(folder / "hotel.edgepack", gate="fail")
    line = f'"$@" {closed}'
    command = [sys.executable, "-m", "edgepack.cli", *arguments]
    done = subprocess.run(["/bin/sh", "-c", line, "sh", *command], capture_output=True, text=True, check=False)
    code = ExitCode.GATE_FAILED if arguments[0] == "gate" and "--help" not in arguments else 0
    assert (done.returncode, "error" in done.stderr) == (code, False), done.stderr


def test_without_arguments_it_explains_itself() -> None:
    result = run()
    assert result.exit_code == ExitCode.USAGE
    assert "Usage:" in result.output
    assert "error:" not in result.output
