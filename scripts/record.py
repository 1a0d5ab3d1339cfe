"""Record a command as an SVG: `scripts/record.py docs/quickstart.svg edgepack build recipes/quickstart.yaml`.

The command runs in a terminal of its own. The picture shows what stays on the screen after it ends.
"""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 104, 400
# The length of a text, which the library counts in characters: a Chinese one takes two columns and would be squeezed.
WIDE = re.compile(r'(<text [^>]*?) textLength="[^"]*"([^>]*>[^<]*[\u2e80-\uffef])')
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich fetches them from the network
TOKENS = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)")


def run(command: list[str]) -> tuple[str, int]:
    """What `command` writes to a terminal, and its exit code."""
    output = bytearray()

    def read(descriptor: int) -> bytes:
        chunk = os.read(descriptor, 65536)
        output.extend(chunk)
        return chunk

    os.environ.update(COLUMNS=str(COLUMNS), LINES=str(ROWS), TERM="xterm-256color", COLORTERM="truecolor")
    status = os.waitstatus_to_exitcode(pty.spawn(command, read))
    return output.decode("utf-8", "replace"), status


def screen(output: str) -> str:
    """The lines that stay: a progress bar moves the cursor up and erases its lines."""
    lines, row = [""], 0
    for token in TOKENS.split(output):
        if token == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif token.endswith("A") and token.startswith("\x1b["):
            row = max(row - int(token[2:-1] or 1), 0)
        elif token.endswith("K") and token.startswith("\x1b["):
            lines[row] = ""
        elif token.endswith("m") or not token.startswith(("\x1b", "\r")):
            lines[row] += token
    return "\n".join(lines).rstrip()


def main() -> int:
    target, *command = sys.argv[1:]
    output, status = run(command)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(Text(f"$ {' '.join(command)}"), style="bold")
    console.print(Text.from_ansi(screen(output)))
    drawn = FONTS.sub("", console.export_svg(title="edgepack"))
    Path(target).write_text(WIDE.sub(r"\1\2", drawn), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
