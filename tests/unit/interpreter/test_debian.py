"""Packages of the interpreter: from the cache, a folder, a mirror, and an apt that is a script."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.interpreter import debian
from edgepack.progress import SILENT
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.util.hashing import sha256_file

NAME = "libfake_1.2-3+deb12u4_amd64.deb"
PLACE = f"pool/main/f/fake/{NAME}"


def deb(files: dict[str, bytes], *, member: bytes = b"data.tar.xz", links: dict[str, bytes] | None = None) -> bytes:
    """A package of `files`; of `links`, the names and the types that tar has for them, lead to x27."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, kind in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "x27"
            archive.addfile(info)
    raw = b"!<arch>\n"
    for name, content in ((b"debian-binary", b"2.0\n"), (b"odd", b"x"), (member, packed.getvalue())):
        raw += name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"100644".ljust(8)
        raw += str(len(content)).encode().ljust(10) + b"`\n" + content + b"\n" * (len(content) % 2)
    return raw


GOOD = deb({"usr/lib/libfake.so.1": b"elf"})


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a mirror has it, with the package that the lock names; no program is on the PATH."""
    file = tmp_path / "debian" / PLACE
    file.parent.mkdir(parents=True)
    file.write_bytes(GOOD)
    lock = f"# a lock\nlibfake 1.2-3+deb12u4 {sha256_file(file)} {PLACE}\n"
    monkeypatch.setattr(package_data, "text", lambda folder, name: lock)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(debian.VARIABLE, str(tmp_path / "debian"))
    return file


def fetch(tmp_path: Path, *, offline: bool = False) -> dict[debian.DebianPackage, Path]:
    return debian.fetch("x86_64", BuildContext({}, tmp_path / "cache", offline=offline), SILENT)


def test_a_package_is_fetched_once_by_its_hash_and_then_found(archive: Path, tmp_path: Path) -> None:
    ((package, file),) = fetch(tmp_path).items()
    assert (package.name, package.version, package.file_name) == ("libfake", "1.2-3+deb12u4", NAME)
    assert file.read_bytes() == GOOD
    archive.unlink()
    assert list(fetch(tmp_path, offline=True).values()) == [file]
    file.write_bytes(GOOD + b"damaged")
    with pytest.raises(EnvironmentUnfitError, match=r"libfake 1\.2-3\+deb12u4") as caught:
        fetch(tmp_path)
    assert debian.VARIABLE in caught.value.fix
    assert "interpreter: host" in caught.value.fix


def test_what_has_another_hash_is_refused(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(GOOD + b"x")
    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(tmp_path)
    assert "does not have the locked sha256" in caught.value.why


def test_a_link_in_a_folder_of_packages_that_leads_to_a_device_is_refused(archive: Path, tmp_path: Path) -> None:
    archive.unlink()
    archive.symlink_to("/dev/zero")
    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(tmp_path)
    assert caught.value.why.endswith("it is not a regular file")


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/debian"
        server.shutdown()


@pytest.mark.parametrize("security", [False, True])
def test_a_mirror_has_it_or_the_one_with_security_updates_beside_it(
    archive: Path, tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch, security: bool
) -> None:
    if security:
        (tmp_path / "debian").rename(tmp_path / "debian-security")
    monkeypatch.setenv(debian.VARIABLE, mirror)
    assert [file.read_bytes() for file in fetch(tmp_path).values()] == [GOOD]
    with pytest.raises(EnvironmentUnfitError) as caught:
        monkeypatch.setenv(debian.VARIABLE, f"{mirror}/nothing")
        debian.fetch("x86_64", BuildContext({}, tmp_path / "other"), SILENT)
    assert "404" in caught.value.why


def test_a_folder_may_hold_what_apt_downloads_and_keeps_it(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "libfake_1%3a1.2-3_amd64.deb"
    place = "pool/main/f/fake/libfake_1.2-3_amd64.deb"
    lock = f"libfake 1:1.2-3 {sha256_file(archive)} {place}\n"
    monkeypatch.setattr(package_data, "text", lambda folder, file: lock)
    archive = archive.rename(archive.with_name(name))
    assert [file.read_bytes() for file in fetch(tmp_path).values()] == [GOOD]
    assert archive.is_file()


def test_all_that_a_folder_lacks_is_named_at_once(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = "".join(f"{name} 1 {'a' * 64} pool/{name}_1_amd64.deb\n" for name in ("liba", "libb"))
    monkeypatch.setattr(package_data, "text", lambda folder, file: lock)
    with pytest.raises(EnvironmentUnfitError, match="liba 1, libb 1"):
        fetch(tmp_path)
    monkeypatch.setenv(debian.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(tmp_path)
    assert "which is neither a folder nor a URL" in caught.value.why


class BreaksOff(http.server.BaseHTTPRequestHandler):
    """A server that promises more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"!<arch>")

    def log_message(self, *_: object) -> None:
        pass


