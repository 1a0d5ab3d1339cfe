"""What `python FILE VERB` does before anything of the bundle was checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stubs import STUB
from tests.sweeps import sample
from tests.unit.runtime.installing import Device, MakeBundle

from edgepack.bundle.archive import write_bundle
from edgepack.bundle.main_program import main_source
from edgepack_runtime import launcher
from edgepack_runtime.bundle.archive import STORED, Archive
from edgepack_runtime.bundle.extract import extract
from edgepack_runtime.bundle.manifest import release_id
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import ExitCode

SWEEP = pytest.mark.sweep


@pytest.fixture(scope="module")
def bundle(make_bundle: MakeBundle) -> Path:
    """One with the runtime's sources: tests change them, or lay bytecode beside them."""
    return make_bundle(sources=True)


@pytest.fixture(scope="module")
def release(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    manifest, raw = verify_file(bundle)
    folder = tmp_path_factory.mktemp("prefix") / "releases" / release_id(manifest, raw)
    with Archive(bundle) as archive:
        extract(archive, manifest, folder, raw=raw, signature=None, durable=False)
    return folder


def test_sigterm_before_the_command_line_handles_it_ends_it() -> None:
    program = "import os, sys; sys.path.insert(0, sys.argv[1]); from edgepack_runtime import launcher\n"
    program += "launcher._check = lambda where: os.kill(os.getpid(), 15)\nlauncher.main()"
    runtime = Path(launcher.__file__).parents[1]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(runtime)], check=False, timeout=60)
    assert done.returncode == launcher.TERMINATED


def flipped(bundle: Path, position: int, target: Path, mask: int = 0xFF) -> Path:
    raw = bytearray(bundle.read_bytes())
    raw[position] ^= mask
    target.write_bytes(raw)
    return target


