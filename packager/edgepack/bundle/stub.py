"""The shell program at the beginning of a bundle: it unpacks the interpreter that follows it, and starts it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgepack.bundle.archive import first_offsets
from edgepack.targets.machines import BY_NAME
from edgepack_runtime.bundle.archive import COMMENT_BYTES, COMMENT_MAGIC, STUB_BYTES
from edgepack_runtime.bundle.manifest import Interpreter

STUB_TEMPLATE: Final = Path(__file__).parent / "stub.sh"
# A shell function: whether root and this user alone can rename what lies in a folder. Its name holds no link. The `ls`
# of busybox shows no sticky bit; `[ -O` follows a link.
SAFE_FOLDER: Final = """safe() {
	at=$1 me=$(id -u)
	while :; do
		set -- $(LC_ALL=C ls -ldn "$at")
		case $1 in d???????[!w]*) ;; d*) [ -k "$at" ] || return 1 ;; *) return 1 ;; esac
		case $3 in 0 | "$me") ;; *) return 1 ;; esac
		[ "$at" != / ] || return 0
		at=${at%/*} at=${at:-/}
	done
}
"""
_FIRST: Final = 5


def stub(name: str, title: str, interpreters: Mapping[str, Interpreter]) -> bytes:
    """The bytes of the stub.

    Args:
        name: of the bundle.
        title: one line about it.
        interpreters: by machine; none where the device's own Python runs it.
    """
    offsets = first_offsets({one.member: one.size for one in interpreters.values()})
    cases = [
        # What `uname -m` prints; tail counts from 1.
        f"{machine} | {BY_NAME[machine].architecture}) offset={offsets[one.member] + 1} size={one.size} ;;"
        for machine, one in sorted(interpreters.items())
    ]
    carried = " and ".join(f"one for {machine}" for machine in sorted(interpreters)) or "none"
    template = STUB_TEMPLATE.read_text(encoding="utf-8").replace("@SAFE@\n", SAFE_FOLDER)
    lines = template.splitlines(keepends=True)
    # Comments and indents below the first lines stay in the template: there is not space for all.
    program = [line.lstrip("\t") for line in lines[_FIRST:]]
    source = "".join(lines[:_FIRST] + [line for line in program if not line.startswith("# ")])
    for mark, text in (
        ("@TITLE@", title),
        ("@NAME@", name),
        ("@CASES@\n", "".join(f"{case}\n" for case in cases)),
        ("@CARRIED@", carried),
        ("@OTHERWISE@", "for $machine" if interpreters else "with \\`interpreter: bundled\\`"),
        ("@END_BYTES@", str(COMMENT_BYTES)),
        ("@END@", COMMENT_MAGIC.decode("ascii").replace(" ", "\\ ")),
    ):
        source = source.replace(mark, text)
    encoded = source.encode("utf-8")
    assert len(encoded) <= STUB_BYTES, f"the stub has {len(encoded)} bytes"
    return encoded + b"\n" * (STUB_BYTES - len(encoded))
