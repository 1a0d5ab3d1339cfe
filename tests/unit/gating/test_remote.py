"""A gate on a device, all of it but ssh itself: what is copied, what is refused before, and what breaks off."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interpreters import other_machine
from tests.unit.far import Far, Heard, far, far_bundle
from tests.unit.runtime.ssh_keys import make_key

from edgepack.bundle import signing
from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.gating import remote, ssh
from edgepack.gating.address import Address
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.gating.local import NO_ROWS
from edgepack.gating.remote import RemoteGate, VerifiedBundle
from edgepack.gating.ssh import Client, Connection
from edgepack.util.hashing import sha256_file
from edgepack_runtime.bundle.manifest import MACHINES, FileEntry, release_id
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import reported
from edgepack_runtime.util import gate_lock

__all__ = ["far"]
LINE3 = Address("line3")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are made again without a pause."""
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return far_bundle(tmp_path_factory.mktemp("bundles") / "a.edgepack", model=b"a" * 200)


def parcel(bundle: Path) -> VerifiedBundle:
    manifest, raw = verify_file(bundle)
    return VerifiedBundle(bundle, manifest, release_id(manifest, raw), bundle.stat().st_size, sha256_file(bundle))


def gate(
    far: Far,
    bundle: Path,
    prefix: Path | None = None,
    progress: Heard | None = None,
    to: Address = LINE3,
    rows: GoldenRowsOption = NO_ROWS,
    folder: Path | None = None,
) -> RemoteGate:
    """Gate a bundle there; nothing of it is left."""
    to = dataclasses.replace(to, prefix=prefix and str(prefix))
    try:
        with Connection(Client(), to, 5.0) as connection:
            return remote.gate(parcel(bundle), connection, folder and str(folder), rows, (progress or Heard()).line)
    finally:
        if (far.root / to.host / "tmp").exists():
            assert far.left(to.host) == []


def gate_installed(
    far: Far, which: Path | None, prefix: Path | None, rows: GoldenRowsOption = NO_ROWS, progress: Heard | None = None
) -> RemoteGate:
    with Connection(Client(), dataclasses.replace(LINE3, prefix=prefix and str(prefix)), 5.0) as connection:
        sent = None if which is None else parcel(which)
        return remote.gate_installed(sent, connection, None, rows, (progress or Heard()).line)


def test_the_bundle_is_copied_gated_and_removed(far: Far, bundle: Path) -> None:
    heard = Heard()
    gated = gate(far, bundle, progress=heard)
    assert (gated.exit_code, gated.receipt["verdict"]) == (0, "pass")
    assert gated.receipt["checks"][0]["value"] == bundle.stat().st_size / 2**20
    assert gated.receipt["conditions"]["release"].startswith(str(far.root / "line3" / "tmp" / "edgepack-gate."))
    assert heard.lines == [f"copying {bundle.stat().st_size / 2**20:.1f} MiB", "measuring"]
    assert gated.copied is not None
    assert (gated.copied.sent_bytes, gated.copied.links) == (bundle.stat().st_size, 1)
    assert gated.device["system"] == "Linux"
    assert (gated.device["python"] or "").startswith("3.")


