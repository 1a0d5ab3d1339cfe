"""What a device keeps: found again by content, believed in nothing, and never half a file taken for a whole one."""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.runtime.conftest import make_manifest

from edgepack.targets import remote_store, sent
from edgepack.targets.remote_input import GoneError
from edgepack.targets.remote_store import RESUMED_BYTES, Store
from edgepack_runtime import doctor, verify
from edgepack_runtime.archive import DEFLATED, STORED
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError
from edgepack_runtime.manifest import FileEntry, dump

BIG = os.urandom(RESUMED_BYTES + 100)
MEMBERS = {
    "__main__.py": b"raise SystemExit(0)\n",
    "edgepack_runtime/__init__.py": b"",
    "model/model.onnx": b"\x12\x01x",
    "site/a/__init__.py": b"",
    "site/big.so": BIG,
}
NUMBERS = dict(zip(sorted(MEMBERS), range(len(MEMBERS)), strict=True))


def heard(count: int) -> None:
    """Nobody counts."""


def store(root: Path, members: dict[str, bytes] = MEMBERS, **changes: object) -> Store:
    manifest = make_manifest(members, **changes)
    return Store.open(str(root), manifest, dump(manifest), None, [])


def send(to: Store, path: str, content: bytes, *, offset: int = 0, cut: int | None = None) -> None:
    read = io.BytesIO(content[offset:cut]).read
    to.receive(NUMBERS[path], STORED, len(content), offset, read, heard)


def fill(to: Store, members: dict[str, bytes] = MEMBERS) -> None:
    for number in to.stage([]):
        content = members[to.manifest.files[number].path]
        to.receive(number, STORED, len(content), 0, io.BytesIO(content).read, heard)
    assert to.check() == []


def test_a_new_one_lacks_each_content_once_and_is_whole_when_all_came(tmp_path: Path) -> None:
    made = store(tmp_path)
    assert made.stage([]) == [NUMBERS[path] for path in sorted(MEMBERS) if path != "site/a/__init__.py"]
    fill(made)
    assert {
        path.relative_to(made.release).as_posix(): path.read_bytes()
        for path in made.release.rglob("*")
        if path.is_file()
    } == {**MEMBERS, "manifest.json": dump(made.manifest)}
    assert not made.staging.exists()
    assert store(tmp_path).stage([]) == []


