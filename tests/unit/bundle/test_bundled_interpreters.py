"""The carried interpreter: what of the packages travels, and its archive in the bundle. The packages are made up."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import runpy
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs import STUB

from edgepack.bundle import bundled_interpreters
from edgepack.bundle.archive import write_bundle
from edgepack.errors import StageFailedError
from edgepack.interpreter import bytecode, debian, from_archive, from_debian
from edgepack.interpreter.built import Interpreter
from edgepack.progress import SILENT
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles
from edgepack.targets.profiles import Profile
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import STORED, Archive
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import BundleInvalidError

MACHINE, TRIPLET = "x86_64", "x86_64-linux-gnu"
RULES: dict[str, Any] = {
    "version": "3.11",
    "libraries": ["libc.so.6", "libfake.so.1"],
    "extension_modules": ["_ctypes"],
    "left_out": {"not needed": ["test", "json/tool"]},
    "encodings": {"kept": ["__init__", "utf_8"]},
}
FILES = (
    "usr/bin/python3.11",
    f"lib/{TRIPLET}/ld-linux-x86-64.so.2",
    f"lib/{TRIPLET}/libc.so.6",
    f"usr/lib/{TRIPLET}/libfake.so.1",
    f"usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-{TRIPLET}.so",
    *(f"usr/lib/python3.11/{name}.py" for name in ("os", "json/__init__", "json/tool", "test/__init__")),
    *(f"usr/lib/python3.11/encodings/{name}.py" for name in ("__init__", "utf_8", "cp037")),
    "usr/share/doc/libfake/copyright",
)
PACKAGES = {
    debian.DebianPackage("python3.11-minimal", "3.11.2-6", "a" * 64, "pool/p.deb"): Path("p.deb"),
    debian.DebianPackage("libfake", "1.0", "b" * 64, "pool/f.deb"): Path("f.deb"),
}


class FakeCompiler:
    """Bytecode that is the module's name."""

    def bytecode(self, sources: dict[str, Path], folder: Path, *, whole: bool = False) -> dict[str, Path]:
        for name in sources:
            (folder / f"{name}c").parent.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}c").write_text(name)
        return {name: folder / f"{name}c" for name in sources}


def build(folder: Path, monkeypatch: pytest.MonkeyPatch, **rules: Any) -> Interpreter:
    folder.mkdir(parents=True)
    for name in FILES:
        file = folder / f"debian-{MACHINE}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    monkeypatch.setattr(debian, "fetch", lambda *inputs: PACKAGES)
    monkeypatch.setattr(package_data, "document", lambda name: {**RULES, **rules})
    compiler: Any = FakeCompiler()
    return from_debian.build(MACHINE, BuildContext({}), compiler, folder, SILENT)


def test_what_the_rules_name_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(tmp_path / "a", monkeypatch)
    assert made.version == "3.11.2"
    assert sorted(path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if path.is_file()) == [
        "bin/cpython", "bin/ld.so", "bin/python3", "lib/libc.so.6", "lib/libfake.so.1",
        "lib/python3.11/encodings/__init__.pyc", "lib/python3.11/encodings/utf_8.pyc",
        "lib/python3.11/json/__init__.pyc", f"lib/python3.11/lib-dynload/_ctypes.cpython-311-{TRIPLET}.so",
        "lib/python3.11/os.pyc", "lib/python311.zip",
    ]  # fmt: skip
    assert list(made.licenses) == ["debian/libfake/copyright"]
    again = build(tmp_path / "b", monkeypatch)
    for path in filter(Path.is_file, made.folder.rglob("*")):
        assert (again.folder / path.relative_to(made.folder)).read_bytes() == path.read_bytes()


def test_a_folder_that_exists_is_not_assembled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / f"python-{platform.machine()}/bin").mkdir(parents=True)
    monkeypatch.setattr(debian, "fetch", lambda *inputs: PACKAGES)
    compiler: Any = FakeCompiler()
    with pytest.raises(FileExistsError):
        from_debian.build(platform.machine(), BuildContext({}), compiler, tmp_path / "a", SILENT)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"libraries": ["libgone.so.1"]}, "libgone"),
        ({"extension_modules": ["_gone"]}, "_gone"),
        ({"left_out": {"why": ["gone"]}}, "gone"),
        ({"encodings": {"kept": ["utf_9"]}}, "utf_9"),
    ],
)
def test_a_rule_that_matches_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], named: str
) -> None:
    with pytest.raises(StageFailedError, match=named) as caught:
        build(tmp_path / "a", monkeypatch, **rules)
    assert "interpreter.toml" in caught.value.fix


