"""Several bundles on several targets: each has a result, and all of them one exit code."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.far import GATE, Far, Heard, brief_bundle, far, far_bundle

from edgepack.errors import EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.gating import address, local, receipts, receipts_summary, remote, runner
from edgepack.gating import results as gates
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.gating.results import GateResult
from edgepack.gating.runner import GateRequest
from edgepack.gating.ssh import Connection
from edgepack_runtime.errors import ExitCode

__all__ = ["far"]
ALL = list(ExitCode)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By what their gates say."""
    folder = tmp_path_factory.mktemp("dist")
    names = ("pass", "fail", "inconclusive")
    return {name: brief_bundle(folder / f"{name}.edgepack", name, version=f"1.0.{len(name)}") for name in names}


@pytest.fixture
def ask(far: Far, tmp_path: Path) -> Callable[..., list[GateResult]]:
    def run(files: list[Path], *targets: str, progress: Heard | None = None, **more: Any) -> list[GateResult]:
        more = {"receipts": tmp_path / "receipts", **more}
        asked = GateRequest(tuple(files), tuple(map(address.parse, targets)), **more)
        return runner.run(asked, (progress or Heard()).line)

    return run


Ask = Callable[..., "list[GateResult]"]


def test_an_unreachable_target_does_not_stop_the_others(ask: Ask, bundles: dict[str, Path], tmp_path: Path) -> None:
    heard = Heard()
    files = [bundles["pass"], bundles["fail"]]
    results = ask(files, "ssh://line3", "ssh://refused", "ssh://pi@line4:2222/opt/x", progress=heard)
    assert [(one.target, one.bundle, one.exit_code, one.verdict) for one in results] == [
        ("line3", "pass.edgepack", 0, "pass"),
        ("line3", "fail.edgepack", 6, "fail"),
        ("refused", "pass.edgepack", 9, "not measured"),
        ("refused", "fail.edgepack", 9, "not measured"),
        ("pi@line4:2222/opt/x", "pass.edgepack", 0, "pass"),
        ("pi@line4:2222/opt/x", "fail.edgepack", 6, "fail"),
    ]
    assert gates.worst([one.exit_code for one in results]) == ExitCode.GATE_FAILED
    assert {line.split(": ")[0] for line in heard.lines} == {"line3", "refused", "pi@line4:2222/opt/x"}
    assert heard.lines.count("refused: not measured: refused cannot be reached") == 2
    there = sorted(
        path.relative_to(tmp_path / "receipts").as_posix() for path in (tmp_path / "receipts").rglob("*.json")
    )
    assert there == [
        f"{folder}/00000{number}-gate.json" for folder in ("line3", "pi@line4%3A2222%2Fopt%2Fx") for number in (1, 2)
    ]
    summary = receipts_summary.summarize(tmp_path / "receipts")
    assert [(device.name, device.receipts, device.unreadable) for device in summary.devices] == [
        ("line3", 2, ()),
        ("pi@line4%3A2222%2Fopt%2Fx", 2, ()),
    ]
    assert summary.devices[0].gate is not None
    assert summary.devices[0].gate.verdict == "fail"


def test_the_document_is_json_with_every_receipt_or_its_error(ask: Ask, bundles: dict[str, Path]) -> None:
    found = gates.document(ask([bundles["pass"]], "ssh://line3", "ssh://refused"))
    assert json.loads(json.dumps(found)) == found
    assert (found["verdict"], found["exit_code"]) == ("not measured", 9)
    first, second = found["results"]
    assert first["receipt"]["verdict"] == first["verdict"] == "pass"
    assert first["copied"]["sent_bytes"] == bundles["pass"].stat().st_size
    assert first["kept"].endswith("line3/000001-gate.json")
    assert second["receipt"] is None
    assert second["error"]["what"] == "refused cannot be reached"
    assert first["seconds"] > first["copied"]["seconds"] > 0 and second["seconds"] > 0
    assert second["bundle"]["name"] == "sentiment"


def test_an_invalid_bundle_is_not_copied(ask: Ask, far: Far, tmp_path: Path, bundles: dict[str, Path]) -> None:
    broken = tmp_path / "broken.edgepack"
    broken.write_bytes(bundles["pass"].read_bytes()[:-1])
    results = ask([broken, bundles["pass"]], "ssh://line3")
    assert [one.exit_code for one in results] == [8, 0]
    assert sum("-O exit" in call for call in far.calls()) == 1