@pytest.mark.parametrize(("verdict", "code"), [("fail", 6), ("inconclusive", 7)])
def test_the_verdict_of_the_device_is_the_result(far: Far, tmp_path: Path, verdict: str, code: int) -> None:
    gated = gate(far, far_bundle(tmp_path / "x.edgepack", gate=verdict))
    assert (gated.exit_code, gated.receipt["verdict"]) == (code, verdict)


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("break", StageFailedError, "ended with exit code 3 before a verdict"),
        ("flood", StageFailedError, "printed more than"),
        ("of another", StageFailedError, "the receipt of another gate"),
    ],
)
def test_a_gate_without_a_valid_verdict_is_an_error(
    far: Far, tmp_path: Path, behaviour: str, kind: type[EdgepackError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        gate(far, far_bundle(tmp_path / "x.edgepack", gate=behaviour))


def test_a_copy_resumes_after_a_broken_connection(far: Far, bundle: Path) -> None:
    far.breaks_after("line3", 50_000)
    heard = Heard()
    gated = gate(far, bundle, progress=heard)
    assert gated.exit_code == 0
    assert gated.copied is not None and gated.copied.links == 2
    assert "the connection to line3 broke while the bundle was copied; connecting again" in heard.lines
    assert far.sent() == [bundle.stat().st_size - 50_000]


def test_repeatedly_broken_copies_are_an_error(far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    far.breaks_after("line3", 50_000)
    with pytest.raises(TargetUnreachableError, match="broke while the bundle was copied"):
        gate(far, bundle)


def test_a_damaged_copy_is_not_started(far: Far, bundle: Path) -> None:
    with pytest.raises(StageFailedError, match="did not arrive on damages as it was sent"):
        gate(far, bundle, to=Address("damages"))


def test_a_full_disk_of_the_device_is_reported(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", more={"site/big.so": os.urandom(3 << 20)})
    with pytest.raises(EnvironmentUnfitError, match=r"bundle\.edgepack cannot be written on small") as error:
        gate(far, bundle, to=Address("small"))
    assert "--remote-dir" in error.value.fix


@pytest.mark.parametrize("free", [0, 10])
def test_a_device_without_free_space_is_unfit(far: Far, bundle: Path, free: int) -> None:
    if free:
        (commands := far.root / "line3" / "bin").mkdir(parents=True)
        (commands / "df").write_text(f"#!/bin/sh\necho head; echo /dev/x 100 90 {free} 90% /\n")
        (commands / "df").chmod(0o755)
    with pytest.raises(EnvironmentUnfitError, match="no place on line3") as error:
        gate(far, bundle, folder=None if free else Path("/proc/nowhere"))
    assert ("0 MiB of the 2 MiB that are needed" if free else "/proc/nowhere") in error.value.why
    assert "--remote-dir" in error.value.fix


def test_the_interpreter_needs_place_twice(far: Far, bundle: Path) -> None:
    """In the release, and where the file unpacks it to start."""
    (far.root / "line3" / "bin").mkdir(parents=True)
    df = far.root / "line3" / "bin" / "df"
    df.write_text(f"#!/bin/sh\necho head; echo /dev/x 100 90 {97 * 1024} 90% /\n")
    df.chmod(0o755)
    sent = parcel(bundle)
    packed = [FileEntry(f"{machine}/python/lib/x", 49 << 20, "0" * 64) for machine in MACHINES]
    manifest = dataclasses.replace(sent.manifest, files=(*sent.manifest.files, *packed))
    with Connection(Client(), LINE3, 5.0) as connection:
        assert remote.gate(parcel(bundle), connection, None, NO_ROWS, Heard().line).exit_code == 0
        with pytest.raises(EnvironmentUnfitError, match="no place on line3") as error:
            sent = dataclasses.replace(sent, manifest=manifest)
            remote.gate(sent, connection, None, NO_ROWS, Heard().line)
    assert "97 MiB of the 100 MiB that are needed" in error.value.why


def test_the_folder_for_temporary_files_can_be_named(far: Far, bundle: Path) -> None:
    (folder := far.root / "my disk").mkdir()
    assert str(folder) in gate(far, bundle, folder=folder).receipt["conditions"]["release"]
    assert list(folder.iterdir()) == []


def test_a_folder_that_another_user_can_replace_is_not_used(far: Far, bundle: Path) -> None:
    (folder := far.root / "my disk").mkdir()
    folder.chmod(0o777)
    with pytest.raises(EdgepackError, match="no place on line3") as error:
        gate(far, bundle, folder=folder)
    assert error.value.why == f"another user may rename what is in {folder}"
    assert list(folder.iterdir()) == []


def test_a_folder_of_a_device_has_a_name_of_limited_length(far: Far, bundle: Path) -> None:
    """sftp cuts a longer line of its batch into two commands."""
    (commands := far.root / "line3" / "bin").mkdir(parents=True)
    (commands / "df").write_text("#!/bin/sh\necho head; echo /dev/x 100 90 999999 90% /\n")
    (commands / "df").chmod(0o755)
    for length in (179, 180):
        base = far.root / ("x" * (length - len(f"{far.root}/")))
        (commands / "mktemp").write_text(
            f"#!/bin/sh\nmkdir -p {base}/edgepack-gate.abcdef\necho {base}/edgepack-gate.abcdef\n"
        )
        (commands / "mktemp").chmod(0o755)
        if length == 179:
            assert gate(far, bundle).exit_code == 0
            assert list(base.iterdir()) == []
    with pytest.raises(EnvironmentUnfitError) as error:
        gate(far, bundle)
    assert "200 characters" in error.value.why


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"machines": (other_machine(),)}, "x is not of target line: this is Linux "),
        ({"libc_min": "99.1"}, "x is not of target line: the C library is glibc"),
        ({"provider": "CUDAExecutionProvider"}, "x is not of target line"),
    ],
)
def test_a_device_of_another_kind(far: Far, tmp_path: Path, facts: dict[str, Any], words: str) -> None:
    from tests.unit.runtime.conftest import target_facts

    if "provider" in facts and shutil.which("nvidia-smi"):
        pytest.skip("this machine has what the bundle asks for")
    bundle = far_bundle(tmp_path / "x.edgepack", target=target_facts(profile="line", **facts))
    with pytest.raises(TargetUnreachableError, match=words.replace("x ", "line3 ", 1)) as error:
        gate(far, bundle)
    assert error.value.why
    assert error.value.fix
    assert (far.root / "sent").exists() == ("libc_min" in facts or "provider" in facts)


