"""Receipts that are kept: each with a number of its own, whoever writes beside it, and never half of one."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import EnvironmentUnfitError
from edgepack.gating.receipts import ReceiptStore, folder_name


def test_receipts_are_numbered_on(tmp_path: Path) -> None:
    folder = tmp_path / "line3"
    assert ReceiptStore(folder).keep({"a": "很好"}).name == "000001-gate.json"
    (folder / "000007-install.json").write_text("{}")
    path = ReceiptStore(folder).keep({"a": "很好"})
    assert path.name == "000008-gate.json"
    assert path.read_text(encoding="utf-8") == '{\n "a": "很好"\n}\n'
    assert path.stat().st_mode & 0o777 == 0o644
    assert len(list(folder.iterdir())) == 3


def test_concurrent_receipts_get_different_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(8)
    real = ReceiptStore._numbered

    def numbered(store: ReceiptStore, temporary: Path) -> Path:
        together.wait(60)
        return real(store, temporary)

    monkeypatch.setattr(ReceiptStore, "_numbered", numbered)
    workers = [threading.Thread(target=ReceiptStore(tmp_path).keep, args=({"of": number},)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = sorted(tmp_path.iterdir())
    assert [path.name for path in found] == sorted({path.name for path in found if path.suffix == ".json"})
    assert sorted(json.loads(path.read_text())["of"] for path in found) == list(range(8))


def test_a_number_that_nobody_counted_up_to_does_not_move_the_next_ones(tmp_path: Path) -> None:
    (tmp_path / "999999999999-gate.json").write_text("{}")
    store = ReceiptStore(tmp_path)
    assert [store.keep({}).name for _ in range(2)] == ["000001-gate.json", "000002-gate.json"]
    (tmp_path / ".000003-gate.json.claim").touch()
    assert store.keep({}).name == "000004-gate.json"


def test_a_claimed_number_is_skipped(tmp_path: Path) -> None:
    (tmp_path / ".000001-gate.json.claim").touch()
    assert ReceiptStore(tmp_path).keep({}).name == "000002-gate.json"


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentUnfitError, match="cannot be kept") as error:
        ReceiptStore(tmp_path).keep({"a": 1})
    assert error.value.why == "No space left on device"
    assert "--receipts" in error.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_tried_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ReceiptStore(tmp_path / "receipts" / "line3").require_writable()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for bad in ("file/x", "file", "link"):
        with pytest.raises(EnvironmentUnfitError, match="cannot be kept"):
            ReceiptStore(tmp_path / bad).require_writable()

    def full(**options: Any) -> Any:
        return Path("/dev/full").open("wb")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(EnvironmentUnfitError) as error:
        ReceiptStore(tmp_path).require_writable()
    assert error.value.why == "No space left on device"


@pytest.mark.parametrize("link", ["receipts", "receipts/line3"])
def test_a_link_beside_a_bundle_is_not_followed(tmp_path: Path, link: str) -> None:
    elsewhere, planted = tmp_path / "elsewhere", tmp_path / "stick" / link
    (elsewhere / "line3").mkdir(parents=True)
    planted.parent.mkdir(parents=True)
    planted.symlink_to(elsewhere)
    store = ReceiptStore.of_target(tmp_path / "stick" / "receipts", "line3")
    for attempt in (store.require_writable, lambda: store.keep({})):
        with pytest.raises(EnvironmentUnfitError) as caught:
            attempt()
        assert caught.value.why == f"{planted} is a link"
    assert not list(elsewhere.rglob("*.json"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_user_made_beside_a_bundle_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "receipts" / "line3").mkdir(parents=True)
    shared.chmod(0o1777)
    os.chown(shared / "receipts", 12345, 12345)
    store = ReceiptStore.of_target(shared / "receipts", "line3")
    for attempt in (store.require_writable, lambda: store.keep({})):
        with pytest.raises(EnvironmentUnfitError, match="belongs to another user") as caught:
            attempt()
        assert "--receipts" in caught.value.fix


@pytest.mark.parametrize("name", ["line3", "pi@line3", "a:22/opt/..", "../x", "[::1]", "~", "…", ".", "a" * 500])
def test_a_folder_of_receipts_stays_where_it_is(name: str) -> None:
    found = folder_name(name)
    assert Path(found).name == found
    assert found not in ("", ".", "..")
    assert not set(found) & set(":/~[]")
    assert len(found) < 255


names = st.text(st.sampled_from("ab_/.:@~%[]-"), min_size=1, max_size=8)


@given(one=names, other=names)
def test_two_names_have_two_folders(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)
