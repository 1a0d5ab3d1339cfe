"""Packages of Debian, locked by version and sha256, from a mirror, a folder, or apt of this machine.

A package lies in the cache beside the wheels, at `<cache>/<sha256>/<file name>`, and is compared on every use. Debian's
archive drops a version when a newer one replaces it. Then apt may bring Debian's own fix of the same release, from an
archive that Debian has signed, whatever else the machine's apt trusts; the output and the bill of materials name it.
"""

from __future__ import annotations

import http.client
import io
import lzma
import os
import re
import subprocess
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.interpreter.extraction import extract
from edgepack.progress import Progress
from edgepack.targets import machines, package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.downloads import download_folder
from edgepack.util.hashing import sha256_file
from edgepack.util.process import find_program
from edgepack_runtime.util.fs import read_regular

VARIABLE: Final = "EDGEPACK_DEBIAN"  # a mirror's URL, or a folder with .deb files
_LINE: Final = re.compile(r"(?P<name>\S+) (?P<version>\S+) (?P<sha256>[0-9a-f]{64}) (?P<path>pool/\S+\.deb)\Z")
_FIX: Final = re.compile(r"\+deb(?P<debian>[0-9]+)u(?P<number>[0-9]+)\Z")  # of Debian's security and stable updates
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TIMEOUT_SECONDS: Final = 60
_SAID_BYTES: Final = 800
_PIECE_BYTES: Final = 2**20
_MOST_BYTES: Final = 64 * 2**20  # the largest package has 3 MiB


@dataclass(frozen=True)
class DebianPackage:
    """A binary package. `path` is its place in the archive; `replaces` the locked version that the archive dropped."""

    name: str
    version: str
    sha256: str
    path: str
    replaces: str = ""

    @property
    def file_name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def apt_name(self) -> str:
        """What apt calls the file: with the epoch of the version."""
        architecture = self.file_name.removesuffix(".deb").rpartition("_")[2]
        return f"{self.name}_{self.version.replace(':', '%3a')}_{architecture}.deb"


def lock_name(machine: str) -> str:
    """The file in `locks/` with the packages of the interpreter for `machine`."""
    return f"interpreter-{machine}.txt"


def locked(machine: str) -> tuple[DebianPackage, ...]:
    """The packages of the interpreter for `machine`.

    Raises:
        EnvironmentUnfitError: the lock is damaged.
    """
    lines = package_data.text("locks", lock_name(machine)).splitlines()
    matches = [_LINE.match(line) for line in lines if line and not line.startswith("#")]
    if None in matches or not matches:
        raise EnvironmentUnfitError(f"the lock of the interpreter for {machine} is damaged", fix="reinstall edgepack")
    return tuple(DebianPackage(**match.groupdict()) for match in matches if match is not None)


def fetch(machine: str, context: BuildContext, progress: Progress) -> dict[DebianPackage, Path]:
    """The locked packages for `machine`, from the cache or from where `$EDGEPACK_DEBIAN` says; by default from apt.

    Raises:
        EnvironmentUnfitError: one is not available.
    """
    wanted = locked(machine)
    found: dict[DebianPackage, Path] = {}
    with progress.task(f"interpreter for {machine}", len(wanted)) as task:
        missing = []
        for package in wanted:
            kept = _kept(package, context.wheel_cache)
            if kept is None:
                missing.append(package)
                continue
            found[kept[0]] = kept[1]
            task.advance(1, kept[0].file_name)
        if missing:
            if context.offline:
                raise _unavailable(machine, missing, "--offline: nothing is fetched")
            with download_folder(context.wheel_cache) as scratch:
                for package, file in _brought(missing, machine, scratch).items():
                    kept_file = _keep(package, file, missing, context.wheel_cache)
                    found[package] = kept_file
                    task.advance(1, f"{package.file_name}, fetched")
    for package in found:
        if package.replaces:
            progress.line(
                f"note: {package.name} {package.replaces} is no longer in Debian's archive; "
                f"{package.version} is carried, from an archive with Debian's signature"
            )
    return dict(sorted(found.items(), key=lambda item: item[0].name))


def missing(machine: str, context: BuildContext) -> list[DebianPackage]:
    """The packages for `machine` that `fetch` would download.

    Raises:
        EnvironmentUnfitError: the lock is damaged.
    """
    return [package for package in locked(machine) if _kept(package, context.wheel_cache) is None]


