"""`edgepack gate --target ssh://...` with a real OpenSSH on both sides, on the loopback, and a real bundle.

The server has its own host key, user key, port and configuration in a temporary folder, runs as this user, and ends
with the tests. A relay in front of it can cut a connection after so many bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.conftest import Project
from tests.integration.warm import warm

from edgepack.bundle.archive import write_bundle
from edgepack.targets.this_machine import base_python
from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.util import gate_lock

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not SSHD, reason="sshd is not installed"),
    pytest.mark.skipif(not shutil.which("ssh"), reason="ssh is not installed"),
]
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv HOME={folder}/home TMPDIR={folder}/tmp
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_key(file: Path) -> None:
    file.unlink(missing_ok=True)
    line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(file)]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)


class Relay:
    """Passes connections on to a port; the next one is cut after `cut_after` bytes from the client, if that is set."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.cut_after: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                left, self.cut_after = self.cut_after, None
                threading.Thread(target=self._connect, args=(client, left), daemon=True).start()

    def _connect(self, client: socket.socket, left: int | None) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            back = threading.Thread(target=self._pass_on, args=(server, client, None), daemon=True)
            back.start()
            self._pass_on(client, server, left)
            back.join()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while left is None or left > 0:
                data = one.recv(65536)
                if not data:
                    break
                other.sendall(data)
                left = None if left is None else left - len(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class Device:
    """What is reached through the server, and how `edgepack gate` is started for it."""

    folder: Path
    relay: Relay

    @property
    def url(self) -> str:
        return f"ssh://127.0.0.1:{self.relay.port}"

    @property
    def options(self) -> list[str]:
        known = f"UserKnownHostsFile={self.folder / 'known_hosts'}"
        given = ["-o", known, "-o", "IdentitiesOnly=yes", "-o", "GlobalKnownHostsFile=/dev/null"]
        return ["--identity", str(self.folder / "user"), *given]

    def know(self, key: Path | None = None) -> None:
        """Put the host key, or another one, into the file of known hosts."""
        public = (key or self.folder / "host").with_suffix(".pub").read_text().rsplit(" ", 1)[0]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.relay.port} {public}\n")

    def words(self, *arguments: str | Path, target: str | None = None) -> list[str]:
        words = [*map(str, arguments), "--target", target or self.url, *self.options]
        return ["gate", *words, "--receipts", str(self.folder / "receipts")]

    def line(self, *arguments: str | Path) -> list[str]:
        """For gates in their own process, which alone takes longer than most of these gates until they fail."""
        return [sys.executable, "-m", "edgepack.cli", *self.words(*arguments)]

    def gate(self, *arguments: str | Path, target: str | None = None) -> subprocess.CompletedProcess[str]:
        return warm().run(self.words(*arguments, target=target), self.folder)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with serving(tmp_path_factory.mktemp("sshd"), CONFIG) as found:
        yield found


@contextlib.contextmanager
def serving(folder: Path, config: str) -> Iterator[Device]:
    """A device with a server of this configuration."""
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    for name in ("host", "user"):
        make_key(folder / name)
    port = free_port()
    (folder / "config").write_text(config.format(port=port, folder=folder))
    made = os.geteuid() == 0 and not Path("/run/sshd").exists()
    if made:  # where root's sshd keeps its unprivileged half in; every system that starts it as a service has it
        Path("/run/sshd").mkdir(mode=0o755)
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(SSHD), "-D", "-e", "-f", folder / "config"], stdin=subprocess.DEVNULL, stderr=log
        )
    try:
        listening(server, port, folder / "log")
        relay = Relay(port)
        found = Device(folder, relay)
        found.know()
        yield found
        relay.close()
    finally:
        server.terminate()
        server.wait(30)
        if made:
            Path("/run/sshd").rmdir()