def test_a_bundle_runs_from_the_zip_and_sees_no_python_variables_and_no_stray_modules(
    bundle: Path, device: Device, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('a stray json')")
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['SEEN'] = '1'")
    trap = {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "1", "PYTHONSTARTUP": "/nonexistent"}
    done = device(sys.executable, bundle, "verify", env=trap, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: sentiment 1.2.0-")


@pytest.mark.parametrize("prefix", ["model/model.onnx", "site/", "golden/", "edgepack_runtime/", "manifest.json"])
def test_damage_in_a_member_ends_in_exit_8_naming_it(bundle: Path, device: Device, tmp_path: Path, prefix: str) -> None:
    with Archive(bundle) as archive:
        members = [member for member in archive.members.values() if member.path.startswith(prefix) and member.size]
    assert members
    for member in sample(members, 6):
        position = member.data_offset + member.compressed_size // 2
        done = device(sys.executable, flipped(bundle, position, tmp_path / "x.edgepack"), "verify")
        assert done.returncode == ExitCode.BUNDLE_INVALID, member.path
        assert member.path in done.stderr
        assert "Traceback" not in done.stderr


def test_a_changed_manifest_is_not_blamed_on_what_it_lists(bundle: Path, device: Device, tmp_path: Path) -> None:
    """Most bits of it change a digest or a path that it lists, and leave it readable."""
    with Archive(bundle) as archive:
        member = archive.members["manifest.json"]
    for position in sample(range(member.data_offset, member.data_offset + member.compressed_size, 97), 6):
        done = device(sys.executable, flipped(bundle, position, tmp_path / "x.edgepack"), "verify")
        assert done.returncode == ExitCode.BUNDLE_INVALID
        assert "manifest.json" in done.stderr.splitlines()[0]


def test_damage_in_the_runtime_is_found_before_it_is_imported(bundle: Path, tmp_path: Path, device: Device) -> None:
    for verb in ("predict", "install", "status", "no-such-verb"):
        with Archive(bundle) as archive:
            member = archive.members["edgepack_runtime/cli/main.py"]
        path = flipped(bundle, member.data_offset + 1000, tmp_path / "x.edgepack")
        done = device(sys.executable, path, verb)
        assert done.returncode == ExitCode.BUNDLE_INVALID
        assert "edgepack_runtime/cli/main.py" in done.stderr


def entry_of_main(raw: bytes) -> range:
    """Where the zip's directory speaks of `__main__.py`."""
    start = raw.rindex(b"PK\x01\x02", 0, raw.rindex(b"__main__.py"))
    return range(start, start + 46 + len("__main__.py"))


@pytest.mark.parametrize("mask", [0x01, *(pytest.param(mask, marks=SWEEP) for mask in (0x80, 0x02, 0x04, 0x17))])
def test_no_damage_of_the_launcher_or_the_structure_reports_success(
    bundle: Path, device: Device, tmp_path: Path, mask: int
) -> None:
    """Python itself refuses most of them; what it lets through has to end in a code that is not 0."""
    size = bundle.stat().st_size
    with Archive(bundle) as archive:
        main = archive.members["__main__.py"]
    positions = {*sample(range(main.offset, main.data_offset, 5), 5), *sample(range(size - 103, size, 7), 5)}
    positions |= set(entry_of_main(bundle.read_bytes())[20:24])  # its size: zipimport checks no checksum
    positions |= set(sample(range(main.data_offset, main.end, main.compressed_size // 6), 2))
    for position in sorted(positions):
        done = device(sys.executable, "-I", "-S", flipped(bundle, position, tmp_path / "x.edgepack", mask), "verify")
        assert done.returncode != 0, position


def test_every_size_that_one_byte_can_turn_its_size_into_is_refused() -> None:
    source = main_source()
    low, high = len(source) % 256, len(source) // 256
    sizes = {high * 256 + byte for byte in range(256)} | {byte * 256 + low for byte in range(high)}
    for size in sorted(sizes - {len(source)}):
        if size > len(source):
            continue  # the next member's header follows, which holds NUL bytes
        cut = source[:size]
        if cut.rstrip() == source.rstrip():
            continue  # only blank lines are lost
        with pytest.raises(SyntaxError):
            compile(cut, "__main__.py", "exec")


def test_ctrl_c_while_it_starts_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_bytes(main_source())
    begin = (
        "import runpy, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'binascii': raise KeyboardInterrupt\n"
        "sys.modules.pop('binascii', None)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "runpy.run_path('main.py', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", begin], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def source_of(bundle: Path) -> tuple[int, bytes]:
    """Where `__main__.py` lies in the bundle, and its bytes: they are stored as they are."""
    with Archive(bundle) as archive:
        main = archive.members["__main__.py"]
        assert main.method == STORED
        return main.data_offset, archive.read("__main__.py", 10**6)


@pytest.mark.parametrize("bit", [0, 6, *(pytest.param(bit, marks=SWEEP) for bit in (1, 2, 3, 4, 5, 7))])
def test_a_flipped_bit_in_it_is_exit_8_or_refused_by_python(
    bundle: Path, device: Device, tmp_path: Path, bit: int
) -> None:
    raw = bundle.read_bytes()
    offset, source = source_of(bundle)
    code = [place for place in range(len(source)) if not source.index(b"TEXT") < place < source.index(b"\ntry:")]
    text = range(source.index(b"TEXT=r'''") + 9, source.index(b"'''\ntry:"))
    check = range(source.index(b"try:exec(r'''") + 13, source.index(b"''')\nexcept"))
    names_the_file = 0
    for place in [*code[bit::11], *range(bit, len(source), 1021)]:
        damaged = source[:place] + bytes([source[place] ^ 1 << bit]) + source[place + 1 :]
        (tmp_path / "x.edgepack").write_bytes(raw[:offset] + damaged + raw[offset + len(source) :])
        done = device(sys.executable, "-I", "-S", tmp_path / "x.edgepack", "verify")
        if done.returncode == ExitCode.BUNDLE_INVALID:
            assert "__main__.py" in done.stderr, place
            assert "Traceback" not in done.stderr, place
            names_the_file += 1
        else:
            assert done.returncode == 1, place  # never 0, and never a code that means something else
            assert place not in text and place not in check, place  # damage there never breaks the syntax of the file
    assert names_the_file > 20


def test_a_changed_launcher_that_still_runs_is_found(bundle: Path, device: Device, tmp_path: Path) -> None:
    """Only its comparison of itself with the manifest can tell."""
    with Archive(bundle) as archive:
        members: dict[str, Path | bytes] = {path: archive.read(path, 10**6) for path in archive.members}
    source = members["__main__.py"]
    assert isinstance(source, bytes)
    members["__main__.py"] = source.replace(b'"launcher.py"', b'"Launcher.py"')
    assert members["__main__.py"] != source
    write_bundle(members, tmp_path / "x.edgepack", STUB)
    done = device(sys.executable, tmp_path / "x.edgepack", "status")
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert "__main__.py" in done.stderr


def test_a_release_runs_unpacked_and_stays_as_it_is(release: Path, device: Device, tmp_path: Path) -> None:
    before = sorted(release.rglob("*"))
    for command in ([sys.executable, "-I", "-S"], [sys.executable]):
        done = device(*command, release / "__main__.py", "selftest", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ok: 2 texts")
    assert sorted(release.rglob("*")) == before
    assert not [path for path in release.parent.parent.iterdir() if path.name not in ("releases", "tuning")]


@pytest.mark.parametrize(
    "name", ["edgepack_runtime/cli/main.py", "edgepack_runtime/extra.py", "manifest.json", "__main__.py"]
)
def test_a_damaged_release_is_refused_before_it_runs(release: Path, device: Device, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a prefix" / "releases" / release.name
    shutil.copytree(release, folder)
    path = folder / name
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\n#")
    done = device(sys.executable, "-I", "-S", folder / "__main__.py", "predict", "x")
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert name in done.stderr
    fix = "fix: install it again from its file: sh FILE install --prefix "
    assert f"{fix}'{tmp_path}/a prefix'\n" in done.stderr
    shutil.copytree(folder, tmp_path / "r")
    assert f"{fix}PREFIX\n" in device(sys.executable, "-I", "-S", tmp_path / "r" / "__main__.py", "status").stderr


def test_damage_is_reported_in_chinese_where_the_locale_is(release: Path, device: Device, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "r")
    (tmp_path / "r" / "manifest.json").write_text("{")
    done = device(sys.executable, "-I", "-S", tmp_path / "r" / "__main__.py", "status", env={"LANG": "zh_CN.UTF-8"})
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert done.stderr.startswith("错误：r 已损坏：无法读取 manifest.json（")
    assert done.stderr.endswith("  解决办法：请用它的文件重新安装：sh FILE install --prefix PREFIX\n")


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 7, 0))
    with pytest.raises(SystemExit) as caught:
        launcher.main()
    assert caught.value.code == ExitCode.ENVIRONMENT_UNFIT
    assert "needs Python 3.8" in capsys.readouterr().err


ENDS = """
import os, sys
from edgepack_runtime import launcher

folder = sys.argv[1]
with open(folder + "/.edgepack-once", "w", encoding="ascii") as mark:
    mark.write(str(os.getpid()))
launcher._remove_at_exit(folder)
assert os.path.isdir(folder)
"""


def test_who_waits_for_the_end_is_not_to_remove_the_folder_again(tmp_path: Path) -> None:
    """Another user may have a folder of the same name by then."""
    (folder := tmp_path / "hotel.abcdef").mkdir()
    os.mkfifo(folder / "fifo")
    waiting = os.open(folder / "fifo", os.O_RDWR | os.O_NONBLOCK)
    try:
        subprocess.run([sys.executable, "-c", ENDS, str(folder)], check=True)
        assert os.read(waiting, 10) == b"\n"
        assert not folder.exists()
    finally:
        os.close(waiting)


INTERRUPTED = """
import shutil, signal

remove = shutil.rmtree
def interrupted(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    remove(*arguments)

shutil.rmtree = interrupted
"""


def test_a_second_interrupt_does_not_leave_the_folder(tmp_path: Path) -> None:
    (folder := tmp_path / "hotel.abcdef").mkdir()
    (folder / "library").touch()
    script = ENDS.replace("launcher._remove", f"{INTERRUPTED}\nlauncher._remove")
    done = subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert done.returncode == 0
    assert not folder.exists()