def test_libraries_of_an_own_build_that_a_device_would_not_find_are_named(
    tmp_path: Path, make_elf: Any, profile: Profile
) -> None:
    for folder in ("bin", "lib"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lib/libpython3.so").write_bytes(make_elf(["GLIBC_2.34"], ["libm.so.6"]))
    program = tmp_path / "bin/python3"
    for path in (None, "/opt/python/lib"):
        program.write_bytes(make_elf(["GLIBC_2.17"], ["libpython3.so"], runpath=path))
        with pytest.raises(StageFailedError, match=r"bin/python3 of the interpreter would not find libpython3.so"):
            from_archive.needs_of(tmp_path, profile)
    program.write_bytes(make_elf(["GLIBC_2.17"], ["libpython3.so", "libz.so.1"], runpath="$ORIGIN/../lib"))
    needs = from_archive.needs_of(tmp_path, profile)
    assert (needs.glibc, needs.libraries, needs.checks.notes) == ("2.34", ("libz.so.1",), ())


def test_every_carried_interpreter_can_unpack_libraries() -> None:
    rules = package_data.document("interpreter.toml")
    assert "_lzma" in rules["extension_modules"] and "liblzma.so.5" in rules["libraries"]
    assert not {"lzma", "_compression"} & {name for names in rules["left_out"].values() for name in names}
    for machine in ("x86_64", "aarch64"):
        assert "liblzma5" in {package.name for package in debian.locked(machine)}


PREFIX = carried.folder(MACHINE)
names = st.from_regex(r"(bin|lib)/[a-z0-9_.]{1,12}[a-z]", fullmatch=True)
contents = st.dictionaries(names, st.binary(max_size=1200), min_size=1, max_size=6)


def packed(folder: Path, files: dict[str, bytes]) -> tuple[bytes, list[contract.FileEntry]]:
    """The archive of `files`, and their entries."""
    entries = []
    for number, (name, content) in enumerate(sorted(files.items())):
        (folder / str(number)).write_bytes(content)
        entries.append(contract.FileEntry(PREFIX + name, len(content), hashlib.sha256(content).hexdigest()))
    return bundled_interpreters.pack(
        [(entry, folder / str(number)) for number, entry in enumerate(entries)], PREFIX
    ), entries


def bundle_of(folder: Path, raw: bytes, entries: list[contract.FileEntry], first: bytes = STUB) -> Path:
    """A bundle with this archive; every digest in its manifest is right."""
    one = contract.Interpreter(MACHINE, "3.11.2", len(raw), hashlib.sha256(raw).hexdigest())
    main = b"raise SystemExit(0)\n"
    files = [contract.FileEntry("__main__.py", len(main), hashlib.sha256(main).hexdigest()), *entries]
    manifest = contract.Manifest(
        "hotel", "1.2.0", 1, "task", contract.TargetFacts("t", (MACHINE,), "2.28", "bundled", "CPU"), {}, {}, (), {},
        "0" * 64, hashlib.sha256(first).hexdigest(), (one,), tuple(files),
    )  # fmt: skip
    members: dict[str, Path | bytes] = {"__main__.py": main, one.member: raw, "manifest.json": contract.dump(manifest)}
    write_bundle(members, folder / "x.edgepack", first)
    return folder / "x.edgepack"


@given(contents)
@settings(max_examples=30)
def test_the_archive_is_unpacked_as_it_was_packed_here_and_by_tar(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    raw, entries = packed(folder, files)
    assert packed(folder, files)[0] == raw
    file = bundle_of(folder, raw, entries)
    verify_file(file)
    with Archive(file) as archive:
        manifest = contract.parse(archive.read("manifest.json", 10**6))
        found = {entry.path: b"".join(chunks) for entry, chunks in
                 carried.contents(archive, manifest.interpreters[0], manifest)}  # fmt: skip
    assert found == {PREFIX + name: content for name, content in files.items()}
    (folder / "raw.tar.gz").write_bytes(raw)
    with tarfile.open(folder / "raw.tar.gz") as tar:
        for member in tar.getmembers():
            opened = tar.extractfile(member)
            assert opened is not None and opened.read() == files[member.name]
            assert member.mode == (0o755 if member.name.startswith("bin/") else 0o644)


@given(contents, st.data())
@settings(max_examples=60)
def test_an_archive_of_other_bytes_is_refused_though_every_digest_is_right(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    raw, entries = packed(folder, files)
    at = data.draw(st.integers(10, len(raw) - 1))  # the first ten bytes are gzip's, and say nothing of the content
    changed = raw[:at] + bytes([raw[at] ^ 1 << data.draw(st.integers(0, 7))]) + raw[at + 1 :]
    try:
        verify_file(bundle_of(folder, changed, entries))
    except BundleInvalidError:
        pass
    else:  # a bit that no reader looks at; the digest of the archive in a real manifest covers it
        assert zlib.decompress(changed, 31) == zlib.decompress(raw, 31)
    with pytest.raises(BundleInvalidError):
        verify_file(bundle_of(folder, raw, [*entries[:-1], dataclasses.replace(entries[-1], sha256="0" * 64)]))


@pytest.mark.parametrize("change", ["missing", "more", "renamed", "longer", "again", "garbage"])
def test_an_archive_of_other_files_is_refused_though_every_digest_is_right(tmp_path: Path, change: str) -> None:
    files = {"bin/python3": b"#!/bin/sh\n", "lib/x": b"y" * 999}
    (tmp_path / "listed").mkdir()
    _, listed = packed(tmp_path / "listed", files)
    other = {
        "missing": {"bin/python3": files["bin/python3"]},
        "more": {**files, "lib/z": b""},
        "renamed": {"bin/python3": files["bin/python3"], "lib/y": files["lib/x"]},
        "longer": {**files, "lib/x": files["lib/x"] + b"y"},
    }.get(change, files)
    raw, _ = packed(tmp_path, other)
    raw += {"again": raw, "garbage": b"garbage"}.get(change, b"")
    with pytest.raises(BundleInvalidError, match=r"CPYTHON-x86_64\.tar\.gz"):
        verify_file(bundle_of(tmp_path, raw, listed))
    verify_file(bundle_of(tmp_path, packed(tmp_path, files)[0], listed))


def test_an_interpreter_lies_before_all_else_as_it_is(tmp_path: Path) -> None:
    raw, entries = packed(tmp_path, {"lib/x": b"y" * 9999})
    with Archive(bundle_of(tmp_path, raw + bytes(9999), entries)) as archive:
        first = next(iter(archive.members.values()))
    assert (first.path, first.method, first.size) == ("CPYTHON-x86_64.tar.gz", STORED, len(raw) + 9999)


def test_packages_are_fetched_for_the_machines_of_a_target_and_for_the_one_that_builds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(debian, "fetch", lambda machine, *_: {machine: Path(machine)})
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    known = load_profiles()
    for name, machines in (("linux-aarch64", ["aarch64", "x86_64"]), ("linux-x86_64", ["x86_64"]), ("jetpack6", [])):
        assert bundled_interpreters.fetch(None, known[name], BuildContext({}), SILENT) == [
            Path(machine) for machine in machines
        ]


def test_modules_are_compiled_on_a_machine_that_bundles_exist_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(StageFailedError, match="riscv64"):
        from_debian.compiler(BuildContext({}), SILENT, tmp_path)


def test_bytecode_has_no_docstrings_and_needs_no_source(tmp_path: Path) -> None:
    """The program that compiles, in this Python."""
    source, made = tmp_path / "a.py", tmp_path / "out" / "a.pyc"
    source.write_text('"""told"""\ndef f():\n    """told"""\nclass C:\n    """told"""\n    x = 1\n')
    jobs = json.dumps([False, [(str(source), "pkg/a.py", str(made))]])
    command = [sys.executable, "-I", "-S", "-B", "-c", bytecode._COMPILE]
    subprocess.run(command, input=jobs, text=True, check=True)
    assert b"told" not in made.read_bytes()
    source.unlink()
    found = runpy.run_path(str(made))
    function = found["f"]
    assert (function(), function.__doc__, found["C"].x, function.__code__.co_filename) == (None, None, 1, "pkg/a.py")


def test_whole_modules_keep_docstrings_and_files_that_are_none_are_passed_over(tmp_path: Path) -> None:
    sources = {"pkg/a.py": tmp_path / "a.py", "pkg/template.py": tmp_path / "template.py"}
    sources["pkg/a.py"].write_text('"""grammar"""\n')
    sources["pkg/template.py"].write_text("class {{name}}: pass\n")
    compiler = bytecode.Compiler([sys.executable])
    made = compiler.bytecode(sources, tmp_path / "out", whole=True)
    assert list(made) == ["pkg/a.py"]
    assert runpy.run_path(str(made["pkg/a.py"]))["__doc__"] == "grammar"
    with pytest.raises(StageFailedError, match="cannot be compiled"):
        compiler.bytecode(sources, tmp_path / "out")


@pytest.mark.parametrize("path", ["a/b.py", "edgepack_runtime/cli/main.py"])
def test_bytecode_lies_where_python_looks_for_it(path: str) -> None:
    import importlib.util

    own = Path(importlib.util.cache_from_source(path)).as_posix()
    assert bytecode.cached(path, "3.11.2").partition(".cpython-")[0] == own.partition(".cpython-")[0]