class Endless(BreaksOff):
    """A server whose chunk has -1 bytes: `read` of http.client takes all that follows, whatever it was asked for."""

    protocol_version = "HTTP/1.1"
    sent_bytes = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"-1\r\n")
        with contextlib.suppress(OSError):
            while Endless.sent_bytes < 2**26:
                Endless.sent_bytes += self.wfile.write(bytes(2**16))
        self.close_connection = True


def test_a_mirror_that_sends_without_an_end_is_left(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "_MOST_BYTES", 2**20)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(debian.VARIABLE, f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(EnvironmentUnfitError) as caught:
            fetch(tmp_path)
        server.shutdown()
    assert "has more than 1 MiB" in caught.value.why
    assert Endless.sent_bytes < 2**26


def test_a_mirror_that_breaks_off_or_is_no_url(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BreaksOff) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for url, why in ((f"http://127.0.0.1:{server.server_port}", "IncompleteRead"), ("http://[", "Invalid IPv6")):
            monkeypatch.setenv(debian.VARIABLE, url)
            with pytest.raises(EnvironmentUnfitError) as caught:
                fetch(tmp_path)
            assert why in caught.value.why
        server.shutdown()


def use_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, content: bytes) -> None:
    """An apt-get that has one version of the package. It writes what it brings as apt does."""
    (tmp_path / "brought").write_bytes(content)
    script = tmp_path / "bin" / "apt-get"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        f"for last; do :; done\ncase $last in update) exit ;; libfake|libfake={version}) ;;\n"
        '*) echo "E: Version not found" >&2; exit 100 ;; esac\n'
        f'/bin/cp {tmp_path}/brought "libfake_{version.replace(":", "%3a")}_amd64.deb"\n'
    )
    script.chmod(0o755)
    monkeypatch.delenv(debian.VARIABLE)