def unpack(deb: Path, folder: Path) -> None:
    """Unpack the files of a package into `folder`; nothing of it runs.

    Raises:
        StageFailedError: it is not a package of Debian 12.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(_data(deb.read_bytes())))) as archive:
            extract(archive, folder)
    except (OSError, ValueError, KeyError, RecursionError, lzma.LZMAError, tarfile.TarError) as error:
        raise StageFailedError(
            f"{deb.name} cannot be unpacked", why=str(error), fix="delete it and build again"
        ) from error


def _data(raw: bytes) -> bytes:
    """The member data.tar.xz of an `ar` archive, which a .deb is (deb(5))."""
    position = 8
    if raw[:position] != b"!<arch>\n":
        raise ValueError("it is not an ar archive")
    while position < len(raw):
        header = raw[position : position + 60]
        size = int(header[48:58])
        if size < 0:
            raise ValueError("a member has a negative size")
        if header[:16].rstrip() in (b"data.tar.xz", b"data.tar.xz/"):
            return raw[position + 60 : position + 60 + size]
        position += 60 + size + size % 2
    raise ValueError("it holds no data.tar.xz")


def _kept(package: DebianPackage, cache: Path) -> tuple[DebianPackage, Path] | None:
    """The package in the cache, or the one that replaced it when it was fetched."""
    folder = cache / package.sha256
    file = folder / package.file_name
    if file.is_file() and sha256_file(file) == package.sha256:
        return package, file
    for newer in sorted(folder.glob("*.deb")):
        note = newer.with_suffix(".sha256")
        if newer != file and note.is_file() and sha256_file(newer) == note.read_text(encoding="ascii").strip():
            return _replaced(package, newer), newer
    return None


def _keep(package: DebianPackage, file: Path, wanted: Sequence[DebianPackage], cache: Path) -> Path:
    """Move a package into the cache. A newer one lies where the locked one would, with its own digest beside it."""
    [locked_one] = [one for one in wanted if one.name == package.name]
    folder = cache / locked_one.sha256
    folder.mkdir(exist_ok=True)
    if package.replaces:
        (folder / package.file_name).with_suffix(".sha256").write_text(package.sha256 + "\n", encoding="ascii")
    return file.replace(folder / package.file_name)


def _brought(missing: Sequence[DebianPackage], machine: str, scratch: Path) -> dict[DebianPackage, Path]:
    source = os.environ.get(VARIABLE, "")
    if not source:
        return _by_apt(missing, machine, scratch)
    if "://" not in source:
        return _from_folder(missing, machine, Path(source), scratch)
    found = {}
    for package in missing:
        file = scratch / package.file_name
        try:
            _download(package, source, file)
        except OSError as error:
            raise _unavailable(machine, [package], str(error)) from error
        found[package] = file
    return _compared(found, machine, source)


def _from_folder(
    missing: Sequence[DebianPackage], machine: str, folder: Path, scratch: Path
) -> dict[DebianPackage, Path]:
    """Copies of the packages in `folder` or below, under their name in the archive or that which apt gives them."""
    if not folder.is_dir():
        raise _unavailable(machine, missing, f"{VARIABLE} is {folder}, which is neither a folder nor a URL")
    files = {file.name: file for file in folder.rglob("*.deb")}
    given = {package: files.get(package.file_name) or files.get(package.apt_name) for package in missing}
    if absent := [package for package, file in given.items() if file is None]:
        raise _unavailable(machine, absent, f"{folder} has no file of this name")
    copies = {}
    for package, file in given.items():
        assert file is not None
        copies[package] = scratch / package.file_name
        try:
            copies[package].write_bytes(read_regular(file, _MOST_BYTES))
        except OSError as error:
            raise _unavailable(machine, [package], f"{file}: {error.strerror}") from error
    return _compared(copies, machine, str(folder))


def _compared(found: dict[DebianPackage, Path], machine: str, source: str) -> dict[DebianPackage, Path]:
    if wrong := [package for package, file in found.items() if sha256_file(file) != package.sha256]:
        raise _unavailable(machine, wrong, f"what {source} has does not have the locked sha256")
    return found


def _download(package: DebianPackage, mirror: str, file: Path) -> None:
    """From the mirror, or from its twin with security updates, which has the same name with `-security`."""
    for base in (mirror.rstrip("/"), f"{mirror.rstrip('/')}-security"):
        try:
            with urllib.request.urlopen(f"{base}/{package.path}", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the user names it, and sha256 decides
                raw = bytearray()
                while piece := answer.read1(_PIECE_BYTES):  # `read` takes all of a chunk that says that it has -1 bytes
                    raw += piece
                    if len(raw) > _MOST_BYTES:
                        raise OSError(f"{mirror}: {package.file_name} has more than {_MOST_BYTES >> 20} MiB")
                if answer.length:  # that is left: `read1` does not raise it
                    raise http.client.IncompleteRead(bytes(raw), answer.length)
            file.write_bytes(raw)
            return
        except urllib.error.HTTPError as error:
            error.close()
            code = error.code
        except (http.client.HTTPException, ValueError) as error:  # it broke off, or is not a URL
            raise OSError(f"{mirror}: {error}") from error
    raise OSError(f"{mirror} answers {code} for {package.path}")


def _by_apt(missing: Sequence[DebianPackage], machine: str, scratch: Path) -> dict[DebianPackage, Path]:
    """By apt of this machine with its sources, in a state of our own: the system does not change."""
    apt = Apt(machine, scratch)
    try:
        unreached = apt.update()
    except EnvironmentUnfitError as error:
        raise _unavailable(machine, missing, error.why) from error
    found = {}
    for package in missing:
        try:
            apt.run("download", f"{package.name}={package.version}")
        except EnvironmentUnfitError as error:
            try:
                apt.keep_debian_alone()
                apt.run("download", package.name)
            except EnvironmentUnfitError:
                lacking = missing if unreached else [package]
                raise _unavailable(machine, lacking, unreached or error.why) from error
        [file] = scratch.glob(f"{package.name}_*.deb")
        came = package if sha256_file(file) == package.sha256 else _replaced(package, file)
        if _FIX.sub("", came.version) != _FIX.sub("", package.version):
            raise _unavailable(machine, [package], f"apt of this machine has {came.version}, of another release")
        if _fix(came.version) < _fix(package.version):
            why = f"apt of this machine has {came.version}, which is older; its sources may lack Debian's updates"
            raise _unavailable(machine, [package], why)
        if came.replaces == came.version:
            raise _unavailable(machine, [package], "what apt brought does not have the locked sha256")
        found[came] = file
    return found


def _fix(version: str) -> tuple[int, int]:
    """The release of Debian and the number of a fix in it: "2.36-9+deb12u14" -> (12, 14)."""
    found = _FIX.search(version)
    return (int(found["debian"]), int(found["number"])) if found else (0, 0)


def _replaced(package: DebianPackage, newer: Path) -> DebianPackage:
    """What apt brought instead of the locked `package`. apt writes the colon of an epoch as %3a into a file's name."""
    version = urllib.parse.unquote(newer.name.split("_")[1])
    path = f"{package.path.rpartition('/')[0]}/{newer.name}"
    return replace(package, version=version, sha256=sha256_file(newer), path=path, replaces=package.version)


