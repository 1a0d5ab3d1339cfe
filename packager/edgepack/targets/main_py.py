"""The bundle's `__main__.py`, made of `edgepack_runtime/launcher.py` so that no damage of it can look like success.

Python runs it from the zip without comparing any checksum, and reads as many bytes as the zip's directory says. So
the whole source stands inside one string: cut short anywhere, it is a syntax error. And it ends in lines of which any
one may be damaged: without the first the others fail, and one of the others is enough.
"""

from __future__ import annotations

from pathlib import Path

import edgepack_runtime

LAUNCHER_NAME = "launcher.py"
_BEGIN = b"exec(r'''"
_END = b"\nCODE = main()\nsys.exit(int(CODE))\nsys.exit(int(CODE))\n''')\n"
# A damaged size may keep either byte of its own: neither may then cut the file to nothing or to a bare name.
_SHORTEST_CUT = len(_BEGIN) + 1


def main_source() -> bytes:
    """The bytes of `__main__.py`."""
    launcher = (Path(edgepack_runtime.__path__[0]) / LAUNCHER_NAME).read_bytes()
    assert b"'''" not in launcher, "the launcher is quoted with '''"
    source = _BEGIN + launcher + _END
    while source and len(source) % 256 < _SHORTEST_CUT:
        source += b"\n"
    assert len(source) // 256 * 256 >= _SHORTEST_CUT
    return source
