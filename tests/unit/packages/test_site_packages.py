from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import StageFailedError
from edgepack.packages import site_packages
from edgepack.packages.site_packages import Drop, Rules
from edgepack.targets.profiles import Profile

MakeWheel = Callable[..., Path]
FILES = {"fakelib/__init__.py": "x = 1\n", "fakelib/deep/tests/test_x.py": "assert 1\n", "fakelib/LICENSE": "text\n"}
RULES = {"fakelib": Rules(drop=(Drop(("fakelib/*/tests/*",), "tests"),), licenses=("fakelib/LICENSE",))}


def tree(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: files[name].read_bytes() for name in sorted(files)}


def test_files_are_dropped_and_moved_by_the_rules(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    facts = site_packages.assemble([make_wheel(FILES)], tmp_path / "out", profile, RULES)
    assert list(tree(tmp_path / "out")) == [
        "licenses/fakelib-1.0/LICENSE",
        "site/fakelib-1.0.dist-info/METADATA",
        "site/fakelib/__init__.py",
    ]
    (package,) = facts.packages
    assert (package.name, package.version, package.license, package.files) == ("fakelib", "1.0", "MIT", 2)
    assert package.license_files == ("licenses/fakelib-1.0/LICENSE",)
    assert package.bytes_after == facts.site_bytes
    assert package.bytes_after == sum(map(len, tree(tmp_path / "out/site").values()))
    assert package.bytes_before > package.bytes_after + len("assert 1\n")


def test_licences_are_moved_and_the_rest_is_dropped(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    info = "fakelib-1.0.dist-info"
    extra = {
        f"{info}/licenses/LICENSE.txt": "a",
        f"{info}/licenses/deep/COPYING": "b",
        f"{info}/sboms/crates.cyclonedx.json": "{}",
        f"{info}/LICENSE-MIT": "c",
        f"{info}/License.txt": "d",
        f"{info}/entry_points.txt": "[console_scripts]\nfake = fakelib:main\n",
        f"{info}/top_level.txt": "fakelib\n",
    }
    extra |= {"fakelib/__pycache__/__init__.cpython-311.pyc": "bytecode"}
    site_packages.assemble([make_wheel({"fakelib.py": "", **extra})], tmp_path / "out", profile, {})
    assert list(tree(tmp_path / "out")) == [
        "licenses/fakelib-1.0/LICENSE-MIT",
        "licenses/fakelib-1.0/LICENSE.txt",
        "licenses/fakelib-1.0/License.txt",
        "licenses/fakelib-1.0/deep/COPYING",
        "licenses/fakelib-1.0/sboms/crates.cyclonedx.json",
        "site/fakelib-1.0.dist-info/METADATA",
        "site/fakelib.py",
    ]


def test_the_same_wheels_give_the_same_files(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    wheels = [make_wheel(FILES), make_wheel({"other.py": "y = 2\n"}, name="other")]
    first = site_packages.assemble(wheels, tmp_path / "one", profile, RULES)
    second = site_packages.assemble(reversed(wheels), tmp_path / "two", profile, RULES)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert replace(second, folder=first.folder) == first


@pytest.mark.parametrize(
    "rules",
    [Rules(drop=(Drop(("fakelib/nothing/*",), "gone"),)), Rules(licenses=("fakelib/NOTICE",))],
    ids=["drop", "licenses"],
)
def test_a_rule_that_matches_nothing_is_an_error(
    tmp_path: Path, make_wheel: MakeWheel, profile: Profile, rules: Rules
) -> None:
    with pytest.raises(StageFailedError) as caught:
        site_packages.assemble([make_wheel(FILES)], tmp_path / "out", profile, {"fakelib": rules})
    assert "fakelib/" in caught.value.why
    assert "slim.toml" in caught.value.fix


def test_binaries_decide_what_the_device_needs(
    tmp_path: Path, make_wheel: MakeWheel, make_elf: Callable[..., bytes], profile: Profile
) -> None:
    files = {
        "fakelib/a.so": make_elf(["GLIBC_2.17"], ["libown.so.1", "libc.so.6"]),
        "fakelib.libs/libown.so.1": make_elf(["GLIBC_2.28", "GLIBCXX_3.4.30"], ["libstdc++.so.6"]),
        "fakelib/not-a-binary.so": "text",
    }
    facts = site_packages.assemble([make_wheel(files, tag="cp311-cp311-linux_x86_64")], tmp_path / "out", profile, {})
    assert (facts.needs.glibc, facts.needs.binaries) == ("2.28", 2)
    assert facts.needs.libraries == ("libstdc++.so.6",)


def test_a_binary_for_another_machine_is_refused_whatever_its_tag(
    tmp_path: Path, make_wheel: MakeWheel, make_elf: Callable[..., bytes], profile: Profile
) -> None:
    wheel = make_wheel({"fakelib/a.so": make_elf(machine=183)}, tag="cp311-cp311-manylinux_2_28_x86_64")
    with pytest.raises(StageFailedError, match=r"a\.so does not run on target test-target"):
        site_packages.assemble([wheel], tmp_path / "out", profile, {})


def test_two_wheels_may_not_hold_the_same_file(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    wheels = [make_wheel({"shared.py": "1"}, name="aaa"), make_wheel({"shared.py": "1"}, name="bbb")]
    with pytest.raises(StageFailedError, match="bbb") as caught:
        site_packages.assemble(wheels, tmp_path / "out", profile, {})
    assert "shared.py" in caught.value.why


@pytest.mark.parametrize(
    "path", ["../escaped.py", "/tmp/escaped.py", "fakelib/../../escaped.py", "fakelib-1.0.data/scripts/run", "a\\b.py"]
)
def test_a_wheel_writes_nowhere_else(tmp_path: Path, make_wheel: MakeWheel, profile: Profile, path: str) -> None:
    with pytest.raises(StageFailedError):
        site_packages.assemble([make_wheel({path: "x"})], tmp_path / "out", profile, {})
    assert list(tree(tmp_path / "out")) == []
    assert not list(tmp_path.rglob("escaped.py"))


@pytest.mark.parametrize(
    "path", ["json/__init__.py", "_socket.abi3.so", "zipimport.py", "edgepack_runtime/errors.py", "sitecustomize.py"]
)
def test_a_wheel_has_no_name_of_python_or_of_the_runtime(
    tmp_path: Path, make_wheel: MakeWheel, profile: Profile, path: str
) -> None:
    with pytest.raises(StageFailedError, match="has the name of a module"):
        site_packages.assemble([make_wheel({**FILES, path: "x = 1\n"})], tmp_path / "out", profile, {})


def test_a_damaged_wheel_is_named(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    wheel = make_wheel(FILES)
    content, bare = wheel.read_bytes(), io.BytesIO()
    with zipfile.ZipFile(bare, "w") as archive:  # without METADATA
        archive.writestr("fakelib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
    broken = (content[: len(content) // 2], content.replace(b"assert 1\n", b"assert 2\n"), b"", bare.getvalue())
    for number, damaged in enumerate(broken):
        wheel.write_bytes(damaged)
        with pytest.raises(StageFailedError, match=r"fakelib-1\.0"):
            site_packages.assemble([wheel], tmp_path / f"out{number}", profile, {})


@pytest.mark.parametrize(("kind", "word"), [(stat.S_IFLNK, "a link"), (stat.S_IFIFO, "no file")])
def test_what_is_no_plain_file_is_refused(
    tmp_path: Path, make_wheel: MakeWheel, profile: Profile, kind: int, word: str
) -> None:
    """It would travel as a text: of a library's other name, that is no library."""
    whole = make_wheel({"fakelib/libx.so": "libx.so.1"})
    wheel = tmp_path / "linked" / whole.name
    wheel.parent.mkdir()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(wheel, "w") as linked:
        for member in source.infolist():
            content = source.read(member)
            member.external_attr = (kind if member.filename == "fakelib/libx.so" else stat.S_IFREG) << 16
            linked.writestr(member, content)
    with pytest.raises(StageFailedError) as caught:
        site_packages.assemble([wheel], tmp_path / "out", profile, {})
    assert caught.value.why == f"fakelib/libx.so in it is {word}, and a wheel holds plain files"


def test_a_folder_that_exists_is_not_assembled_in(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    """What somebody put there would travel."""
    (tmp_path / "any/edgepack_runtime").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        site_packages.assemble([make_wheel(FILES)], tmp_path / "any", profile, RULES)


def test_a_wheel_needs_a_licence(tmp_path: Path, make_wheel: MakeWheel, profile: Profile) -> None:
    wheel = make_wheel({"fakelib.py": ""}, metadata="", licensed=False)
    with pytest.raises(StageFailedError, match=r"fakelib-1\.0"):
        site_packages.assemble([wheel], tmp_path / "one", profile, {})


SERVING = {"anyio", "click", "exceptiongroup", "h11", "prometheus-client", "starlette", "uvicorn"}


def test_every_rule_that_ships_has_its_reason() -> None:
    rules = site_packages.load_rules()
    of_gpus = {name for name in rules if name.startswith("nvidia-")}
    assert set(rules) - of_gpus == {"onnxruntime", "onnxruntime-gpu"} | SERVING
    for package in rules.values():
        assert package.license
        assert all(len(drop.reason) > 10 and drop.files for drop in package.drop)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("a.py,sha256=", "a.py,sha256=A", "didn't match RECORD"),
        ("a.py,sha256=", "b.py,sha256=", "a.py is not mentioned in RECORD"),
    ],
)
def test_a_wheel_by_path_is_compared_with_its_own_record(
    tmp_path: Path, make_wheel: MakeWheel, profile: Profile, old: str, new: str, why: str
) -> None:
    """The digest of any other is in a lock."""
    whole = make_wheel({"a.py": "1"})
    site_packages.assemble([whole], tmp_path / "good", profile, given=[whole])
    wheel = tmp_path / "bad" / whole.name
    wheel.parent.mkdir()
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(wheel, "w") as changed:
        for name in source.namelist():
            changed.writestr(name, source.read(name).replace(old.encode(), new.encode()))
    with pytest.raises(StageFailedError, match="cannot be unpacked") as caught:
        site_packages.assemble([wheel], tmp_path / "out", profile, given=[wheel])
    assert why in caught.value.why
    assert "as it was built" in caught.value.fix