def test_apt_brings_the_locked_version(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_apt(tmp_path, monkeypatch, "1.2-3+deb12u4", GOOD)
    ((package, file),) = fetch(tmp_path).items()
    assert (package.replaces, file.name) == ("", NAME)


def test_apt_may_bring_a_newer_fix_of_the_same_release_and_it_is_named(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_apt(tmp_path, monkeypatch, "1.2-3+deb12u5", GOOD + b"fixed")
    lines: list[str] = []
    monkeypatch.setattr(SILENT, "line", lines.append)
    ((package, file),) = fetch(tmp_path).items()
    assert (package.version, package.replaces) == ("1.2-3+deb12u5", "1.2-3+deb12u4")
    assert package.sha256 == sha256_file(file)
    assert "libfake 1.2-3+deb12u4 is no longer in Debian's archive; 1.2-3+deb12u5 is carried" in lines[0]
    ((again, _),) = fetch(tmp_path, offline=True).items()
    assert again == package
    file.write_bytes(b"damaged")
    with pytest.raises(EnvironmentUnfitError, match="could not be downloaded"):
        fetch(tmp_path, offline=True)


def test_the_epoch_of_a_version_stands_in_the_names_of_apts_files(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = f"libfake 1:1.2-3 {'a' * 64} {PLACE}\n"
    monkeypatch.setattr(package_data, "text", lambda folder, name: lock)
    use_apt(tmp_path, monkeypatch, "1:1.2-3+deb12u1", GOOD)
    ((package, file),) = fetch(tmp_path).items()
    assert (package.version, package.replaces) == ("1:1.2-3+deb12u1", "1:1.2-3")
    assert file.name == "libfake_1%3a1.2-3+deb12u1_amd64.deb"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.3-1", "of another release"),
        ("1.2-3+deb12u3", "which is older"),
        ("1.2-3", "which is older"),
        ("1.2-3+deb12u4", "does not have the locked sha256"),
    ],
)
def test_what_apt_has_of_another_release_or_content_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, why: str
) -> None:
    use_apt(tmp_path, monkeypatch, version, GOOD + b"other")
    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(tmp_path)
    assert why in caught.value.why


def test_apt_without_a_network_says_so(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_apt(tmp_path, monkeypatch, "another", GOOD)
    (tmp_path / "bin/apt-get").write_text(
        "#!/bin/sh\ncase $* in *update) echo 'W: Failed to fetch'>&2 ;; *) exit 1; esac\n"
    )
    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(tmp_path)
    assert caught.value.why == "W: Failed to fetch"


def test_without_apt_and_offline_it_says_what_to_do(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(debian.VARIABLE)
    with pytest.raises(EnvironmentUnfitError, match="could not be downloaded") as caught:
        fetch(tmp_path)
    assert "no apt" in caught.value.why
    with pytest.raises(EnvironmentUnfitError, match="could not be downloaded"):
        fetch(tmp_path, offline=True)


@pytest.mark.parametrize("text", ["", "libfake 1.2", f"libfake 1.2 {'a' * 63} pool/x.deb", f"x 1 {'a' * 64} ../x.deb"])
def test_a_damaged_lock_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(package_data, "text", lambda folder, name: text)
    with pytest.raises(EnvironmentUnfitError, match="damaged"):
        debian.locked("x86_64")


def test_the_files_of_a_package_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = tarfile.TarFile.extract

    def of_debian_12(self: tarfile.TarFile, member: tarfile.TarInfo, path: str = "", set_attrs: bool = True) -> None:
        extract(self, member, path, set_attrs)  # Python 3.11.2 knows no `filter`

    monkeypatch.setattr(tarfile.TarFile, "extract", of_debian_12)
    (tmp_path / "a.deb").write_bytes(GOOD)
    debian.unpack(tmp_path / "a.deb", tmp_path / "out")
    assert (tmp_path / "out/usr/lib/libfake.so.1").read_bytes() == b"elf"


@given(st.integers(0, len(GOOD) - 1))
def test_a_package_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, kept: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "a.deb").write_bytes(GOOD[:kept])
    with pytest.raises(StageFailedError, match=r"a\.deb cannot be unpacked"):
        debian.unpack(folder / "a.deb", folder / "out")


BACKWARDS = GOOD.replace(b"4".ljust(10) + b"`\n", b"-60".ljust(10) + b"`\n", 1)


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"PK", BACKWARDS, deb({}, member=b"data.tar.zst")),
        *(deb({"../outside": b"x"}), deb({"/x27/outside": b"x"})),
        *(deb({"x27": b""}, links={"more": kind}) for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE)),
    ],
)
def test_what_is_no_package_is_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.deb").write_bytes(raw)
    with pytest.raises(StageFailedError, match=r"a\.deb cannot be unpacked"):
        debian.unpack(tmp_path / "a.deb", tmp_path / "out")
    assert not (tmp_path / "outside").exists()
    assert not Path("/x27").exists()
