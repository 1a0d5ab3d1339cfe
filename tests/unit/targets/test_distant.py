"""A gate on a device, all of it but ssh itself: what travels, what is refused before, and what breaks off."""

from __future__ import annotations

import json
import os
import re
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
from tests.unit.far import Far, Heard, far, far_bundle
from tests.unit.runtime.ssh_keys import make_key

from edgepack import signing
from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
)
from edgepack.stages.gate import NO_ROWS, gate_installed, gate_there
from edgepack.targets import distant
from edgepack.targets.address import Address
from edgepack.targets.distant import Gated, Parcel, Place
from edgepack.targets.rows import Rows
from edgepack.targets.ssh import Client, Link, LostError
from edgepack_runtime import verify
from edgepack_runtime.archive import Archive

__all__ = ["far"]
LINE3 = Address("line3")
ANYWHERE = Place()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are made again without a pause."""
    monkeypatch.setattr(distant, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return far_bundle(tmp_path_factory.mktemp("bundles") / "a.edgepack", model=b"a" * 200)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With another model, and all else the same."""
    return far_bundle(tmp_path_factory.mktemp("bundles") / "b.edgepack", model=b"b" * 200, version="1.3.0")


@contextmanager
def parcel(bundle: Path) -> Iterator[Parcel]:
    with Archive(bundle) as archive:
        raw, signature = verify.read_sealed(archive)
        manifest, _ = verify.verify_archive(archive, raw)
        yield Parcel(archive, manifest, raw, signature)


def gate(
    far: Far,
    bundle: Path,
    place: Place = ANYWHERE,
    progress: Heard | None = None,
    to: Address = LINE3,
    rows: Rows = NO_ROWS,
) -> tuple[int, dict[str, Any], Gated]:
    with parcel(bundle) as sent:
        return gate_there(sent, lambda: Link(Client(), to, [far.python]), place, rows, progress or Heard())


def test_the_first_copy_the_second_and_one_of_another_model(far: Far, bundle: Path, changed: Path) -> None:
    heard = Heard()
    code, receipt, first = gate(far, bundle, progress=heard)
    assert (code, receipt["verdict"], first.answer.exit_code) == (0, "pass", 0)
    assert receipt["checks"][0]["value"] == bundle.stat().st_size / 2**20
    assert receipt["conditions"]["release"].startswith(str(far.cache("line3") / "releases"))
    assert heard.lines[0].startswith("copying ")
    assert heard.lines[-1] == "measuring"
    assert first.copied.files > 50
    _, _, again = gate(far, bundle)
    assert (again.copied.files, again.copied.links) == (0, 1)
    _, receipt, other = gate(far, changed)
    assert receipt["bundle"]["version"] == "1.3.0"
    assert other.copied.files == 1
    assert other.copied.sent_bytes - again.copied.sent_bytes < 1000  # the model, and no more
    assert first.copied.sent_bytes > 2 * other.copied.sent_bytes