def listening(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the server takes connections; skip where this system lets nobody run one."""
    for _ in range(200):
        if server.poll() is not None:
            pytest.skip(f"sshd does not run here: {log.read_text()[-300:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    pytest.fail(f"sshd does not listen: {log.read_text()[-300:]}")


def with_other_members(bundle: Path, out: Path, changes: dict[str, bytes | None], **fields: object) -> Path:
    """`bundle` with other content in some members, or without them, and its manifest made to fit."""
    with Archive(bundle) as archive:
        head = archive.stub()
        members = {path: archive.read(path, member.size) for path, member in archive.members.items()}
    document = json.loads(members["manifest.json"])
    members.update({path: data for path, data in changes.items() if data is not None})
    for path in ("manifest.json", *(path for path, data in changes.items() if data is None)):
        del members[path]
    document["files"] = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(members.items())
    ]
    document.update(fields)
    raw = (json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode()
    contract.parse(raw)
    write_bundle({**members, "manifest.json": raw}, out, head)
    return out


@pytest.fixture(scope="module")
def bundle(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the project without the gate that is measured in a process of its own."""
    with Archive(project.bundle) as archive:
        gates = json.loads(archive.read("manifest.json", contract.MAX_MANIFEST_BYTES))["gates"]
    gates["memory"] = None
    out = tmp_path_factory.mktemp("bundle") / project.bundle.name
    return with_other_members(project.bundle, out, {}, gates=gates)


def test_a_bundle_is_copied_gated_and_removed(device: Device, project: Project, tmp_path: Path) -> None:
    junit, page = tmp_path / "junit.xml", tmp_path / "gate.md"
    done = device.gate(project.bundle, "--junit", junit, "--markdown", page)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "gate of tiny 0.1.0 for local: PASS" in done.stdout
    assert "copying " in done.stderr
    assert "memory: " in done.stderr  # the device's own progress
    assert "<testsuites" in junit.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").startswith("## ✅ Gate: pass\n")
    (receipt,) = (device.folder / "receipts").rglob("*.json")
    assert receipt.name == "000001-gate.json"
    assert json.loads(receipt.read_text(encoding="utf-8"))["verdict"] == "pass"
    assert list((device.folder / "tmp").iterdir()) == []
    assert (device.folder / "log").read_text().count("Accepted publickey") == 1  # one login for all of it


def test_a_link_that_is_cut_goes_on_where_it_was(device: Device, bundle: Path) -> None:
    size = bundle.stat().st_size
    device.relay.cut_after = size // 2
    done = device.gate(bundle, "--json")
    assert "broke while the bundle was copied; connecting again" in done.stderr, done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    (result,) = json.loads(done.stdout)["results"]
    assert (result["copied"]["links"], result["copied"]["sent_bytes"]) == (2, size)
    assert list((device.folder / "tmp").iterdir()) == []


def test_a_bundle_for_another_processor_is_not_even_copied(device: Device, bundle: Path, tmp_path: Path) -> None:
    with Archive(bundle) as archive:
        target = json.loads(archive.read("manifest.json", 1 << 30))["target"]
    target["machines"] = ["aarch64"]
    other = with_other_members(bundle, tmp_path / "arm.edgepack", {}, target=target)
    done = device.gate(other)
    assert done.returncode == 9
    assert "this is Linux x86_64" in done.stderr
    assert "copying" not in done.stderr


def test_a_host_key_that_changed_or_is_not_known(device: Device, bundle: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    try:
        device.know(tmp_path / "other")
        done = device.gate(bundle)
        assert done.returncode == 9
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr
        assert f"{device.folder / 'known_hosts'}:1" in done.stderr  # where ssh found the other key
        (device.folder / "known_hosts").write_text("")
        done = device.gate(bundle)
        assert done.returncode == 9
        assert "Host key verification failed" in done.stderr
        assert f"ssh -p {device.relay.port} 127.0.0.1" in done.stderr
    finally:
        device.know()


def test_whoever_has_no_key_gets_no_further(device: Device, bundle: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger")
    own, other = str(device.folder / "user"), str(tmp_path / "stranger")
    line = [other if word == own else word for word in device.line(bundle)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 9
    assert "Permission denied (publickey)" in done.stderr


def test_nobody_listens(device: Device, bundle: Path) -> None:
    done = device.gate(bundle, target=f"ssh://127.0.0.1:{free_port()}")
    assert done.returncode == 9
    assert "Connection refused" in done.stderr


def test_a_name_that_leads_nowhere(device: Device, bundle: Path) -> None:
    done = device.gate(bundle, target="ssh://nowhere.invalid")
    assert done.returncode == 9
    assert "Could not resolve hostname nowhere.invalid" in done.stderr


def test_a_device_without_sftp(bundle: Path, tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG.replace("Subsystem sftp internal-sftp\n", "")) as device:
        done = device.gate(bundle)
    assert done.returncode == 9
    assert "accepts no files" in done.stderr and "Subsystem sftp" in done.stderr
    assert "connecting again" not in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_device_prints_does_nothing_to_a_terminal(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "banner").write_bytes(b"\x1b]0;owned\x07\x1b[2J\xff\n" * 3)
    config = CONFIG.replace("{folder}/user.pub", "none") + "Banner {folder}/banner\n"
    with serving(tmp_path, config) as device:
        done = device.gate(bundle)
    assert done.returncode == 9
    assert "Permission denied" in done.stderr
    assert done.stderr.replace("\n", "").isprintable()


def test_what_is_installed_is_gated(device: Device, bundle: Path) -> None:
    prefix = device.folder / "opt"
    line = [base_python(), "-I", "-S", bundle, "install", "--wait", "0", "--prefix", prefix, "--no-tune"]
    subprocess.run(line, check=True, capture_output=True, env={"PATH": "/usr/bin:/bin"})
    url = f"{device.url}{prefix}"
    done = device.gate(bundle, "--installed", target=url)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list((prefix / "receipts").glob("*-gate.json"))) == 1


def test_one_waits_for_another(device: Device, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (gate_lock.VARIABLE, "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)  # as the device
    heard = []
    with contextlib.ExitStack() as another:
        another.enter_context(gate_lock.hold(print))
        line = device.line(bundle)
        with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for told in process.stderr:
                heard.append(told)
                if "another gate is running" in told:
                    another.close()
    assert process.returncode == 0, heard[-10:]
    assert [told for told in heard if "another gate is running" in told]


def test_rows_that_stay_at_home_are_lent_for_one_gate(device: Device, bundle: Path, tmp_path: Path) -> None:
    with Archive(bundle) as archive:
        rows = archive.read(golden.ROWS_FILE, archive.members[golden.ROWS_FILE].size)
        gates = json.loads(archive.read("manifest.json", contract.MAX_MANIFEST_BYTES))["gates"]
    secret = "只有家里才知道"
    rows += json.dumps({**json.loads(rows.splitlines()[0]), "text": secret}, ensure_ascii=False).encode() + b"\n"
    gates["golden"].update(carry=False, sha256=hashlib.sha256(rows).hexdigest())
    made_up = "".join(json.dumps({"text": "好" * n}, ensure_ascii=False) + "\n" for n in range(1, 60)).encode()
    changes = {golden.ROWS_FILE: None, golden.TEXTS_FILE: made_up}
    at_home = with_other_members(bundle, tmp_path / "at-home.edgepack", changes, gates=gates)
    file = tmp_path / "at-home.rows.jsonl"
    file.write_bytes(rows)
    verdicts = {}
    for words in (["--rows", str(file)], ["--without-rows"], []):
        done = device.gate(at_home, "--json", *words)
        (result,) = json.loads(done.stdout)["results"]
        accuracy = result["receipt"]["accuracy"]
        verdicts["".join(words[:1])] = (result["verdict"], done.returncode, accuracy and accuracy["n"])
    assert verdicts == {
        "--rows": ("pass", 0, rows.count(b"\n")),
        "--without-rows": ("pass", 0, None),
        "": ("inconclusive", 7, None),
    }
    assert not [path for path in device.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_ctrl_c_ends_what_runs_on_the_device(device: Device, project: Project) -> None:
    here = str(device.folder / "tmp")
    kept = sorted((device.folder / "receipts").rglob("*"))
    line = device.line(project.bundle)  # after its latency, it is busy for seconds
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "latency" in line:
                break
        assert running(here)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 130, rest
    assert "interrupted" in rest
    for _ in range(600):
        if not running(here):
            break
        time.sleep(0.05)
    assert running(here) == []
    assert list((device.folder / "tmp").iterdir()) == []
    assert sorted((device.folder / "receipts").rglob("*")) == kept


def heed_ctrl_c() -> None:
    """In a child: tests that run in the background of a shell ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def running(words: str) -> list[str]:
    """Command lines of processes that have `words` in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if words in line and not re.match(r"\S*sshd?[: ]", line):
                found.append(line)
    return found
