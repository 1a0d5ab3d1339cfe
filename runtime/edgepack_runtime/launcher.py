"""Launcher of a bundle or an unpacked release, from which their `__main__.py` is made.

    sh FILE.edgepack VERB ...                its stub starts the interpreter that it carries, or python3, on the zip
    python3 FILE.edgepack VERB ...           from the zip; the standard library is all there is
    python3 -I -S RELEASE/__main__.py ...    unpacked; RELEASE/site and RELEASE/MACHINE/site hold the libraries

It runs from unverified bytes, so it is small, and compares the runtime and itself with the manifest before it imports
anything of the runtime.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing is not imported, to keep the start small
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Callable, List, NoReturn, Set, Tuple

# As in errors.py, which cannot be imported before it is verified.
UNFIT, INVALID, INTERRUPTED, TERMINATED = 4, 8, 130, 143


class DamagedError(Exception):
    """A file of the runtime differs from the manifest; the message in English, and in Chinese."""


def main() -> int:
    """Check the runtime, set up the import path, run the command line; return its exit code."""
    if sys.version_info < (3, 8):  # noqa: UP036 - an older Python on a device may well get here
        version = sys.version.split()[0]
        _fail(
            UNFIT,
            ("this needs Python 3.8 or newer", "需要 Python 3.8 或更新"),
            ("it runs on " + version, "当前是 " + version),
            ("use a newer python3", "请使用更新的 python3"),
        )
    _end_on_sigterm()
    sys.dont_write_bytecode = True  # no manifest would list it
    try:
        if not (sys.flags.isolated and sys.flags.no_site):
            _restart()
        import os

        _remove_at_exit(sys.prefix)
        own = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib must not be imported from the bundle
        sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != own]
        from pathlib import Path

        where = Path(own)
        name = _check(where)
        _set_paths(where)
        from edgepack_runtime.cli import main as cli
    except DamagedError as error:
        _fail(INVALID, error.args, ("", ""), _repair(own))
    except ImportError as error:
        _fail(
            UNFIT,
            ("this Python is not complete", "此 Python 不完整"),
            (str(error), str(error)),
            ("install the full python3 of this system", "请安装系统完整的 python3"),
        )
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    bundle = where.is_file()
    return cli.run(sys.argv[1:], cli.Context(name, bundle=where if bundle else None, release=None if bundle else where))


def _end_on_sigterm() -> None:
    """End on SIGTERM until the command line handles it. For process 1 of a container, the kernel would drop it."""
    import os
    from _signal import SIGTERM, signal  # type: ignore[import-not-found]  # `signal` would import `enum` first

    signal(SIGTERM, lambda number, frame: os._exit(TERMINATED))


def _repair(own: str) -> Tuple[str, str]:
    """What to do about damage of the bundle or release at the path `own`, in English and in Chinese."""
    import os
    import shlex

    if os.path.isfile(own):  # noqa: PTH113 - as above
        return "copy the bundle again from where you got it", "请从原来的地方重新复制此文件"
    releases, _ = os.path.split(own)
    prefix, name = os.path.split(releases)
    command = "sh FILE install --prefix " + (shlex.quote(prefix) if name == "releases" else "PREFIX")
    return "install it again from its file: " + command, "请用它的文件重新安装：" + command


def _restart() -> None:
    """Restart Python isolated: without PYTHON* variables, user packages and system packages."""
    import os

    # sys.executable is empty if Python was started without a PATH.
    python = sys.executable or os.path.realpath("/proc/self/exe")
    os.execv(python, [python, "-I", "-S", *sys.argv])  # noqa: S606 - it is the running one


def _remove_at_exit(folder: str) -> None:
    """Remove the interpreter in `folder` when this process ends, if the bundle's stub unpacked it for this process.

    After SIGKILL, a shell that the stub left does so. Where there can be none, a child waits for the end of this
    process; it ends with its container.
    """
    import os

    try:
        with open(folder + "/.edgepack-once", encoding="ascii") as mark:  # noqa: PTH123 - as below
            ours = mark.read().strip() == str(os.getpid())
    except (OSError, ValueError):
        return
    if not ours:
        return
    import atexit
    import shutil
    import signal

    signal.signal(signal.SIGINT, signal.default_int_handler)  # the stub ignored it
    if os.path.exists(folder + "/fifo"):  # noqa: PTH110 - pathlib must not be imported from the bundle
        held = os.open(folder + "/fifo", os.O_RDWR | os.O_CLOEXEC)
    else:
        ended, held = os.pipe()  # what this process starts does not inherit it
        if not os.fork():
            try:
                os.setsid()
                os.chdir("/")
                for descriptor in {0, 1, 2, held} - {ended}:
                    os.close(descriptor)
                if not os.read(ended, 1):
                    shutil.rmtree(folder, True)
            finally:
                os._exit(0)
        os.close(ended)

    def remove() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C would leave a part of the folder
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(folder, True)

    # Last of all: who waits for the end is not to remove the name again, which another user may have taken by then.
    atexit.register(os.write, held, b"\n")
    atexit.register(remove)


def _check(where: Path) -> str:
    """Compare the runtime in `where` (a zip or a folder) with its manifest; return the bundle's name."""
    import hashlib
    import json

    read = _reader(where)
    name = "manifest.json"
    try:
        manifest = json.loads(read(name).decode("utf-8"))
        bundle = str(manifest["name"])
        listed = {str(entry["path"]): str(entry["sha256"]) for entry in manifest["files"]}
        for name in sorted({"__main__.py", *_runtime(where, [*listed]), *_files(where).difference(listed)}):
            if name not in listed or hashlib.sha256(read(name)).hexdigest() != listed[name]:
                changed = _changed(where, name)
                raise DamagedError(
                    f"{where.name} is damaged: {changed} is not as it was built",
                    f"{where.name} 已损坏：{changed} 与构建时不同",
                )
    except DamagedError:
        raise
    except Exception as error:  # any error while reading means damaged bytes
        changed, why = _changed(where, name), f"{type(error).__name__}: {error}"
        raise DamagedError(
            f"{where.name} is damaged: {changed} cannot be read ({why})",
            f"{where.name} 已损坏：无法读取 {changed}（{why}）",
        ) from error
    return bundle