def test_deflated_files_are_unpacked(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.stage([])
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = packer.compress(BIG) + packer.flush()
    made.receive(NUMBERS["site/big.so"], DEFLATED, len(packed), 0, io.BytesIO(packed).read, heard)
    assert (made.staging / "site" / "big.so").read_bytes() == BIG


@given(data=st.binary(max_size=300), method=st.sampled_from([STORED, DEFLATED]))
def test_what_is_not_the_listed_content_never_lies_there(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, method: int
) -> None:
    made = store(tmp_path_factory.mktemp("store"))
    made.stage([])
    number = NUMBERS["model/model.onnx"]
    made.receive(number, method, len(data), 0, io.BytesIO(data).read, heard)
    there = made.staging / "model" / "model.onnx"
    assert there.exists() == (method == STORED and data == MEMBERS["model/model.onnx"])
    assert [path.name for path in there.parent.iterdir()] == ["model.onnx"] * there.exists()


def test_a_bomb_ends_at_the_listed_size(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.stage([])
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(64 << 20)) + packer.flush()
    made.receive(NUMBERS["model/model.onnx"], DEFLATED, len(bomb), 0, io.BytesIO(bomb).read, heard)
    assert NUMBERS["model/model.onnx"] in made.missing()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1 << 20


def test_a_large_file_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.stage([])
    with pytest.raises(GoneError):
        send(made, "site/big.so", BIG, cut=100_000)
    assert not (made.staging / "site" / "big.so").exists()
    again = store(tmp_path)
    missing = again.stage([])
    assert again.begun(missing) == {NUMBERS["site/big.so"]: (STORED, len(BIG), 100_000)}
    send(again, "site/big.so", BIG, offset=100_000)
    assert (again.staging / "site" / "big.so").read_bytes() == BIG
    assert again.begun(missing) == {}


def test_of_a_small_file_no_beginning_is_kept(tmp_path: Path) -> None:
    made = store(tmp_path)
    missing = made.stage([])
    with pytest.raises(GoneError):
        send(made, "__main__.py", MEMBERS["__main__.py"], cut=5)
    assert made.begun(missing) == {}
    assert NUMBERS["__main__.py"] in made.missing()


def test_a_wrong_beginning_is_found_at_the_end(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.stage([])
    with pytest.raises(GoneError):
        send(made, "site/big.so", b"x" * len(BIG), cut=1000)
    send(made, "site/big.so", BIG, offset=1000)
    assert NUMBERS["site/big.so"] in made.missing()
    send(made, "site/big.so", BIG)
    assert NUMBERS["site/big.so"] not in made.missing()


def test_what_changed_on_the_disk_is_asked_for_again(tmp_path: Path) -> None:
    made = store(tmp_path)
    fill(made)
    (made.release / "site" / "big.so").write_bytes(bytes(len(BIG)))
    (made.release / "site" / "more.py").write_text("import this")
    (made.release / "site" / "a" / "__init__.py").unlink()
    (made.release / "site" / "a" / "__init__.py").symlink_to("/etc/passwd")
    again = store(tmp_path)
    assert again.stage([]) == [NUMBERS["site/a/__init__.py"]]  # the others have the right sizes
    assert again.check() == [NUMBERS["site/a/__init__.py"], NUMBERS["site/big.so"]]
    assert not again.release.exists()
    send(again, "site/big.so", BIG)
    send(again, "site/a/__init__.py", b"")
    assert again.check() == []
    assert not (again.release / "site" / "more.py").exists()
    assert (again.release / "site" / "a" / "__init__.py").is_file()


def test_bytecode_beside_a_release_is_removed_before_it_runs(tmp_path: Path) -> None:
    made = store(tmp_path)
    fill(made)
    bytecode = made.prefix.bytecode_of(made.release)
    bytecode.mkdir(parents=True)
    (bytecode / "evil.pyc").write_bytes(b"x")
    fill(store(tmp_path))
    assert not bytecode.exists()


def test_a_new_version_takes_what_it_has_in_common(tmp_path: Path) -> None:
    fill(store(tmp_path))
    members = {**MEMBERS, "model/model.onnx": b"\x12\x01y"}
    made = store(tmp_path, members, version="1.3.0")
    assert made.stage([]) == [NUMBERS["model/model.onnx"]]
    fill(made, members)
    first = store(tmp_path).release
    assert (first / "site" / "big.so").samefile(made.release / "site" / "big.so")


def test_what_an_install_has_is_copied_and_never_linked(tmp_path: Path) -> None:
    installed = store(tmp_path / "install")
    fill(installed)
    made = store(tmp_path / "store")
    assert made.stage([installed.prefix.releases]) == []
    assert made.check() == []
    assert not (installed.release / "site" / "big.so").samefile(made.release / "site" / "big.so")


def test_an_install_that_is_damaged_is_no_source(tmp_path: Path) -> None:
    installed = store(tmp_path / "install")
    fill(installed)
    (installed.release / "site" / "big.so").write_bytes(bytes(len(BIG)))
    made = store(tmp_path / "store")
    assert made.stage([installed.prefix.releases]) == []
    assert made.check() == [NUMBERS["site/big.so"]]
    (installed.release / "manifest.json").write_bytes(b"{")
    assert len(store(tmp_path / "other").stage([installed.prefix.releases])) == 4


def test_old_releases_go_and_the_newest_stay(tmp_path: Path) -> None:
    names = []
    for number in range(4):
        members = {**MEMBERS, "model/model.onnx": b"\x12\x01" + str(number).encode()}
        made = store(tmp_path, members, version=f"1.{number}.0")
        fill(made, members)
        os.utime(made.release, (number, number))
        names.append(made.release.name)
    other = store(tmp_path, MEMBERS, name="other")
    fill(other)
    made.tidy(everything=False)
    left = {path.name for path in made.prefix.releases.iterdir() if path.name != ".tmp"}
    assert left == {*names[2:], other.release.name}
    made.tidy(everything=True)
    assert [path.name for path in (tmp_path / "edgepack-gate").iterdir()] == []


def test_who_gates_holds_a_lock_that_ends_with_its_process(tmp_path: Path) -> None:
    made = store(tmp_path)
    waited: list[None] = []

    class Enough(Exception):
        """It was waited for."""

    def waiting() -> None:
        waited.append(None)
        raise Enough

    with made.locked(waiting), pytest.raises(Enough), store(tmp_path).locked(waiting):
        pass
    with made.locked(waiting):
        assert len(waited) == 1


def test_a_place_that_others_may_write_is_none(tmp_path: Path) -> None:
    (tmp_path / "edgepack-gate").mkdir(mode=0o777)
    (tmp_path / "edgepack-gate").chmod(0o777)
    with pytest.raises(EnvironmentUnfitError) as error:
        store(tmp_path)
    assert "no folder that this user alone may write" in error.value.why
    assert "--remote-cache" in error.value.fix
    (tmp_path / "edgepack-gate").rmdir()
    (tmp_path / "edgepack-gate").symlink_to(tmp_path)
    with pytest.raises(EnvironmentUnfitError):
        store(tmp_path)


def test_a_place_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store.doctor, "_BYTECODE_BYTES", 1 << 62)
    with pytest.raises(EnvironmentUnfitError) as error:
        store(tmp_path)
    assert "MiB free at" in error.value.why


def test_room_is_asked_for_what_did_not_come_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    check_space = remote_store.doctor.check_space

    def asking(place: Path, needed: int) -> remote_store.doctor.Check:
        asked.append(needed)
        return check_space(place, needed)

    monkeypatch.setattr(remote_store.doctor, "check_space", asking)
    small = sum(map(len, MEMBERS.values())) - len(BIG)
    broken_off = store(tmp_path)
    broken_off.stage([])
    send(broken_off, "site/big.so", BIG)
    store(tmp_path).stage([])
    fill(store(tmp_path))
    store(tmp_path).stage([])  # a link that ends here leaves it to be hashed once more
    store(tmp_path)
    # What is unpacked lies beside what it is unpacked from.
    largest = max(len(content) for content in MEMBERS.values() if content != BIG)
    assert [needed for needed, _ in itertools.groupby(asked)] == [small + 2 * len(BIG), small + largest, 0]


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Give the disk that holds everything here so many bytes; a file with two names takes room once."""

    def taken() -> int:
        found = [path.lstat() for path in tmp_path.rglob("*")]
        blocks = {entry.st_ino: entry.st_blocks for entry in found if stat.S_ISREG(entry.st_mode)}
        return 512 * sum(blocks.values())

    def limit(size: int) -> None:
        def check(place: Path, needed: int) -> doctor.Check:
            free = size - taken()
            return doctor.Check("disk", free >= needed, f"{free} free, {needed} needed")

        monkeypatch.setattr(doctor, "check_space", check)

    return limit


def version(number: int, *, common: bytes = BIG) -> dict[str, bytes]:
    """Members of one that has `common` and a large file of its own."""
    return {**MEMBERS, "site/big.so": common, "site/own.so": bytes([number]) * len(BIG)}


def test_the_oldest_goes_where_there_is_no_room_and_what_is_in_use_stays(
    tmp_path: Path, small_disk: Callable[[int], None]
) -> None:
    made = []
    for number in range(3):
        members = version(number)
        made.append(store(tmp_path, members, version=f"1.{number}.0"))
        fill(made[-1], members)
        os.utime(made[-1].release, (number, number))
    bytecode = made[0].prefix.bytecode_of(made[0].release)
    bytecode.mkdir(parents=True)
    # The common file once, three of their own; one more and the place to unpack it from: one has to go.
    small_disk(int(5.8 * len(BIG)))
    members = version(3)
    new = store(tmp_path, members, version="1.3.0")
    assert new.stage([]) == [sorted(members).index("site/own.so")]
    assert new.removed == [made[0].release.name]
    assert not bytecode.exists()
    assert (new.staging / "site" / "big.so").read_bytes() == BIG  # one of the others had it, and it was not sent
    assert [one.release.is_dir() for one in made] == [False, True, True]


def test_a_common_file_makes_no_room(tmp_path: Path, small_disk: Callable[[int], None]) -> None:
    """Whoever has it already needs no room for it, and gets none by removing one of its names."""
    fill(store(tmp_path))
    small_disk(int(2.5 * len(BIG)))
    members = {**MEMBERS, "site/own.so": os.urandom(len(BIG))}
    with pytest.raises(EnvironmentUnfitError, match="no place on the device"):
        store(tmp_path, members, version="1.3.0")
    assert store(tmp_path).release.is_dir()


def test_beginnings_of_others_go_and_our_own_stay(tmp_path: Path, small_disk: Callable[[int], None]) -> None:
    other = store(tmp_path, version(0, common=os.urandom(len(BIG))), version="1.0.0")
    other.stage([])
    incoming = tmp_path / "edgepack-gate" / "incoming"
    incoming.mkdir()
    theirs, ours = (incoming / f"{digest}.0.300000.part" for digest in ("0" * 64, hashlib.sha256(BIG).hexdigest()))
    for path in (theirs, ours):
        path.write_bytes(bytes(100_000))
    small_disk(100_000 + 2 * len(BIG) + 20_000)
    new = store(tmp_path)
    new.stage([])
    assert (theirs.exists(), ours.exists(), other.staging.exists()) == (False, True, False)


def test_no_room_with_all_of_it_gone(tmp_path: Path, small_disk: Callable[[int], None]) -> None:
    fill(store(tmp_path))
    members = version(1, common=os.urandom(len(BIG)))
    new = store(tmp_path, members, version="1.3.0")
    small_disk(len(BIG))  # somebody else filled it since it was looked at
    with pytest.raises(EnvironmentUnfitError, match="free, "):
        new.stage([])


@pytest.fixture
def plain_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system as FAT: neither links nor modes."""

    def no(*given: object, **named: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no)
    monkeypatch.setattr(os, "fchmod", no)


@pytest.mark.usefixtures("plain_disk")
def test_where_there_are_no_links_it_is_copied(tmp_path: Path) -> None:
    fill(store(tmp_path))
    members = {**MEMBERS, "model/model.onnx": b"another"}
    new = store(tmp_path, members, version="1.3.0")
    assert new.stage([]) == [NUMBERS["model/model.onnx"]]
    fill(new, members)  # two of its files have the same content, too
    assert verify.find_damage(new.release, new.manifest) == []


@pytest.mark.usefixtures("plain_disk")
def test_where_there_are_no_links_room_is_made_for_the_copies(
    tmp_path: Path, small_disk: Callable[[int], None]
) -> None:
    made = []
    for number in range(2):
        members = version(number)
        made.append(store(tmp_path, members, version=f"1.{number}.0"))
        fill(made[-1], members)
        os.utime(made[-1].release, (number, number))
    # Two files each; two more, and the place to unpack one of them from: one has to go.
    small_disk(int(5.8 * len(BIG)))
    members = version(2)
    new = store(tmp_path, members, version="1.2.0")
    assert new.stage([]) == [sorted(members).index("site/own.so")]  # the other one had what they have in common
    assert new.removed == [made[0].release.name]


@pytest.mark.parametrize("name", ["x.part", f"{'0' * 64}.0.part", f"{'0' * 64}.0.9.part/", "a.b.c.part", "x"])
def test_what_is_no_beginning_is_none(tmp_path: Path, name: str) -> None:
    made = store(tmp_path)
    missing = made.stage([])
    incoming = tmp_path / "edgepack-gate" / "incoming"
    incoming.mkdir()
    if name.endswith("/"):
        (incoming / name).mkdir()
    else:
        (incoming / name).write_bytes(b"x")
    assert made.begun(missing) == {}


def test_each_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store(tmp_path))
    made = store(tmp_path)
    made.stage([])
    hashed: list[str] = []
    real = verify._compare

    def compare(folder: Path, entry: FileEntry) -> Iterator[verify.Damage]:
        hashed.append(entry.path)
        return real(folder, entry)

    monkeypatch.setattr(verify, "_compare", compare)
    assert made.check() == []
    assert sorted(hashed) == sorted(MEMBERS)