def test_receipts_are_stored_beside_the_bundle_by_default(ask: Ask, bundles: dict[str, Path]) -> None:
    (one,) = ask([bundles["pass"]], "ssh://line3", receipts=None)
    assert one.kept == bundles["pass"].parent / "receipts" / "line3" / "000001-gate.json"


def test_a_link_that_the_user_names_is_followed(ask: Ask, bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (one,) = ask([bundles["pass"]], "ssh://line3", receipts=tmp_path / "link")
    assert one.kept == (tmp_path / "real").resolve() / "line3" / "000001-gate.json"


def test_jobs_limits_simultaneous_devices(ask: Ask, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def counted(*given: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if jobs == 2:
            both.wait(60)  # the second one is there too, or this fails
        with lock:
            running -= 1
        raise TargetUnreachableError("line3", why="counted", fix="none")

    monkeypatch.setattr(remote, "gate", counted)
    for jobs in (1, 2):
        most = 0
        ask([bundles["pass"]], "ssh://line3", "ssh://line4", jobs=jobs)
        assert most == jobs


def test_this_machine_is_gated_before_devices(ask: Ask, bundles: dict[str, Path], far: Far, tmp_path: Path) -> None:
    heard = Heard()
    here, there = ask([bundles["pass"]], "local", "ssh://line3", progress=heard)
    assert (here.target, here.verdict, there.verdict) == ("local", "pass", "pass")
    assert heard.lines.index("local: measuring") < heard.lines.index("line3: measuring")
    assert (tmp_path / "receipts" / "local" / "000001-gate.json").is_file()
    (alone,) = ask([bundles["pass"]], "local", receipts=None)
    assert alone.kept is None


@pytest.mark.parametrize(
    ("files", "targets", "more", "words"),
    [
        (["a"], [], {}, "no target is named"),
        (["a"], ["ssh://a", "ssh://a"], {}, "named more than once: a"),
        ([], ["ssh://a"], {}, "no bundle is named"),
        (["a"], ["local"], {"installed": True}, "--installed needs devices"),
    ],
)
def test_an_invalid_request_is_refused(ask: Ask, files: list[str], targets: list[str], more: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask(list(map(Path, files)), *targets, **more)


def test_an_unexpected_error_affects_one_target(
    ask: Ask, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = remote.gate

    def broken(parcel: Any, connection: Any, *more: Any) -> Any:
        if connection.address.prefix == "/opt/x":
            raise ZeroDivisionError("by zero")
        return real(parcel, connection, *more)

    monkeypatch.setattr(remote, "gate", broken)
    bad, good = ask([bundles["pass"]], "ssh://line3/opt/x", "ssh://line4")
    assert (bad.exit_code, good.exit_code) == (1, 0)
    assert bad.error is not None
    assert bad.error.what == "unexpected ZeroDivisionError: by zero"


def test_a_closed_stderr_costs_no_result(ask: Ask, bundles: dict[str, Path]) -> None:
    class Closed(Heard):
        def line(self, text: str) -> None:
            raise OSError("stderr is closed")

    results = ask([bundles["pass"]], "ssh://refused", "ssh://line3", progress=Closed())
    assert [one.exit_code for one in results] == [9, 0]


def test_unwritable_receipts_are_reported_before_a_device_is_reached(
    ask: Ask, far: Far, bundles: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnfitError, match=r"the receipt cannot be kept in .*file/line3"):
        ask([bundles["pass"]], "ssh://line3", receipts=tmp_path / "file")
    assert not (far.root / "calls").exists()


@pytest.mark.parametrize("target", ["local", "ssh://line3"])
def test_a_verdict_is_reported_without_its_receipt(
    ask: Ask, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(receipts, "fsync_folder", full)
    (result,) = ask([bundles["fail"]], target)
    assert (result.exit_code, result.verdict, result.kept, result.error) == (6, "fail", None, None)
    document = gates.document([result])["results"][0]
    assert document["receipt"]["verdict"] == "fail"
    assert document["not_kept"]["why"] == "No space left on device"


def test_a_hanging_gate_reaches_its_time_limit(ask: Ask, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "hang.edgepack", gate="hang")
    (result,) = ask([bundle], "ssh://line3", timeout_minutes=0.1)
    assert (result.exit_code, result.verdict) == (9, "not measured")
    assert result.error is not None
    assert result.error.what.startswith("line3 took more than 0.1 minutes")


def test_an_interrupt_ends_gates_on_devices(
    ask: Ask, far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = far_bundle(tmp_path / "hang.edgepack", gate="hang")
    connections = []
    real = Connection.__init__

    def made(connection: Connection, *given: Any) -> None:
        real(connection, *given)
        connections.append(connection)

    monkeypatch.setattr(Connection, "__init__", made)

    class Ear(Heard):
        def line(self, text: str) -> None:
            super().line(text)
            if "process " in text:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    ear = Ear()
    try:
        with pytest.raises(KeyboardInterrupt):
            ask([bundle], "ssh://line3", "ssh://refused", progress=ear)
    finally:
        signal.signal(signal.SIGINT, before)
    assert connections and all(one._running is None for one in connections)
    assert far.left("line3") == []
    assert [line for line in ear.lines if line.startswith("line3: not measured")] == []  # it is interrupted, as told
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gate ")]
    assert not (tmp_path / "receipts").exists()


def test_every_exit_code_has_a_rank() -> None:
    never = {ExitCode.RECIPE_INVALID, ExitCode.ROLLED_BACK}
    assert set(gates.WORST_FIRST) == set(ALL) - never
    assert len(set(gates.WORST_FIRST)) == len(gates.WORST_FIRST)
    for few in itertools.combinations(gates.WORST_FIRST, 2):
        assert gates.worst(few) == few[0] == gates.worst(few[::-1])
    for code in never:  # where one comes all the same, it is no pass
        assert gates.worst([0, code]) == ExitCode.UNEXPECTED


def test_a_receipt_without_a_gate_of_the_manifest_is_refused(receipt: dict[str, Any]) -> None:
    names = {check["gate"] for check in receipt["checks"]}
    limits = {
        "accuracy": {
            "min": 0.9,
            "max": None,
            "above_majority": True,
            "per_class": {"recall_of": {"1": 0.5}},
            "min_of": {"macro_f1": 0.5, "micro_f1": 0.6},
        },
        "latency": {
            "p50_ms": None,
            "by_length": [{"max_tokens": 16, "p95_ms": 5}],
            "sustained": {"seconds": 9, "max_slowdown_percent": 5},
        },
        "cold_start": {"ms": 5},
    }
    manifest: Any = SimpleNamespace(gates={})
    assert gates.readable(receipt, manifest=manifest) == receipt
    manifest.gates = limits
    given = {
        "accuracy.min", "accuracy.per_class.recall", "accuracy.above_majority", "accuracy.min_of.macro_f1",
        "accuracy.min_of.micro_f1", "latency.max_tokens_16.p95_ms",
        "latency.sustained.max_slowdown_percent", "cold_start.ms",
    }  # fmt: skip
    checks = [*receipt["checks"], *({**receipt["checks"][0], "gate": gate} for gate in sorted(given - names))]
    assert gates.readable({**receipt, "checks": checks}, manifest=manifest)
    for gate in given:
        with pytest.raises(StageFailedError, match="cannot be read") as error:
            gates.readable({**receipt, "checks": [one for one in checks if one["gate"] != gate]}, manifest=manifest)
        assert error.value.why == f"it lacks {gate}"


@pytest.mark.parametrize("figure", ["value", "low", "high", "limit", "n"])
@pytest.mark.parametrize("nonsense", ["5", True, 10**400, float("nan"), [5.0]])
def test_a_figure_that_is_not_a_number_is_refused(receipt: dict[str, Any], figure: str, nonsense: Any) -> None:
    receipt["checks"][0][figure] = nonsense
    with pytest.raises(StageFailedError, match=r"cannot be read") as error:
        gates.readable(receipt)
    assert error.value.why.startswith(f"`checks[0].{figure}` ")


def test_conditions_that_are_not_finite_become_null(receipt: dict[str, Any]) -> None:
    receipt["conditions"] = {"temperature_c": math.nan, "loads": [1.0, {"a": -math.inf}], "cpu_model": "NaN"}
    found = gates.readable(receipt)
    assert found["conditions"] == {"temperature_c": None, "loads": [1.0, {"a": None}], "cpu_model": "NaN"}
    receipt["latency"]["p50_ms"] = math.inf
    with pytest.raises(StageFailedError, match="cannot be read") as error:
        gates.readable(receipt)
    assert error.value.why == "`latency.p50_ms` is inf"
    del receipt["latency"]
    receipt["newer"] = math.nan
    with pytest.raises(StageFailedError, match="cannot be read") as error:
        gates.readable(receipt)
    assert "not JSON compliant" in error.value.why


def test_nan_in_conditions_of_a_device_becomes_null(ask: Ask, tmp_path: Path) -> None:
    source = GATE.replace('"Cortex-A76"', 'float("nan"), "depth": 1e999')
    bundle = far_bundle(tmp_path / "nan.edgepack", more={"edgepack_runtime/gate/runner.py": source.encode()})
    for target in ("local", "ssh://line3"):
        (result,) = ask([bundle], target)
        assert result.kept is not None
        for text in (json.dumps(gates.document([result])), result.kept.read_text(encoding="utf-8")):
            assert "NaN" not in text and "Infinity" not in text
        assert result.receipt is not None
        assert result.receipt["conditions"]["cpu_model"] is None


@pytest.mark.parametrize("text", ["[" * 100_000, "", "[]", '{"verdict": "pass"}'])
def test_an_invalid_receipt_is_refused(text: str) -> None:
    with pytest.raises(StageFailedError, match="printed no receipt"):
        local.judged("x", local.VerbOutput(0, text, ""))


def test_a_receipt_whose_verdict_is_not_that_of_its_gates_is_refused(receipt: dict[str, Any]) -> None:
    passed, failed = ({**receipt["checks"][0], "verdict": verdict} for verdict in ("pass", "fail"))
    left_out = {"gate": "accuracy.min", "why": "no rows", "waived": False}
    for change, why in (
        ({"verdict": "pass", "checks": [passed, failed], "unmeasured": []}, "that of its gates fail"),
        ({"verdict": "pass", "checks": [passed], "unmeasured": [left_out]}, "that of its gates inconclusive"),
        ({"verdict": "pass", "checks": [], "unmeasured": []}, "it has no gate"),
        ({"verdict": "pass", "checks": [], "unmeasured": [{**left_out, "waived": True}]}, "gates inconclusive"),
    ):
        with pytest.raises(StageFailedError) as caught:
            gates.readable({**receipt, **change})
        assert why in caught.value.why


@pytest.mark.parametrize("change", [{"verdict": "fine"}, {"checks": [{}]}, {"bundle": None}, {"checks": "x"}])
def test_a_receipt_with_invalid_parts_is_refused(receipt: dict[str, Any], change: dict[str, Any]) -> None:
    assert gates.readable(receipt) == receipt
    with pytest.raises(StageFailedError, match="cannot be read"):
        gates.readable({**receipt, **change})


@pytest.mark.parametrize("levels", [20, 900])
def test_a_receipt_that_no_larger_document_could_hold_is_refused(receipt: dict[str, Any], levels: int) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    with pytest.raises(StageFailedError, match="cannot be read") as caught:
        gates.readable({**receipt, "more": deep})
    assert caught.value.why == "it has more than 20 levels"


def test_an_unknown_unit_names_the_newer_release(receipt: dict[str, Any]) -> None:
    receipt["checks"][0]["unit"] = "furlongs"
    with pytest.raises(StageFailedError, match="min is in furlongs") as error:
        gates.readable(receipt)
    assert "is newer" in error.value.why


def test_a_receipt_of_this_machine_is_validated_too(
    ask: Ask, bundles: dict[str, Path], receipt: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt["checks"][0]["unit"] = "furlongs"
    monkeypatch.setattr(runner, "gate_file", lambda *arguments: (0, receipt))
    (result,) = ask([bundles["pass"]], "local", receipts=None)
    assert (result.exit_code, result.receipt) == (ExitCode.STAGE_FAILED, None)
    assert result.error is not None and "furlongs" in result.error.what


def test_rows_must_belong_to_the_bundle(ask: Ask, tmp_path: Path) -> None:
    rows = tmp_path / "tiny.rows.jsonl"
    rows.write_text("很好\n", encoding="utf-8")
    digest = hashlib.sha256(rows.read_bytes()).hexdigest()
    at_home = {"golden": {"rows": 2000, "carry": False, "sha256": digest}}
    bundle, carries = far_bundle(tmp_path / "a.edgepack", gates=at_home), far_bundle(tmp_path / "b.edgepack")
    [result] = ask([bundle], "ssh://line3", rows=GoldenRowsOption(rows))
    assert result.receipt is not None and result.receipt["conditions"]["rows"] == "很好\n"
    with pytest.raises(UsageError, match="--rows is for bundles without their rows"):
        ask([bundle, carries], "ssh://line3", rows=GoldenRowsOption(rows))
    rows.write_text("很差\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"tiny\.rows\.jsonl does not hold the rows of a\.edgepack"):
        ask([bundle], "ssh://line4", rows=GoldenRowsOption(rows))