@pytest.mark.parametrize(("verdict", "code"), [("fail", 6), ("inconclusive", 7)])
def test_the_devices_verdict_is_the_result(far: Far, tmp_path: Path, verdict: str, code: int) -> None:
    found, receipt, _ = gate(far, far_bundle(tmp_path / "x.edgepack", gate=verdict))
    assert (found, receipt["verdict"]) == (code, verdict)


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        ("break", StageFailedError, "ended with exit code 3 before a verdict"),
        ("flood", StageFailedError, "printed more than"),
        ("of another", StageFailedError, "a receipt that is not its own"),
    ],
)
def test_a_gate_that_gives_no_verdict_of_its_own(
    far: Far, tmp_path: Path, behaviour: str, kind: type[EdgepackError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        gate(far, far_bundle(tmp_path / "x.edgepack", gate=behaviour))


def test_a_link_that_breaks_while_it_is_copied_is_made_again(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", more={"site/big.so": os.urandom(3 << 20)})
    far.breaks_after("line3", 1_500_000)
    heard = Heard()
    code, _, gated = gate(far, bundle, progress=heard)
    assert (code, gated.copied.links) == (0, 2)
    assert "the link to line3 broke while the bundle was copied; connecting again" in heard.lines
    assert any("of them came before" in line for line in heard.lines)
    assert gated.copied.sent_bytes < bundle.stat().st_size + 600_000  # what was in pipes; not all of it twice


def test_one_that_breaks_again_and_again_is_an_error_and_what_came_stays(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", more={"site/big.so": os.urandom(3 << 20)})
    monkeypatch.setattr(distant, "ATTEMPTS", 1)
    far.breaks_after("line3", 2_000_000)
    with pytest.raises(TargetUnreachableError, match="broke while the bundle was copied"):
        gate(far, bundle)
    assert not list((far.cache("line3") / "releases").glob("1.*"))
    _, _, gated = gate(far, bundle)
    assert gated.copied.sent_bytes < bundle.stat().st_size - 500_000


def test_what_is_damaged_there_is_sent_again(far: Far, bundle: Path) -> None:
    gate(far, bundle)
    (release,) = (far.cache("line3") / "releases").glob("1.*")
    vocabulary = release / "model" / "vocab.txt"
    vocabulary.write_bytes(bytes(vocabulary.stat().st_size))
    code, _, gated = gate(far, bundle)
    assert (code, gated.copied.files) == (0, 1)
    assert vocabulary.read_text(encoding="utf-8") == "差 好\n"


def test_old_releases_go_where_every_gate_is_interrupted(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distant, "_tidy", lambda *arguments: None)
    for number in range(4):
        gate(far, far_bundle(tmp_path / f"{number}.edgepack", version=f"1.0.{number}"))
    kept = sorted(path.name[:5] for path in (far.cache("line3") / "releases").glob("[0-9]*"))
    assert kept == ["1.0.2", "1.0.3"]


def test_nothing_stays_where_nothing_is_to_stay(far: Far, bundle: Path) -> None:
    cache = far.root / "elsewhere"
    gate(far, bundle, Place(cache=str(cache), clean=True))
    assert [path.name for path in cache.rglob("*")] == ["edgepack-gate", ".lock"]
    assert not far.cache("line3").exists()


def test_nothing_stays_however_it_ends_where_nothing_is_to_stay(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = far.root / "elsewhere"
    with pytest.raises(StageFailedError):
        gate(far, far_bundle(tmp_path / "break.edgepack", gate="break"), Place(cache=str(cache), clean=True))
    assert [path.name for path in cache.rglob("*")] == ["edgepack-gate", ".lock"]
    monkeypatch.setattr(distant, "ATTEMPTS", 1)
    far.breaks_after("line3", 2_000_000)
    bundle = far_bundle(tmp_path / "x.edgepack", more={"site/big.so": os.urandom(3 << 20)})
    with pytest.raises(TargetUnreachableError, match="broke while the bundle was copied"):
        gate(far, bundle, Place(cache=str(cache), clean=True))
    for _ in range(600):  # what runs there ends a moment after the link
        if len(list(cache.rglob("*"))) == 2:
            break
        time.sleep(0.05)
    assert [path.name for path in cache.rglob("*")] == ["edgepack-gate", ".lock"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"machine": "aarch64"}, "this is Linux "),
        ({"libc_min": "99.1"}, "the C library is glibc"),
        ({"python": "3.99"}, "this is CPython 3"),
        ({"provider": "CUDAExecutionProvider"}, ""),
    ],
)
def test_a_device_of_another_kind_gets_nothing(far: Far, tmp_path: Path, facts: dict[str, str], words: str) -> None:
    from tests.unit.runtime.conftest import target_facts

    if "provider" in facts and shutil.which("nvidia-smi"):
        pytest.skip("this machine has what the bundle asks for")
    bundle = far_bundle(tmp_path / "x.edgepack", target=target_facts(profile="line", **facts))
    with pytest.raises(TargetUnreachableError, match="the device is not of target line") as error:
        gate(far, bundle)
    assert words in error.value.what
    assert error.value.why
    assert error.value.fix
    assert ("--remote-python" in error.value.fix) == ("python" in facts)
    assert not far.cache("line3").exists()


def test_a_device_without_memory_is_unfit(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", gates={"memory": {"peak_rss_mib": 1e9}})
    with pytest.raises(EnvironmentUnfitError, match="MiB available"):
        gate(far, bundle)
    assert not far.cache("line3").exists()


def test_no_place_on_the_device(far: Far, bundle: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match="no place on the device"):
        gate(far, bundle, Place(cache="/proc/nowhere"))


@pytest.fixture
def installed(far: Far, bundle: Path) -> Path:
    """The prefix of an install of `bundle` on the device."""
    prefix = far.root / "line3" / "opt"
    line = [far.python, "-I", "-S", str(bundle), "install", "--prefix", str(prefix), "--no-tune"]
    done = subprocess.run(line, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return prefix


def test_rows_that_stay_at_home_reach_the_gate_and_no_disk(far: Far, bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("很好的秘密\n" * 20_000, encoding="utf-8")  # more than a pipe holds
    code, receipt, _ = gate(far, bundle, rows=Rows(file))
    assert (code, receipt["conditions"]["rows"]) == (0, file.read_text(encoding="utf-8"))
    kept = [path for path in far.root.rglob("*") if path.is_file() and "很好的秘密".encode() in path.read_bytes()]
    assert kept == []


def test_that_the_rest_is_judged_alone_is_passed_on(far: Far, bundle: Path) -> None:
    assert gate(far, bundle, rows=Rows(without=True))[1]["unmeasured"][0]["waived"] is True
    assert gate(far, bundle)[1]["unmeasured"] == []


def test_what_an_install_has_is_not_sent(far: Far, changed: Path, installed: Path) -> None:
    code, _, gated = gate(far, changed, Place(prefix=str(installed)))
    assert (code, gated.copied.files) == (0, 1)
    assert sorted(path.name for path in (installed / "receipts").iterdir()) == ["000001-install.json"]


def test_the_installed_release_is_gated_where_it_serves(far: Far, bundle: Path, changed: Path, installed: Path) -> None:
    def ask(which: Path | None, prefix: Path = installed, rows: Rows = NO_ROWS) -> tuple[int, dict[str, Any], Gated]:
        link = lambda: Link(Client(), LINE3, [far.python])  # noqa: E731 - as the command makes it
        if which is None:
            return gate_installed(None, link, Place(prefix=str(prefix)), rows, Heard())
        with parcel(which) as sent:
            return gate_installed(sent, link, Place(prefix=str(prefix)), rows, Heard())

    file = installed.parent / "rows.jsonl"
    file.write_text("很好\n", encoding="utf-8")
    assert ask(None, rows=Rows(file))[1]["conditions"]["rows"] == "很好\n"
    for which in (bundle, None):
        code, receipt, _ = ask(which)
        assert (code, receipt["bundle"]["version"]) == (0, "1.2.0")
        assert str(installed) in receipt["conditions"]["release"]
    assert (installed / "receipts" / "000003-gate.json").is_file()
    with pytest.raises(TargetUnreachableError, match="serves in") as error:
        ask(changed)
    assert "1.3.0" in error.value.why
    with pytest.raises(TargetUnreachableError, match="nothing is installed in"):
        ask(None, installed / "none")


def test_where_a_key_is_pinned_it_must_have_signed_before_anything_is_copied(
    far: Far, bundle: Path, tmp_path: Path
) -> None:
    right, wrong = make_key(tmp_path, "right"), make_key(tmp_path, "wrong")
    prefix = far.root / "line3" / "opt"
    prefix.mkdir(parents=True)
    (prefix / "trusted_signers").write_text(f"release {right.with_suffix('.pub').read_text()}")
    place = Place(prefix=str(prefix))
    with pytest.raises(BundleInvalidError, match="is not signed, and this device takes signed bundles only"):
        gate(far, bundle, place)
    for key, words in ((wrong, "signed by a key that this device does not trust"), (right, "")):
        signed = tmp_path / f"{key.name}.edgepack"
        signing.sign(bundle, key, signed)
        if words:
            with pytest.raises(BundleInvalidError, match=words):
                gate(far, signed, place)
            assert not far.cache("line3").exists()
        else:
            assert gate(far, signed, place)[0] == 0


def test_a_disk_that_fails_is_told_in_the_devices_words(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", more={"site/big.so": os.urandom(3 << 20)})
    where = f"the device failed at what is kept in {re.escape(str(far.cache('small')))}"
    with pytest.raises(EnvironmentUnfitError, match=where) as error:
        gate(far, bundle, to=Address("small"))
    assert "File too large" in error.value.why
    assert not list((far.cache("small") / "releases").glob("1.*"))


def test_what_is_in_the_way_in_its_own_folder_goes(far: Far, bundle: Path) -> None:
    cache = far.cache("line3")
    cache.mkdir(parents=True, mode=0o700)
    (cache / "releases").write_text("")
    assert gate(far, bundle)[0] == 0


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


def test_what_runs_there_ends_with_the_link(far: Far, tmp_path: Path) -> None:
    bundle = far_bundle(tmp_path / "x.edgepack", gate="hang")
    links: list[Link] = []
    found: list[int] = []
    running = threading.Event()

    class Ear(Heard):
        def line(self, text: str) -> None:
            if text.startswith("process "):
                found.append(int(text.split()[1]))
                running.set()

    def connect() -> Link:
        links.append(Link(Client(), LINE3, [far.python]))
        return links[-1]

    def run() -> None:
        with parcel(bundle) as sent, pytest.raises(TargetUnreachableError, match="broke while the gate ran"):
            gate_there(sent, connect, Place(), NO_ROWS, Ear())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert running.wait(60)
    finally:
        links[0].stop()
        thread.join(60)
    assert not thread.is_alive()
    assert len(links) == 1  # a gate that broke off is not begun again by itself
    assert gone(found[0])


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


class LetsGo(Heard):
    """Has the `holder` of a lock let go of it when somebody waits."""

    def __init__(self, holder: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._holder = holder

    def line(self, text: str) -> None:
        super().line(text)
        if "another gate is running" in text:
            assert self._holder.stdin is not None
            self._holder.stdin.close()


def test_two_gates_at_once_take_turns(far: Far, bundle: Path, changed: Path) -> None:
    gate(far, bundle)
    with holding(far.cache("line3") / ".lock") as holder:
        heard = LetsGo(holder)
        assert gate(far, changed, progress=heard)[0] == 0
    assert heard.lines[0] == "another gate is running on this device; waiting for it to end"


def test_gates_of_two_users_and_of_an_install_take_turns(far: Far, bundle: Path, installed: Path) -> None:
    gate(far, bundle)
    shared = far.root / "line3" / "edgepack-gate.lock"
    assert (shared.stat().st_mode & 0o777, shared.stat().st_size) == (0o444, 0)
    with holding(shared) as holder:
        heard = LetsGo(holder)
        assert gate(far, bundle, progress=heard)[0] == 0
    assert re.match(r"another gate is running on this device \(process \d+ of \S+ \(.+\)\); waiting", heard.lines[0])
    with holding(shared) as holder:
        heard = LetsGo(holder)
        link = lambda: Link(Client(), LINE3, [far.python])  # noqa: E731 - as the command makes it
        assert gate_installed(None, link, Place(prefix=str(installed)), NO_ROWS, heard)[0] == 0
    assert [line.partition(" (")[0] for line in heard.lines[1:3]] == [
        "another gate is running on this device",
        "measuring",
    ]


def test_where_there_is_nothing_to_share_it_is_told_and_gated_all_the_same(
    far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_LOCK", "/nonexistent")
    heard = Heard()
    assert gate(far, bundle, progress=heard)[0] == 0
    assert heard.lines[0].startswith("note: gates of other users here are not waited for")
    assert "/nonexistent: No such file" in heard.lines[0]


def test_a_python_3_8_will_do_for_the_program(far: Far, tmp_path: Path) -> None:
    old = next((found for name in ("python3.8", "python3.9") if (found := runs(name))), None)
    if old is None:
        pytest.skip("there is no Python 3.8 or 3.9")
    from tests.unit.runtime.conftest import target_facts

    version = subprocess.run([old, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True)
    bundle = far_bundle(tmp_path / "x.edgepack", target=target_facts(python=version.stdout.decode().strip()))
    with parcel(bundle) as sent:
        code, receipt, _ = gate_there(sent, lambda: Link(Client(), LINE3, [old]), Place(), NO_ROWS, Heard())
    assert (code, receipt["verdict"]) == (0, "pass")


def runs(name: str) -> str | None:
    """The file of the Python called `name`, if it is there and runs."""
    for folder in [*os.environ.get("EDGEPACK_PYTHONS", "").split(":"), ""]:
        found = folder if Path(folder).name == name else shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def test_the_transcript_of_a_receipt_is_json(far: Far, bundle: Path) -> None:
    _, receipt, gated = gate(far, bundle)
    assert json.loads(gated.answer.stdout) == receipt
    assert gated.device["python"].startswith("3.")


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": {}},
        {"ok": {"missing": [10**6], "begun": [], "device": {}}},
        {"ok": {"missing": ["x"], "begun": [], "device": {}}},
        {"ok": {"missing": [-1], "begun": [], "device": {}}},
        {"ok": {"missing": [0, 0], "begun": [], "device": {}}},
        {"ok": {"missing": [1e999], "begun": [], "device": {}}},
        {"ok": {"missing": [], "begun": [], "device": "x", "exit_code": 0, "stdout": "{}", "tail": ""}},
        {"ok": {"missing": [], "begun": [], "device": {"board": []}, "exit_code": 0, "stdout": "{}", "tail": ""}},
        {"ok": {"missing": [], "begun": [], "device": {}, "exit_code": 1e999, "stdout": "{}", "tail": ""}},
        {"ok": {"missing": [0], "begun": [[0]], "device": {}}},
        {"error": {}},
        {"error": {"exit_code": "x", "what": None}},
    ],
)
def test_a_device_that_answers_nonsense(
    far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(Link, "receive", lambda link, wait=True: answer if wait else None)
    with pytest.raises(StageFailedError) as error:
        gate(far, bundle)
    failed, nonsense = "the device failed, and did not say why", "line3 gives answers that make no sense"
    assert error.value.what == (failed if "error" in answer else nonsense)


def test_what_a_device_says_is_short_and_stands_on_its_own_line(
    far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(
        [{"line": "x\nline4: ok\r\n" + "y" * 9000}, {"error": {"what": "a\nb" + "c" * 9000, "why": "d" * 99_000}}]
    )
    monkeypatch.setattr(Link, "receive", lambda link, wait=True: next(answers) if wait else None)
    heard = Heard()
    with pytest.raises(StageFailedError) as error:
        gate(far, bundle, progress=heard)
    assert heard.lines[0].startswith("x line4: ok yyy")
    assert error.value.what.startswith("a bccc")
    assert max(len(heard.lines[0]), len(error.value.what)) <= 2000
    assert len(error.value.why) == 8000


@pytest.mark.parametrize("line", [b"no JSON", b"[]", b'{"line": "x"}', b"[" * 100_000, b"\xff\xfe"])
def test_a_device_that_never_stops_talking(
    far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: bytes
) -> None:
    from edgepack.targets import ssh

    monkeypatch.setattr(ssh, "MAX_ANSWERS", 100)
    said = tmp_path / "said"
    said.write_bytes(line)
    talking = f"read n; while :; do echo; cat {said}; echo; done"
    monkeypatch.setattr(ssh.secrets, "token_hex", lambda count: "x")
    monkeypatch.setattr(ssh, "shell_line", lambda pythons: f"echo edgepack-x; {talking}")
    with pytest.raises(TargetUnreachableError, match="broke while it was looked at"):
        gate(far, bundle)


def test_what_nobody_has_read_yet_takes_no_more_memory_than_is_allowed(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgepack.targets import ssh

    monkeypatch.setattr(ssh, "MAX_ANSWERS", 1000)
    monkeypatch.setattr(ssh, "MAX_HEARD_BYTES", 100_000)
    monkeypatch.setattr(ssh.secrets, "token_hex", lambda count: "x")
    talking = """while :; do echo '{"line": "%s"}'; done""" % ("x" * 10_000)
    monkeypatch.setattr(ssh, "shell_line", lambda pythons: f"echo edgepack-x; {talking}")
    heard = 0
    with pytest.raises(LostError), Link(Client(), LINE3, []) as link:
        link._readers[0].join()  # it ends by itself, though nobody takes anything
        while link.receive():
            heard += 1
    assert heard == 9