class Apt:
    """apt-get for another architecture, with its lists and cache below a folder."""

    def __init__(self, machine: str, folder: Path) -> None:
        self.folder = folder
        architecture = machines.BY_NAME[machine].architecture
        (folder / "apt/lists/partial").mkdir(parents=True)
        (folder / "apt/cache/archives/partial").mkdir(parents=True)
        (folder / "apt/status").touch()
        settings: Mapping[str, object] = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Get::AllowUnauthenticated": "false",
            "Acquire::AllowInsecureRepositories": "false",
            "APT::Sandbox::User": "root",
            "Dir::State::Lists": folder / "apt/lists",
            "Dir::Cache": folder / "apt/cache",
            "Dir::State::status": folder / "apt/status",
        }
        self._options = [f"-o{key}={value}" for key, value in settings.items()]

    def update(self) -> str:
        """Fetch the lists of packages; return what apt says of archives that it could not reach. Raises as `run`."""
        return self._run("update").stderr[-_SAID_BYTES:].strip()

    def keep_debian_alone(self) -> None:
        """Remove the lists of archives that Debian has not signed: the machine's apt may trust others, or anything."""
        lists = self.folder / "apt/lists"
        signed = tuple(file.name.removesuffix("InRelease") for file in lists.glob("*_InRelease") if _by_debian(file))
        for file in lists.iterdir():
            if file.is_file() and not file.name.startswith(signed or ("/",)):
                file.unlink()

    def run(self, *arguments: str) -> str:
        """What `apt-get` prints.

        Raises:
            EnvironmentUnfitError: it is not there; or with the end of what it says.
        """
        return self._run(*arguments).stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = find_program("apt-get")
        if program is None:
            raise EnvironmentUnfitError("apt is needed", why="there is no apt on this machine", fix="use Debian 12")
        done = subprocess.run(
            [program, "-qq", *self._options, *arguments],
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise EnvironmentUnfitError("apt failed", why=(done.stderr or done.stdout)[-_SAID_BYTES:].strip())
        return done


def _by_debian(release: Path) -> bool:
    """Whether an InRelease file has a signature of Debian's archive."""
    gpgv = find_program("gpgv")
    if gpgv is None:  # apt depends on it
        return False
    command = [gpgv, "--quiet", "--keyring", str(_KEYRING), str(release)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def lock(machine: str, names: Sequence[str], scratch: Path) -> str:
    """A lock of the newest versions that apt of this machine offers for `names`.

    Raises:
        EnvironmentUnfitError: apt is not there, or has none.
    """
    apt = Apt(machine, scratch)
    apt.update()
    apt.keep_debian_alone()
    lines = []
    for line in apt.run("download", "--print-uris", *names).splitlines():
        address, file, _, digest = line.split()
        name, version, _ = file.split("_")
        path = urllib.parse.unquote(address.strip("'")).partition("/pool/")[2]
        lines.append(f"{name} {urllib.parse.unquote(version)} {digest.removeprefix('SHA256:')} pool/{path}\n")
    return "".join(sorted(lines))


def _unavailable(machine: str, missing: Sequence[DebianPackage], why: str) -> EnvironmentUnfitError:
    names = ", ".join(f"{package.name} {package.version}" for package in missing)
    return EnvironmentUnfitError(
        f"packages of the interpreter for {machine} are not cached, and could not be downloaded: {names}",
        why=why,
        fix=(
            f"build on Debian 12; or set {VARIABLE} to the URL of a Debian mirror, or to a folder with these files; "
            "or write `interpreter: host` for a device that has Python 3.8 or newer"
        ),
    )
