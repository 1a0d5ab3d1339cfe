"""The bundle's `__main__.py`, made of `edgepack_runtime/launcher.py` so that damage to it is told as such.

Python runs it from the zip without comparing any checksum, and reads as many bytes as the zip's directory says. So:

- The launcher travels as base64 with its CRC-32, and runs only when they agree. That text, and the code that compares
  them, are string literals, so that no changed character of them can be a syntax error of the whole file; what goes
  wrong in there is caught, and ends as exit code 8 with the name of the file.
- Nothing here is a space or an `@`: one flipped bit makes those a NUL, which Python refuses in any source. For the same
  reason the file is read as Latin-1, in which every byte is a character.
- Everything stands inside one more string: cut short anywhere, the file is a syntax error, and never a shorter
  program. And it ends in lines of which any one may be damaged.

What is left are about two hundred bytes around those strings: a flipped bit there may make Python itself refuse the
file, with exit code 1.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from string import Template

import edgepack_runtime

LAUNCHER_NAME = "launcher.py"
_FORM = Template(
    "\n".join(
        (
            "#coding:latin-1",
            'exec(r"""',
            "import\tsys",
            "CODE=8",
            "TEXT=r'''$text'''",
            "try:exec(r'''",
            "import\tbinascii",
            "SOURCE=binascii.a2b_base64(TEXT)",
            "if\tbinascii.crc32(SOURCE)!=$crc:raise\tValueError(TEXT)",
            'exec(compile(SOURCE,"launcher.py","exec"))',
            "''')",
            "except(KeyboardInterrupt):CODE=130",
            "except:sys.stderr.write((r'''error:~'''+sys.argv[0]+r'''~is~damaged:~__main__.py~is~not~as~it~was~built",
            "~~fix:~copy~the~bundle~again~from~where~it~was~built;~if~it~is~installed:~sh~FILE~install~--prefix~PREFIX",
            "''').replace('~',chr(32)))",
            "else:CODE=main()",
            "sys.exit(int(CODE))",
            "sys.exit(int(CODE))",
            '""")',
            "",
        )
    )
)
# A damaged size may keep either byte of its own: neither may then cut the file to nothing or to a comment alone.
_SHORTEST_CUT = len('#coding:latin-1\nexec(r"""')


def main_source() -> bytes:
    """The bytes of `__main__.py`."""
    launcher = (Path(edgepack_runtime.__path__[0]) / LAUNCHER_NAME).read_bytes()
    text = base64.encodebytes(launcher).decode("ascii")
    source = _FORM.substitute(text=text, crc=binascii.crc32(launcher)).encode("ascii")
    assert not set(source) & set(b"\0 @\\"), "one flipped bit of these would break the syntax of the whole"
    while len(source) % 256 < _SHORTEST_CUT:
        source += b"\n"
    assert len(source) // 256 * 256 >= _SHORTEST_CUT
    return source