def _changed(where: Path, name: str) -> str:
    """Whether file `name` or the manifest was changed, as a sentence. The zip has a checksum of the manifest."""
    if where.is_dir():
        return name
    import zipfile

    try:
        with zipfile.ZipFile(where) as archive:
            archive.read("manifest.json")
    except Exception:  # noqa: BLE001 - a wrong checksum, or unreadable
        return "manifest.json"
    return name


def _runtime(where: Path, paths: List[str]) -> List[str]:
    """Those of the listed `paths` that may run.

    In a folder, a carried interpreter runs the bytecode alone, and another one might find both. In a zip, Python looks
    for sources.
    """
    own = [path for path in paths if path.startswith("edgepack_runtime/")]
    if not where.is_dir():
        return [path for path in own if not path.endswith(".pyc")]
    return [path for path in own if path.endswith(".pyc")] if _is_carried(where) else own


def _is_carried(where: Path) -> bool:
    """Whether this is the interpreter that the release in the folder `where` carries, or that its bundle unpacked."""
    import os

    return os.path.realpath(sys.prefix) == os.path.realpath(where / os.uname().machine / "python")


def _files(where: Path) -> Set[str]:
    """POSIX paths of the runtime's files and links in a folder; none of a zip: `verify` compares its directory."""
    found = where.glob("edgepack_runtime/**/*") if where.is_dir() else ()
    return {path.relative_to(where).as_posix() for path in found if path.is_symlink() or not path.is_dir()}


def _reader(where: Path) -> Callable[[str], bytes]:
    """Reader of files in the zip or folder `where`; it reads a zip exactly as the later imports do."""
    if where.is_dir():
        return lambda name: (where / name).read_bytes()
    import zipimport
    import zlib  # noqa: F401 - without it, zipimport would report damage

    try:
        return zipimport.zipimporter(str(where)).get_data
    except zipimport.ZipImportError as error:
        raise DamagedError(
            f"{where.name} is damaged: its directory cannot be read ({error})",
            f"{where.name} 已损坏：无法读取文件目录（{error}）",
        ) from error


def _set_paths(where: Path) -> None:
    """Import the runtime, and put its libraries last on the import path: they replace no module of Python.

    The release itself is on the path for that import alone. No other file beside the runtime can be imported.
    """
    sys.path.append(str(where))
    import edgepack_runtime  # noqa: F401 - its modules are found through it from here on

    if where.is_dir():
        import os

        sys.path[-1:] = [str(where / os.uname().machine / "site"), str(where / "site")]


def _fail(code: int, what: Tuple[str, str], why: Tuple[str, str], fix: Tuple[str, str]) -> NoReturn:
    """End with an error; each part in English and in Chinese."""
    import os

    chosen = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")  # as in `messages`
    place = int(chosen.startswith("zh"))
    for labels, texts in (
        (("error: ", "错误："), what),
        (("  why: ", "  原因："), why),
        (("  fix: ", "  解决办法："), fix),
    ):
        if texts[place]:
            # A name in the bundle may be anything.
            shown = "".join(one if one.isprintable() else "?" for one in texts[place])
            sys.stderr.write(labels[place] + shown + "\n")
    sys.exit(code or 1)  # one flipped bit makes an 8 a 0
