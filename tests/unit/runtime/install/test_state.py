"""The prefix: atomic writes, the lock, what belongs to us."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
from pathlib import Path

import pytest

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status
from edgepack_runtime.install.prefix import Prefix, State

RELEASE = "1.2.0-0123456789ab"


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    root = tmp_path / "prefix"
    root.mkdir()
    return Prefix(root)


def test_state_is_read_as_it_was_written(prefix: Prefix) -> None:
    assert state.read_state(prefix) is None
    written = State("sentiment", current=RELEASE, previous=None, sequence=3, bundle_bytes=10, pending=RELEASE)
    state.write_state(prefix, written)
    assert state.read_state(prefix) == written


def test_nobody_else_can_hold_the_lock_or_see_whether_it_is_held(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    with state.lock(prefix):
        assert prefix.lock_file.stat().st_mode & 0o777 == 0o600

    def refused(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    state.write_state(prefix, state.State("hotel", pending="1.0.0-0123456789ab"))
    monkeypatch.setattr(os, "open", refused)
    assert state.is_locked(prefix) is None
    told = status.status(prefix)
    assert told["running"] is None
    assert told["notes"][-1].endswith(" goes on, or was interrupted: ask as the user who installs")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"state_format": 2, "name": "x"}',
        b'{"state_format": 1}',
        b'{"state_format": 1, "name": 3}',
        b'{"state_format": 1, "name": ""}',
        b'{"state_format": 1, "name": "../../elsewhere"}',
        b"[" * 200_000,
        b'{"state_format": 1, "name": "x", "current": "../../etc"}',
        b'{"state_format": 1, "name": "x", "bundle_bytes": "10"}',
        b'{"state_format": 1, "name": "x", "bundle_bytes": NaN}',
    ],
)
def test_a_damaged_state_is_never_read_as_installed(prefix: Prefix, raw: bytes) -> None:
    prefix.state_file.write_bytes(raw)
    with pytest.raises(BundleInvalidError, match=r"state\.json is damaged"):
        state.read_state(prefix)


def test_a_link_to_nothing_is_no_release(prefix: Prefix) -> None:
    assert prefix.current_id() is None
    prefix.current.symlink_to("releases/gone")
    assert prefix.current_id() is None


def test_default_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state.default_prefix("x") == Path("/opt/x")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/me")
    assert state.default_prefix("x") == Path("/home/me/.local/share/edgepack/x")
    for home in (None, "", "relative"):
        monkeypatch.delenv("HOME", raising=False)
        if home is not None:
            monkeypatch.setenv("HOME", home)
        with pytest.raises(UsageError, match="--prefix"):
            state.default_prefix("x")


def _hold(root: Path, ready: object, done: object) -> None:
    with state.lock(Prefix(root)):
        ready.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_a_look_at_the_lock_is_no_install(prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` takes it for a moment; an install that met that was refused."""
    looking = os.open(prefix.lock_file, os.O_RDONLY | os.O_CREAT, 0o644)
    fcntl.flock(looking, fcntl.LOCK_SH)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(looking)

    monkeypatch.setattr(state.time, "sleep", sleep)
    with state.lock(prefix):
        assert state.is_locked(prefix)
    assert len(pauses) == 3


def test_one_install_at_a_time(prefix: Prefix) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(prefix.root, ready, done))
    assert not state.is_locked(prefix)
    other.start()
    try:
        assert ready.wait(30)
        assert state.is_locked(prefix)
        with pytest.raises(EnvironmentUnfitError, match=f"process {other.pid} holds"), state.lock(prefix):
            raise AssertionError("taken twice")
    finally:
        done.set()
        other.join(30)
    assert not state.is_locked(prefix)
    with state.lock(prefix):
        assert state.is_locked(prefix)


def test_receipts_are_numbered_without_a_clock(prefix: Prefix) -> None:
    assert receipts.last_receipt(prefix, "install") is None
    verbs = ["install", "gate", "install"]
    names = [receipts.write_receipt(prefix, verb, {"n": n}, print).name for n, verb in enumerate(verbs)]
    assert names == ["000001-install.json", "000002-gate.json", "000003-install.json"]
    assert receipts.last_receipt(prefix, "install") == {"n": 2}
    (prefix.receipts / "000003-install.json").write_text("damaged")
    assert receipts.last_receipt(prefix, "install") == {"n": 0}


def test_bytecode_lies_outside_the_release(prefix: Prefix) -> None:
    release = prefix.releases / RELEASE
    assert prefix.bytecode_of(release) == Path(f"{prefix.root}/cache/pycache{release}")


def test_what_a_newer_release_wrote_besides_is_left_alone(prefix: Prefix) -> None:
    """A rollback may lead to a release that knows less."""
    prefix.root.mkdir(exist_ok=True)
    prefix.state_file.write_bytes(b'{"state_format": 1, "name": "x", "floor": 3, "other": 1}')
    found = state.read_state(prefix)
    assert found is not None
    assert (found.name, found.floor) == ("x", 3)
