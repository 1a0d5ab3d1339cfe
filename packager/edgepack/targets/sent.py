"""What starts on a device that has nothing but its Python: a shell line, and a program that comes by standard input.

The program is `remote.py` with the modules of our own `edgepack_runtime` that it needs, all of the standard library.
It lives in the memory of one process there; nothing of it is written to the device.
"""

from __future__ import annotations

import json
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import edgepack_runtime

# Of the runtime, with what they import; `test_sent.py` runs the program with these alone.
RUNTIME_MODULES: Final = (
    "errors", "wording", "hashing", "durable", "manifest", "spans", "model_config", "device", "jetson",
    "nvidia_libraries", "cuda_driver", "doctor", "onnx_file", "archive", "sshsig", "state", "verify", "trust",
    "unpacking", "isolated", "alone",
)  # fmt: skip
OWN_MODULES: Final = (
    "remote_input",
    "remote_files",
    "remote_room",
    "remote_store",
    "remote_run",
    "remote",
)
PACKAGE: Final = "edgepack.targets"
PYTHONS: Final = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)))
NO_PYTHON: Final = "edgepack: none of these is a Python 3.8 or newer:"

# Neither a quote, a backslash, an exclamation mark nor a line end: it is one word to every login shell.
_SCRIPT: Final = (
    'for p in "$@"; do '
    'if "$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null >/dev/null 2>&1; then '
    'exec "$p" -I -S -c '
    '"import sys, zlib; f = sys.stdin.buffer; exec(zlib.decompress(f.read(int(f.readline()))))"; '
    f'fi; done; echo "{NO_PYTHON} $*" >&2; exit 127'
)
_PROGRAM: Final = """\
import importlib.abc, importlib.machinery, json, sys
SOURCES = json.loads({sources!r})


class Carried(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            package = name in {packages!r}
            return importlib.machinery.ModuleSpec(name, self, origin="sent", is_package=package)

    def get_source(self, name):
        return SOURCES[name]


sys.dont_write_bytecode = True
sys.meta_path.insert(0, Carried())
from {package}.remote import main
sys.exit(main({nonce!r}, {silent_s!r}))
"""


def shell_line(pythons: Sequence[str]) -> str:
    """What the login shell there runs: the first of `pythons` that is new enough, with a program from standard input.

    Its words mean the same to a POSIX shell, csh and fish.
    """
    return f"exec {shlex.join(['sh', '-c', _SCRIPT, 'sh', *pythons])}"


def pythons_for(python: str) -> tuple[str, ...]:
    """Names to try on the PATH there: that of version `python` ("3.11") first, the others for what they can tell."""
    return tuple(dict.fromkeys((f"python{python}", *PYTHONS)))


def program(nonce: str, silent_s: float) -> bytes:
    """What goes to its standard input first. It says `nonce` on a line of its own when it is ready for requests.

    After `silent_s` seconds in which nothing comes, not even an empty line, it ends.
    """
    runtime = Path(edgepack_runtime.__path__[0])
    sources = dict.fromkeys(("edgepack", PACKAGE, "edgepack_runtime"), "")
    packages = tuple(sources)
    sources |= {f"edgepack_runtime.{name}": _source(runtime / f"{name}.py") for name in RUNTIME_MODULES}
    sources |= {f"{PACKAGE}.{name}": _source(Path(__file__).with_name(f"{name}.py")) for name in OWN_MODULES}
    text = _PROGRAM.format(
        sources=json.dumps(sources),
        packages=packages,
        package=PACKAGE,
        nonce=nonce,
        silent_s=silent_s,
    )
    packed = zlib.compress(text.encode("ascii"), 9)
    return b"%d\n" % len(packed) + packed


def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8")
