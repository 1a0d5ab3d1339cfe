"""Whose a prefix is: told by state.json, and by the release that serves where that is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from installing import Device, MakeBundle, id_of, silent
from ssh_keys import make_key, needs_ssh_keygen, pin
from tiny_model import TUNED

from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, ExitCode, UsageError
from edgepack_runtime.install import prefix as owned
from edgepack_runtime.install import prefix as state
from edgepack_runtime.install import release_process
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix, State
from edgepack_runtime.install.rollback import rollback
from edgepack_runtime.install.uninstall import uninstall


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take long always passes."""

    def run_json(line: Sequence[str], verb: str, **options: Any) -> tuple[ExitCode, dict[str, Any]]:
        return ExitCode.OK, {"verdict": "pass", **TUNED}

    monkeypatch.setattr(release_process, "run_json", run_json)


def test_folders_that_are_not_ours_are_refused(prefix: Prefix) -> None:
    owned.check_is_ours(prefix, "sentiment")
    prefix.root.mkdir()
    (prefix.root / ".lock").touch()
    (prefix.root / ".state.json.tmp").touch()
    owned.check_is_ours(prefix, "sentiment")
    (prefix.root / "releases").mkdir()
    with pytest.raises(UsageError, match="holds no install"):
        owned.check_is_ours(prefix, "sentiment")
    state.write_state(prefix, State("sentiment"))
    owned.check_is_ours(prefix, "sentiment")
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        owned.check_is_ours(prefix, "other")
    with pytest.raises(EnvironmentUnfitError, match="Not a directory"):
        owned.check_is_ours(Prefix(prefix.state_file), "sentiment")


def lose(prefix: Prefix, damage: bytes | None) -> None:
    if damage is None:
        prefix.state_file.unlink()
    else:
        prefix.state_file.write_bytes(damage)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("damage", [None, b"", b"[" * 200_000], ids=["gone", "empty", "deep"])
def test_a_lost_state_is_rebuilt_with_the_kept_release_and_the_floor(
    make_bundle: MakeBundle, bundle: Path, prefix: Prefix, damage: bytes | None
) -> None:
    second, other = make_bundle(version="1.3.0", sequence=2), make_bundle(name="other", sequence=9)
    for item in (bundle, second):
        install(item, prefix.root, say=silent)
    before = state.read_state(prefix)
    lose(prefix, damage)
    with pytest.raises(UsageError, match="another bundle, sentiment"):
        install(other, prefix.root, say=silent)
    with pytest.raises(BundleInvalidError, match="older than what was installed"):
        install(bundle, prefix.root, say=silent)
    after = state.read_state(prefix)
    assert before is not None
    assert after is not None
    assert (after.current, after.previous, after.floor) == (before.current, before.previous, before.floor)
    assert rollback(prefix.root, None, say=silent)["serving"] == id_of(bundle)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("damage", [None, b"\0" * 50], ids=["gone", "zeros"])
def test_an_uninstall_does_not_lower_the_floor(
    make_bundle: MakeBundle, bundle: Path, prefix: Prefix, damage: bytes | None
) -> None:
    install(make_bundle(version="1.3.0", sequence=2), prefix.root, say=silent)
    lose(prefix, damage)
    uninstall(prefix.root, None, purge=False, say=silent)
    with pytest.raises(BundleInvalidError, match="older than what was installed"):
        install(bundle, prefix.root, say=silent)


@needs_ssh_keygen
def test_a_release_whose_state_is_lost_knows_its_prefix_and_its_keys(
    bundle: Path, prefix: Prefix, device: Device, tmp_path: Path
) -> None:
    """Where it took itself for one that is not installed, an update went elsewhere, past the keys that are pinned."""
    install(bundle, prefix.root, say=silent)
    pin(prefix.root, make_key(tmp_path, "release"))
    prefix.state_file.unlink()
    entry = prefix.bin / "sentiment"
    assert json.loads(device(entry, "trust", "list", "--json").stdout)["pinned"]
    assert json.loads(device(entry, "status", "--json").stdout)["prefix"] == str(prefix.root)
    assert device(entry, "uninstall").returncode == 0
    assert not prefix.releases.exists()
