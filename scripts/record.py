"""Record a command as an SVG: `scripts/record.py docs/quickstart.svg edgepack build recipes/quickstart.yaml`.

The command runs in a new terminal. The picture shows what stays on the screen after it ends, line by line: it
moves without a script, and is readable where nothing moves.
"""

from __future__ import annotations

import html
import itertools
import os
import pty
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 104, 400
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # rich fetches them from the network
CELL = 12.2  # width of a column of the terminal, in the units of the drawing
TEXT = re.compile(
    r'(<text class="[^"]*") x="([^"]*)" (y="[^"]*")(?: textLength="[^"]*")?( clip-path="[^"]*")>([^<]*)</text>'
)
LINE = re.compile(r"-line-(\d+)\)")
PAUSE, STEP = 1.0, 0.08  # seconds before a command appears, and before each line that it prints
APPEAR = """\
@keyframes appear { from { opacity: 0 } }
text[style] { animation: appear 1ms backwards }
@media (prefers-reduced-motion: reduce) { text[style] { animation: none } }
"""
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


def by_width(drawn: str) -> str:
    """Each text with the length that a terminal gives it: a Chinese character takes two columns.

    The library counts characters, and the fonts of a reader have other widths.
    """

    def parts(match: re.Match[str]) -> str:
        begin, x, y, clip, content = match.groups()
        column, made = float(x) / CELL, []
        for _, group in itertools.groupby(html.unescape(content), cell_len):
            run = "".join(group)
            place = f'x="{column * CELL:g}" {y} textLength="{cell_len(run) * CELL:g}"'
            if run.strip():
                made.append(f"{begin} {place}{clip}>{html.escape(run).replace(chr(160), '&#160;')}</text>")
            column += cell_len(run)
        return "".join(made)

    return TEXT.sub(parts, drawn)


def in_turn(drawn: str, lines: Sequence[str]) -> str:
    """The drawing whose lines appear one after the other, once; without animations all are there."""
    delays = list(itertools.accumulate(PAUSE if line.startswith("$ ") else STEP for line in lines))

    def delayed(match: re.Match[str]) -> str:
        line = LINE.search(match[0])
        assert line is not None
        return match[0].replace("<text", f'<text style="animation-delay:{delays[int(line[1])]:.2f}s"')

    return TEXT.sub(delayed, drawn).replace("<style>", f"<style>\n{APPEAR}", 1)


def main() -> int:
    target, *command = sys.argv[1:]
    output, status = run(command)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    shown = Text().append(f"$ {' '.join(command)}\n", style="bold").append(Text.from_ansi(screen(output)))
    lines = shown.wrap(console, COLUMNS)
    console.print(lines)
    drawn = by_width(FONTS.sub("", console.export_svg(title="edgepack")))
    Path(target).write_text(in_turn(drawn, [line.plain for line in lines]), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
