"""Installs: a release is active only when proven, and the old release stays active after any failure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.interpreters import other_machine
from tests.sweeps import sample
from tests.unit.runtime.installing import Device, MakeBundle, full_disk, id_of, last_receipt, silent, state_of

from edgepack_runtime.bundle import extract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import TargetFacts
from edgepack_runtime.bundle.verify import verify_folder
from edgepack_runtime.device import doctor, interference, tuning
from edgepack_runtime.errors import (
    BundleInvalidError,
    EnvironmentUnfitError,
    ExitCode,
    GateFailedError,
    GateInconclusiveError,
    RolledBackError,
    StageFailedError,
    UsageError,
)
from edgepack_runtime.install import activate, release_process, status
from edgepack_runtime.install import install as install_module
from edgepack_runtime.install.install import Choices, install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback


def test_a_device_installs_and_updates(make_bundle: MakeBundle, prefix: Prefix, device: Device) -> None:
    bundle, second = (make_bundle(version=f"1.{n}.0", sequence=n, sources=True) for n in (2, 3))
    first = device(sys.executable, bundle, "install", "--prefix", prefix.root, env={"HOME": "/nonexistent"})
    assert first.returncode == 0, first.stderr
    assert f"installed: {id_of(bundle)} is active" in first.stdout
    entry = prefix.bin / "sentiment"
    answer = device(entry, "predict", "很好", "--scores")
    assert json.loads(answer.stdout) == {"label": "差", "score": 0.75, "scores": {"差": 0.75, "好": 0.25}}
    update = device(entry, "install", second, "--json")
    assert update.returncode == 0, update.stderr
    receipt = json.loads(update.stdout)
    assert receipt["previous"] == id_of(bundle)
    assert receipt["gate"]["checks"][0]["value"] == second.stat().st_size
    assert [step["step"] for step in receipt["steps"] if step["ok"]] == [
        "doctor", "stage", "re-hash", "self-test", "tune", "gate", "commit", "read back",
    ]  # fmt: skip
    told = json.loads(device(entry, "status", "--json").stdout)
    assert (told["current"], told["previous"], told["notes"]) == (id_of(second), id_of(bundle), [])
    for release in prefix.releases.iterdir():
        verify_folder(release)
    assert not prefix.staging.exists()
    assert not list(prefix.releases.rglob("*.pyc"))


def test_everyone_may_read_what_was_installed_under_a_tight_umask(bundle: Path, prefix: Prefix, device: Device) -> None:
    line = f"umask 077; exec {sys.executable} {bundle} install --prefix {prefix.root}/deeper"
    assert device("/bin/sh", "-c", line).returncode == 0
    for path in [prefix.root, *prefix.root.rglob("*")]:
        mode = path.lstat().st_mode
        wanted = 0o555 if path.is_dir() or path.parent.name == "bin" else 0o444
        if path.name == ".lock":  # who may read a lock may hold it
            wanted = 0o600
        assert mode & wanted == wanted, path
        assert mode & 0o022 == 0 or path.is_symlink(), path


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not enter folders of this user, whoever they are")
def test_root_learns_what_others_cannot_start(bundle: Path, tmp_path: Path, device: Device) -> None:
    (home := tmp_path / "home").mkdir(mode=0o700)
    done = device(sys.executable, bundle, "install", "--prefix", home / "p")
    assert done.returncode == 0
    first_closed = next(at for at in (*reversed((home / "p").parents), home) if not at.stat().st_mode & 0o001)
    assert f"  note  only root can start it: other users cannot enter {first_closed}\n" in done.stderr
    assert f"        it uses {home}/p; to choose another: sh FILE install --prefix /opt/sentiment\n" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="others may not enter folders of this user, whoever they are")
def test_root_learns_that_others_cannot_run_its_python(
    small_bundle: Path, tmp_path: Path, proven: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home := tmp_path / "home").mkdir(mode=0o700)
    (home / "python3").symlink_to("/bin/sh")
    monkeypatch.setattr(release_process, "interpreter", lambda: str(home / "python3"))
    monkeypatch.setattr(doctor, "closed_to_others", lambda path: home if home in path.parents else None)
    log: list[str] = []
    install(small_bundle, tmp_path / "a prefix", log=log.append)
    told = f"it uses {home}/python3; to choose another: /usr/bin/python3 FILE install --prefix '{tmp_path}/a prefix'"
    assert log[log.index(f"  note  only root can start it: other users cannot enter {home}") + 1].strip() == told


def test_installing_the_same_release_again_changes_nothing(small_bundle: Path, installed: Prefix) -> None:
    before = {path: path.stat().st_mtime_ns for path in installed.releases.rglob("*")}
    again = install(small_bundle, installed.root, log=silent)
    assert (again["verdict"], again["gate"]) == ("already installed", None)
    assert {path: path.stat().st_mtime_ns for path in installed.releases.rglob("*")} == before
    found = state_of(installed)
    assert (found.current, found.previous, found.pending) == (id_of(small_bundle), None, None)
    assert len(list(installed.receipts.iterdir())) == 2


@pytest.mark.parametrize(
    ("gate", "note"),
    [
        ("pass at home", "accuracy.min: not measured: they are at home"),
        ("no gates", "gates: not measured: the recipe sets none"),
    ],
)
def test_install_notes_gates_that_are_not_measured(
    prefix: Prefix, make_bundle: Any, device: Device, gate: str, note: str
) -> None:
    done = device(sys.executable, make_bundle(gate=gate), "install", "--prefix", prefix.root, "--json")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert receipt["notes"][-1] == note
    assert receipt["gate"]["unmeasured"]
    assert f"note  {note}" in done.stderr


@pytest.mark.parametrize("tune", [True, False])
def test_install_replaces_a_damaged_tuning(small_bundle: Path, installed: Prefix, tune: bool) -> None:
    file = installed.tuning_file(installed.releases / id_of(small_bundle))
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"tuning_format": 1')
    receipt = install(small_bundle, installed.root, log=silent, choices=Choices(tune=tune))
    assert [note for note in receipt["notes"] if "is damaged" in note and file.name in note]
    assert (tuning.read(file) is not None) == tune
    assert install(small_bundle, installed.root, log=silent)["verdict"] == "already installed"


def test_install_repairs_a_damaged_release_in_place(small_bundle: Path, installed: Prefix) -> None:
    release = installed.releases / id_of(small_bundle)
    intact = (release / "model/model.onnx").stat().st_ino, (release / "__main__.py").stat().st_ino
    (release / "__main__.py").write_bytes(b"damaged")
    (release / "site/extra").mkdir()
    (release / "site/extra/x.py").touch()
    (release / "golden/rows.jsonl").unlink()
    (release / "golden/rows.jsonl").mkdir()
    (release / "edgepack_runtime/__init__.py").unlink()
    (release / "edgepack_runtime").rmdir()
    (release / "edgepack_runtime").symlink_to("/tmp")
    (release / "manifest.json").write_bytes(b"{}")
    assert install(small_bundle, installed.root, log=silent)["verdict"] == "repaired"
    verify_folder(release)
    assert (release / "model/model.onnx").stat().st_ino == intact[0]
    assert (release / "__main__.py").stat().st_ino != intact[1]


def test_install_keeps_one_previous_release(
    make_bundle: MakeBundle, bundle: Path, second: Path, installed: Prefix
) -> None:
    third = make_bundle(version="1.4.0", sequence=3)
    (installed.releases / "not-ours").mkdir()
    for item in (bundle, second, third):
        install(item, installed.root, log=silent)
    assert {path.name for path in installed.releases.iterdir()} == {id_of(second), id_of(third), "not-ours"}
    assert {path.name for path in installed.interpreters.iterdir()} == {id_of(second), id_of(third)}


@pytest.mark.parametrize(
    ("behaviour", "error", "code"),
    [
        ({"gate": "fail"}, GateFailedError, 6),
        ({"gate": "inconclusive, which refuses"}, GateInconclusiveError, 7),
        ({"gate": "no better than the majority"}, GateInconclusiveError, 7),
        ({"selftest": "fail"}, StageFailedError, 5),
        ({"selftest": "signal"}, StageFailedError, 5),
    ],
)
def test_a_release_that_fails_a_step_never_serves(
    make_bundle: MakeBundle, bundle: Path, served_prefix: Prefix, behaviour: dict[str, str], error: type, code: int
) -> None:
    prefix = served_prefix

    def contents() -> set[Path]:
        return {path for path in prefix.root.rglob("*") if "receipts" not in path.parts}

    before = contents()
    with pytest.raises(error) as caught:
        install(make_bundle(version="2.0.0", **behaviour), prefix.root, log=silent)
    if "gate" in behaviour:
        assert caught.value.why.endswith(f"; {id_of(bundle)} stays active")
    if behaviour.get("selftest") == "signal":
        assert "SIGILL" in str(caught.value)
        assert "lacks an instruction" in str(caught.value)
    assert (prefix.current_id(), contents()) == (id_of(bundle), before)
    told = status.status(prefix)
    assert (told["ok"], told["notes"], told["last_install"]["verdict"]) == (True, [], "not installed")
    receipt = last_receipt(prefix, "install")
    assert (receipt["exit_code"], receipt["gate"] is not None) == (code, "gate" in behaviour)


def test_doubt_goes_on_and_is_written_down(make_bundle: MakeBundle, prefix: Prefix, device: Device) -> None:
    doubtful = make_bundle(gate="inconclusive")
    done = device(sys.executable, doubtful, "install", "--prefix", prefix.root)
    assert done.returncode == 0, done.stderr
    line = f"size.bundle_mib: {doubtful.stat().st_size} bytes, limit <= 1 bytes; n=1"
    assert "INCONCLUSIVE" in done.stdout and line in done.stdout
    told = status.status(prefix)
    assert (told["last_gate"]["verdict"], told["last_gate"]["not_shown"]) == ("inconclusive", [line])
    assert f"| {line}" in status.render(told)
    receipt = last_receipt(prefix, "install")
    assert (receipt["verdict"], receipt["gate"]["verdict"]) == ("installed", "inconclusive")
    assert not receipt["inconclusive_accepted"] and line in receipt["notes"]


@pytest.mark.parametrize(
    ("gate", "option", "code", "accepted"),
    [
        ("inconclusive", "--strict", 7, False),
        ("inconclusive, which refuses", "--accept-inconclusive", 0, True),
        ("inconclusive", "--accept-inconclusive", 0, False),  # there was nothing to accept
        ("no better than the majority", "--accept-inconclusive", 7, False),
        ("fail", "--accept-inconclusive", 6, False),
        ("pass", "--strict", 0, False),
    ],
)
def test_a_command_overrides_the_policy_for_doubt_alone(
    make_bundle: MakeBundle, prefix: Prefix, device: Device, gate: str, option: str, code: int, accepted: bool
) -> None:
    done = device(sys.executable, make_bundle(gate=gate), "install", "--prefix", prefix.root, option)
    assert done.returncode == code, done.stderr
    assert last_receipt(prefix, "install")["inconclusive_accepted"] is accepted
    assert (prefix.current_id() is None) == (code != 0)


def test_a_refusal_for_doubt_names_all_ways_out(make_bundle: MakeBundle, prefix: Prefix) -> None:
    with pytest.raises(GateInconclusiveError) as caught:
        install(make_bundle(gate="inconclusive, which refuses"), prefix.root, log=silent)
    for way in ("--wait", "--accept-inconclusive", "--set gates.latency.p95_ms="):
        assert way in caught.value.fix


def test_a_busy_device_is_waited_for_only_where_time_is_gated(
    make_bundle: MakeBundle, prefix: Prefix, proven: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(interference, "wait_for_quiet", lambda most_s, log: asked.append(most_s) or 12.34)
    for number, (gates, waits) in enumerate(
        [
            ({}, False),
            ({"latency": {"threads": 2}}, False),
            ({"latency": {"p95_ms": 5}}, True),
            ({"cold_start": {"ms": 9}}, True),
        ],
        start=1,
    ):
        receipt = install(
            make_bundle(version=f"1.{number}.0", sequence=number, gates=gates),
            prefix.root,
            log=silent,
            choices=Choices(wait_s=7),
        )
        assert (receipt["waited_s"], asked) == ((12.3, [7]) if waits else (None, []))
        asked.clear()


def test_an_update_is_gated_beside_the_active_release(
    bundle: Path, second: Path, prefix: Prefix, device: Device
) -> None:
    first = device(sys.executable, bundle, "install", "--prefix", prefix.root)
    update = device(sys.executable, second, "install", "--prefix", prefix.root)
    assert " beside " not in first.stderr
    assert f" beside {id_of(bundle)}" in update.stderr


def test_install_switches_back_from_a_release_that_fails_after_the_switch(
    make_bundle: MakeBundle, bundle: Path, prefix: Prefix
) -> None:
    bad = make_bundle(version="2.0.0", selftest="fail installed")
    with pytest.raises(StageFailedError, match="nothing is installed"):
        install(bad, prefix.root, log=silent)
    assert prefix.current_id() is None
    assert not status.status(prefix)["ok"]
    install(bundle, prefix.root, log=silent)
    with pytest.raises(RolledBackError, match=f"{id_of(bundle)} is active again"):
        install(bad, prefix.root, log=silent)
    assert prefix.current_id() == id_of(bundle)
    assert (state_of(prefix).current, state_of(prefix).pending) == (id_of(bundle), None)


def test_install_succeeds_after_damage_at_the_switch_was_rolled_back(
    small_bundle: Path, second: Path, installed: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = activate.write_launcher

    def damage(*arguments: Any, **options: Any) -> None:
        placed(*arguments, **options)
        (installed.releases / id_of(second) / "manifest.json").write_bytes(b"{}")

    with monkeypatch.context() as patch:
        patch.setattr(activate, "write_launcher", damage)
        with pytest.raises(RolledBackError, match=f"{id_of(small_bundle)} is active again"):
            install(second, installed.root, log=silent)
    assert installed.current_id() == id_of(small_bundle)
    receipt = install(second, installed.root, log=silent)
    assert (receipt["verdict"], len(receipt["notes"])) == ("installed", 1)  # that it is not signed
    assert verify_folder(installed.current)


def test_install_switches_back_after_an_unexpected_error(
    small_bundle: Path, second: Path, installed: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_back(*args: Any) -> NoReturn:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(activate, "read_back", read_back)
    with pytest.raises(RuntimeError, match="unexpected"):
        install(second, installed.root, log=silent)
    assert installed.current_id() == id_of(small_bundle)
    assert status.status(installed)["ok"]


def test_a_receipt_names_a_bundle_whose_file_name_is_not_utf8(
    small_bundle: Path, second: Path, installed: Prefix, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"stick-\xb0\xa1.edgepack")
    shutil.copy(small_bundle, odd)
    install(second, installed.root, log=silent)
    with pytest.raises(BundleInvalidError, match="older than"):
        install(odd, installed.root, log=silent)
    assert last_receipt(installed, "install")["error"].startswith("stick-??.edgepack is older")


def test_install_writes_nothing_on_an_unfit_device(make_bundle: MakeBundle, prefix: Prefix) -> None:
    with pytest.raises(UsageError):
        install(Path("/none.edgepack"), prefix.root, log=silent)
    facts = TargetFacts("other", (other_machine(),), "2.5", "host", "CPUExecutionProvider")
    with pytest.raises(EnvironmentUnfitError, match="this is Linux"):
        install(make_bundle(target=facts), prefix.root, log=silent)
    assert not prefix.root.exists()


def test_install_finds_files_that_changed_on_the_disk(
    bundle: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = extract.extract

    def lossy(opened: Archive, manifest: Any, folder: Path, **options: Any) -> None:
        assert options["durable"]
        real(opened, manifest, folder, **options)
        (folder / "model/model.onnx").write_bytes(bytes(999))

    monkeypatch.setattr(extract, "extract", lossy)
    with pytest.raises(BundleInvalidError, match=r"model/model\.onnx: has 999 bytes instead of 1000"):
        install(bundle, prefix.root, log=silent)
    assert prefix.current_id() is None
    assert not prefix.staging.exists()


def test_a_full_disk_at_any_write_keeps_the_old_release(
    small_bundle: Path, second: Path, installed: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.fsync, [0]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            full_disk()
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    for budget in sample(range(200), 7):
        left[0] = budget
        try:
            install(second, installed.root, log=silent)
        except EnvironmentUnfitError as error:
            assert "No space left on device" in error.why
            assert installed.current_id() in (id_of(small_bundle), id_of(second))
            verify_folder(installed.releases / str(installed.current_id()))
        else:
            break
    else:
        raise AssertionError("never got through")
    assert budget > 20
    assert installed.current_id() == id_of(second)


def killed_at(count: int, bundle: Path, root: Path) -> bool:
    """Install in a child that dies like a power cut right before its `count`-th change to the disk; whether it died."""
    child = os.fork()
    if child == 0:
        left = [count]

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)
                return real(*args, **options)

            return call

        for name in ("mkdir", "replace", "rename", "symlink", "unlink", "rmdir", "fsync", "fchmod", "ftruncate"):
            setattr(os, name, dying(getattr(os, name)))
        try:
            install(bundle, root, log=silent)
        except BaseException:  # noqa: BLE001 - the child must never go on with the parent's tests
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.usefixtures("proven")
def test_the_next_command_reports_an_interrupted_install(small_bundle: Path, bundle: Path, prefix: Prefix) -> None:
    install(bundle, prefix.root, log=silent)
    for count in range(400):
        killed_at(count, small_bundle, prefix.root)
        if status.status(prefix)["pending"]:
            break
    note = f"an install of {id_of(small_bundle)} was interrupted; {id_of(bundle)} stays active"
    assert status.status(prefix)["notes"] == [note]
    assert note in install(small_bundle, prefix.root, log=silent)["notes"]


@pytest.mark.usefixtures("proven")
def test_install_removes_leftovers_before_it_checks_the_space(
    small_bundle: Path, bundle: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(bundle, prefix.root, log=silent)
    left = [prefix.staging / id_of(small_bundle), prefix.releases / id_of(small_bundle)]
    for folder in left:
        folder.mkdir(parents=True)

    def statvfs(place: Path) -> SimpleNamespace:
        free = 0 if any(folder.exists() for folder in left) else 100 * doctor.MIB
        return SimpleNamespace(f_bavail=free, f_frsize=1, f_files=0, f_flag=0)

    monkeypatch.setattr(doctor.os, "statvfs", statvfs)
    receipt = install(small_bundle, prefix.root, log=silent)
    assert receipt["verdict"] == "installed"
    assert [check["ok"] for check in receipt["doctor"] if check["check"] == "disk"] == [True]


@pytest.mark.parametrize("failing", ["switch_link", "write_state"])
def test_a_full_disk_after_the_switch_is_told_with_the_release_that_is_active(
    small_bundle: Path, second: Path, installed: Prefix, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fills(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(activate, failing, full_disk)
        full_disk()

    monkeypatch.setattr(activate, "read_back", fills)
    with pytest.raises(EnvironmentUnfitError) as caught:
        install(second, installed.root, log=silent)
    restored = failing == "write_state"
    assert installed.current_id() == id_of(small_bundle if restored else second)
    assert (f"{id_of(small_bundle)} is active again, and state.json could not" in caught.value.what) == restored
    assert ("could not be restored" in caught.value.what) != restored


def test_a_release_that_was_never_switched_to_is_cleared(
    small_bundle: Path, second: Path, installed: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activate, "switch_link", full_disk)
    with pytest.raises(EnvironmentUnfitError, match="cannot be committed"):
        install(second, installed.root, log=silent)
    with pytest.raises(EnvironmentUnfitError, match="no previous release to roll back to"):
        rollback(installed.root, None, log=silent)
    assert {path.name for path in installed.releases.iterdir()} == {id_of(small_bundle)}


@pytest.mark.parametrize("name", ["a:b", "a;b", "a$b"])
def test_a_prefix_whose_name_the_carried_loader_would_split_is_refused(
    bundle: Path, prefix: Prefix, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_module, "BUNDLED", "host")  # as this bundle's target says
    with pytest.raises(UsageError, match="cannot hold this release"):
        install(bundle, prefix.root / name, log=silent)
    assert not prefix.root.exists()


@pytest.mark.parametrize(("place", "reason"), [("{file}/prefix", "Not a directory"), ("/proc/edgepack", "0 MiB free")])
def test_install_refuses_a_prefix_that_cannot_be_written(
    bundle: Path, tmp_path: Path, device: Device, place: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    done = device(sys.executable, bundle, "install", "--prefix", place.format(file=tmp_path / "file"))
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert reason in done.stderr
    assert "fix:" in done.stderr


def test_a_terminated_install_removes_its_staged_files(bundle: Path, prefix: Prefix) -> None:
    process = subprocess.Popen(
        [sys.executable, str(bundle), "install", "--prefix", str(prefix.root)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            if "re-hash" in line:
                process.send_signal(signal.SIGTERM)
                break
        process.stderr.read()
    assert process.wait(30) == 128 + signal.SIGTERM
    assert prefix.current_id() is None
    assert not prefix.staging.exists()


@pytest.mark.parametrize(
    ("error", "code"), [(RuntimeError("a \x1b[31m fault"), 1), (RecursionError(), 1), (MemoryError(), 4)]
)
def test_an_unexpected_error_leaves_a_receipt_and_the_old_release(
    installed: Prefix, make_bundle: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    before = state_of(installed)

    def fails(run: Any, stage: Path) -> NoReturn:
        raise error

    monkeypatch.setattr(install_module, "_prove", fails)
    with pytest.raises(type(error)):
        install(make_bundle(version="9.0.0"), installed.root, log=silent)
    receipt = last_receipt(installed, "install")
    assert (receipt["verdict"], receipt["exit_code"]) == ("not installed", code)
    assert receipt["error"].startswith(type(error).__name__)
    assert "\x1b" not in receipt["error"]
    assert state_of(installed) == before
    assert status.status(installed)["running"] is False