def test_a_signature_that_is_none_is_refused(tmp_path: Path) -> None:
    manifest = make_manifest(MEMBERS)
    made = Store.open(str(tmp_path), manifest, dump(manifest), b"x", [])
    made.stage([])
    with pytest.raises(BundleInvalidError, match="is no SSH signature"):
        made.check()


def test_where_it_is_looked_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/pi")
    user = os.geteuid()
    assert list(map(str, remote_store.candidates(None))) == [
        "/home/pi/.cache/edgepack-gate", f"/var/tmp/edgepack-gate-{user}", f"/tmp/edgepack-gate-{user}",
    ]  # fmt: skip
    assert list(map(str, remote_store.candidates("~/there"))) == ["/home/pi/there/edgepack-gate"]
    monkeypatch.setenv("HOME", "")
    monkeypatch.setenv("TMPDIR", "/data/tmp")
    assert str(remote_store.candidates(None)[0]) == f"/data/tmp/edgepack-gate-{user}"


def test_the_module_alone_imports_nothing_of_the_build_side() -> None:
    probe = "import sys, edgepack.targets.remote; print(*(m for m in sys.modules if m.startswith('edgepack.targets.')))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert set(found.split()) == {f"{sent.PACKAGE}.{name}" for name in sent.OWN_MODULES}