def test_a_device_without_memory_is_unfit(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", gates={"memory": {"peak_rss_mib": 1e9}})
    with pytest.raises(EnvironmentUnfitError, match="MiB available"):
        gate(far, bundle)


@pytest.fixture
def installed(far: Far, bundle: Path) -> Path:
    """The prefix of an install of `bundle` on the device."""
    prefix = far.root / "line3" / "my opt"
    line = [far.python, "-I", "-S", str(bundle), "install", "--prefix", str(prefix), "--no-tune"]
    environment = {"PATH": "/usr/bin:/bin", gate_lock.VARIABLE: os.environ[gate_lock.VARIABLE]}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return prefix


def test_golden_rows_are_removed_from_the_device_after_the_gate(far: Far, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("很好的秘密\n" * 20_000, encoding="utf-8")
    gated = gate(far, bundle, rows=GoldenRowsOption(file))
    assert (gated.exit_code, gated.receipt["conditions"]["rows"]) == (0, file.read_text(encoding="utf-8"))
    kept = [path for path in far.root.rglob("*") if path.is_file() and "很好的秘密".encode() in path.read_bytes()]
    assert kept == []


def test_without_rows_is_passed_on(far: Far, bundle: Path) -> None:
    assert gate(far, bundle, rows=GoldenRowsOption(without=True)).receipt["unmeasured"][0]["waived"] is True
    assert gate(far, bundle).receipt["unmeasured"] == []


def test_the_installed_release_is_gated_by_its_launcher(
    far: Far, bundle: Path, installed: Path, tmp_path: Path
) -> None:
    (file := tmp_path / "rows.jsonl").write_text("很好\n", encoding="utf-8")
    assert gate_installed(far, None, installed, GoldenRowsOption(file)).receipt["conditions"]["rows"] == "很好\n"
    for which in (bundle, None):
        gated = gate_installed(far, which, installed)
        assert (gated.exit_code, gated.receipt["bundle"]["version"], gated.copied) == (0, "1.2.0", None)
        assert str(installed) in gated.receipt["conditions"]["release"]
        assert (gated.device["python"] or "").startswith("3.")
    assert (installed / "receipts" / "000003-gate.json").is_file()
    assert far.left("line3") == []
    changed = far_bundle(tmp_path / "b.edgepack", version="1.3.0")
    with pytest.raises(TargetUnreachableError, match=r"1\.2\.0-.* is active on line3") as error:
        gate_installed(far, changed, installed)
    assert "1.3.0" in error.value.why
    with pytest.raises(TargetUnreachableError, match=r"nothing is installed in .*none"):
        gate_installed(far, None, installed / "none")
    with pytest.raises(UsageError, match="which install is meant"):
        gate_installed(far, None, None)


def test_trusted_keys_decide_before_anything_of_the_bundle_runs(
    far: Far, bundle: Path, installed: Path, tmp_path: Path
) -> None:
    right, wrong = make_key(tmp_path, "right"), make_key(tmp_path, "wrong")
    trusted = f"release {right.with_suffix('.pub').read_text()}"
    (installed / "trusted_signers").write_text(trusted)
    mean = {"__main__.py": f"open({str(far.root / 'ran')!r}, 'w')".encode()}
    evil = far_bundle(tmp_path / "evil.edgepack", more=mean)
    with pytest.raises(BundleInvalidError, match=r"does not take evil\.edgepack") as error:
        gate(far, evil, installed)
    assert "is not signed, and this device accepts only signed bundles" in error.value.what
    for key, file in ((wrong, evil), (right, bundle)):
        signing.sign(file, key, signed := tmp_path / f"{key.name}.edgepack")
        if key is right:
            assert gate(far, signed, installed).exit_code == 0
        else:
            with pytest.raises(BundleInvalidError) as error:
                gate(far, signed, installed)
            assert "signed by a key that this device does not trust" in error.value.what
    (bare := far.root / "line3" / "bare").mkdir()
    for name in ("trusted_signers", "revoked_keys"):
        (bare / name).write_text(trusted)
        with pytest.raises(BundleInvalidError) as error:
            gate(far, evil, bare)
        assert f"{bare} has {name}, and no release in {bare} can check them" in error.value.why
        (bare / name).unlink()
    assert not (far.root / "ran").exists()


def test_another_program_is_not_taken_for_the_installed_release(far: Far, bundle: Path, tmp_path: Path) -> None:
    (mean := tmp_path / "mean" / "bin").mkdir(parents=True)
    (mean / "facter").write_text(f"#!/bin/sh\ntouch {far.root / 'ran'}\ncat {tmp_path}/answer\n")
    (mean / "facter").chmod(0o755)
    assert gate(far, bundle, mean.parent).exit_code == 0  # no key is trusted, and it is no prefix: it does not run
    assert not (far.root / "ran").exists()
    (mean.parent / "current").symlink_to("bin")
    for answer in ("", '{"verify": null}', '{"ok": true, "release_id": "another"}', "no release"):
        (tmp_path / "answer").write_text(answer)
        with pytest.raises(EdgepackError, match=r"does not take a\.edgepack"):
            gate(far, bundle, mean.parent)
    assert (far.root / "ran").exists()


def test_an_error_of_a_device_is_cut() -> None:
    error = {"error": {"exit_code": 4, "what": "x" * 100_000, "why": "y" * 100_000, "fix": ""}}
    found = reported(json.dumps(error))
    assert found is not None and len(found.what) == len(found.why) == 4000


def gone(process: int) -> bool:
    """Whether the process ends; a zombie has ended."""
    for _ in range(600):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_gate_ends_with_its_connection(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_GRACE_S", 1.0)  # what runs on the device keeps the pipes of the killed ssh open
    bundle = far_bundle(tmp_path / "x.edgepack", gate="hang")
    found: list[int] = []
    running = threading.Event()

    class Ear(Heard):
        def line(self, text: str) -> None:
            super().line(text)
            if text.startswith("process "):
                found.append(int(text.split()[1]))
                running.set()

    ear, connection = Ear(), Connection(Client(), LINE3, 5.0)

    def run() -> None:
        with connection, pytest.raises(TargetUnreachableError, match="broke while the gate ran"):
            remote.gate(parcel(bundle), connection, None, NO_ROWS, ear.line)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert running.wait(60)
        assert connection._running is not None
        connection._running.kill()
    finally:
        thread.join(60)
    assert not thread.is_alive()
    assert gone(found[0])
    assert far.left("line3") == []


def test_files_that_cannot_be_removed_are_reported(far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (commands := far.root / "line3" / "bin").mkdir(parents=True)
    (commands / "rm").write_text("#!/bin/sh\nexit 1\n")
    (commands / "rm").chmod(0o755)
    heard = Heard()
    with Connection(Client(), LINE3, 5.0) as connection:
        gated = remote.gate(parcel(bundle), connection, None, NO_ROWS, heard.line)
    (left,) = far.left("line3")
    assert gated.exit_code == 0
    assert heard.lines[-1] == f"note: {left} was left on line3; to remove it: ssh line3 'rm -rf {left}'"


@contextmanager
def holding(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a lock on `file` until its input is closed."""
    script = (
        "import fcntl, sys\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    line = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder


def test_two_gates_on_one_device_take_turns(far: Far, bundle: Path, installed: Path) -> None:
    class LetsGo(Heard):
        """Has the holder of the lock release it when somebody waits."""

        def line(self, text: str) -> None:
            super().line(text)
            if "another gate is running" in text:
                assert holder.stdin is not None
                holder.stdin.close()

    gate(far, bundle)
    for which in (gate, gate_installed):
        with holding(far.root / "line3" / "edgepack-gate.lock") as holder:
            heard = LetsGo()
            assert which(far, bundle, installed, progress=heard).exit_code == 0
        assert [line for line in heard.lines if "another gate is running on this device" in line]


@pytest.mark.parametrize(
    "printed", ["", "[]", '{"checks": [1]}', '{"checks": [{"check": "libc", "what": ["x"]}]}', "[" * 9999]
)
def test_invalid_output_of_doctor_is_an_error(far: Far, tmp_path: Path, printed: str) -> None:
    main = f"import sys\nif 'doctor' in sys.argv: print({printed!r}); sys.exit()\n"
    bundle = far_bundle(tmp_path / "x.edgepack", more={"__main__.py": main.encode()})
    with pytest.raises(EdgepackError) as error:
        gate(far, bundle)
    assert isinstance(error.value, StageFailedError | TargetUnreachableError)


def test_long_texts_of_a_device_are_cut(far: Far, tmp_path: Path) -> None:
    printed = json.dumps({"checks": [{"check": "memory", "ok": False, "what": "x" * 50_000}]})
    main = f"import sys\nif 'doctor' in sys.argv: print({printed!r}); sys.exit()\n"
    bundle = far_bundle(tmp_path / "x.edgepack", more={"__main__.py": main.encode()})
    with pytest.raises(EdgepackError) as error:
        gate(far, bundle)
    assert "x" * 1000 in error.value.what
    assert len(error.value.what) < 3000


@pytest.mark.parametrize("device", ["x", {"board": []}, {"python": 3}, None])
def test_invalid_facts_of_a_device_become_none(far: Far, tmp_path: Path, device: Any) -> None:
    facts = remote._facts({"device": device})
    assert set(facts.values()) <= {None}
