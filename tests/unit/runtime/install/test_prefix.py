"""The prefix: its state, its lock and its owner."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import Device, MakeBundle, id_of, silent, state_of
from tests.unit.runtime.ssh_keys import make_key, write_trusted_keys

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, UsageError
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import receipts, status
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix, State
from edgepack_runtime.install.rollback import rollback
from edgepack_runtime.install.uninstall import uninstall

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
    prefix.state_file.write_bytes(
        b'{"state_format": 1, "name": "x", "minimum_sequence": 3, "other": 1}'
    )  # of a newer release
    assert (state_of(prefix).name, state_of(prefix).minimum_sequence) == ("x", 3)


def test_other_users_cannot_hold_or_read_the_lock(prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    with state.lock(prefix):
        assert prefix.lock_file.stat().st_mode & 0o777 == 0o600

    opened = os.open

    def refused(path: Any, *more: Any, **options: Any) -> int:
        if path == prefix.lock_file:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *more, **options)

    state.write_state(prefix, State("hotel", pending=RELEASE))
    monkeypatch.setattr(os, "open", refused)
    assert state.is_locked(prefix) is None
    told = status.status(prefix)
    assert told["running"] is None
    assert told["notes"][-1].endswith(" is running or was interrupted; run `status` as its user")


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


def test_status_does_not_block_an_install(prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("content", [b"", b"\xff\x1b[31m", b"-1", b"7" * 40, None])
def test_a_lock_file_that_somebody_else_wrote_names_nobody(prefix: Prefix, content: bytes | None) -> None:
    if content is None:
        os.mkfifo(prefix.lock_file)
    else:
        prefix.lock_file.write_bytes(content)
    held = os.open(prefix.lock_file, os.O_RDWR | os.O_NONBLOCK)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(EnvironmentUnfitError, match=r"process (unknown|7{32}) holds"), state.lock(prefix):
        pass
    os.close(held)


def test_foreign_folders_are_refused(prefix: Prefix) -> None:
    state.check_owner(prefix, "sentiment")
    (prefix.root / ".lock").touch()
    (prefix.root / ".state.json.0123456789ab.tmp").touch()
    state.check_owner(prefix, "sentiment")
    (prefix.root / "releases").mkdir()
    with pytest.raises(UsageError, match="holds no install"):
        state.check_owner(prefix, "sentiment")
    state.write_state(prefix, State("sentiment"))
    state.check_owner(prefix, "sentiment")
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        state.check_owner(prefix, "other")
    with pytest.raises(EnvironmentUnfitError, match="Not a directory"):
        state.check_owner(Prefix(prefix.state_file), "sentiment")


def lose(prefix: Prefix, damage: bytes | None) -> None:
    if damage is None:
        prefix.state_file.unlink()
    else:
        prefix.state_file.write_bytes(damage)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("damage", [None, b"", b"[" * 200_000], ids=["gone", "empty", "deep"])
def test_a_lost_state_is_rebuilt_with_the_kept_release_and_the_minimum_sequence(
    make_bundle: MakeBundle, bundle: Path, prefix: Prefix, damage: bytes | None
) -> None:
    second, other = make_bundle(version="1.3.0", sequence=2), make_bundle(name="other", sequence=9)
    for item in (bundle, second):
        install(item, prefix.root, log=silent)
    before = state_of(prefix)
    lose(prefix, damage)
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        install(other, prefix.root, log=silent)
    with pytest.raises(BundleInvalidError, match="older than a bundle that was installed"):
        install(bundle, prefix.root, log=silent)
    after = state_of(prefix)
    assert (after.current, after.previous, after.minimum_sequence) == (
        before.current,
        before.previous,
        before.minimum_sequence,
    )
    assert rollback(prefix.root, None, log=silent)["serving"] == id_of(bundle)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("damage", [None, b"\0" * 50], ids=["gone", "zeros"])
def test_an_uninstall_does_not_lower_the_minimum_sequence(
    make_bundle: MakeBundle, bundle: Path, prefix: Prefix, damage: bytes | None
) -> None:
    install(make_bundle(version="1.3.0", sequence=2), prefix.root, log=silent)
    lose(prefix, damage)
    uninstall(prefix.root, None, purge=False, log=silent)
    with pytest.raises(BundleInvalidError, match="older than a bundle that was installed") as caught:
        install(bundle, prefix.root, log=silent)
    # There is nothing to roll back to.
    assert caught.value.fix == "install a newer bundle, or choose another folder: --prefix FOLDER"


def test_a_release_whose_state_is_lost_knows_its_prefix_and_its_keys(
    bundle: Path, prefix: Prefix, device: Device, tmp_path: Path
) -> None:
    """Where it took itself for one that is not installed, an update went elsewhere, past the trusted keys."""
    install(bundle, prefix.root, log=silent)
    write_trusted_keys(prefix.root, make_key(tmp_path, "release"))
    prefix.state_file.unlink()
    entry = prefix.bin / "sentiment"
    assert json.loads(device(entry, "trust", "list", "--json").stdout)["signature_required"]
    assert json.loads(device(entry, "status", "--json").stdout)["prefix"] == str(prefix.root)
    assert device(entry, "uninstall").returncode == 0
    assert not prefix.releases.exists()


@pytest.mark.parametrize("name", ["state.json", ".lock", "receipts/000001-install.json"])
@pytest.mark.parametrize("endless", [False, True])
def test_a_prefix_of_somebody_else_cannot_hold_a_reader_up(prefix: Prefix, name: str, endless: bool) -> None:
    prefix.receipts.mkdir()
    if endless:
        (prefix.root / name).symlink_to("/dev/zero")
    else:
        os.mkfifo(prefix.root / name)
    assert state.is_locked(prefix) in (False, None)
    assert list(receipts.read_receipts(prefix, "install")) == []
    if name == "state.json":
        with pytest.raises(EnvironmentUnfitError, match="cannot be read"):
            state.read_state(prefix)
