"""The pictures of a report in docs: dark, on a phone, and its first page on paper.

    .venv/bin/python scripts/report_pictures.py dist/NAME.report.html docs

Needs chromium with chromedriver, and pdftoppm. Writes report-dark.png, report-phone.png and report-paper.png, and each
in Chinese: report-dark.zh-CN.png, ...
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration.browser import browser  # noqa: E402

LEDGER = "document.querySelectorAll('h2')[1].scrollIntoView()"


SUFFIXES = {"en": ".png", "zh": ".zh-CN.png"}


def main() -> None:
    page, folder = Path(sys.argv[1]).resolve().as_uri(), Path(sys.argv[2])
    for language, suffix in SUFFIXES.items():
        take(page, language, {kind: folder / f"report-{kind}{suffix}" for kind in ("dark", "phone", "paper")})


def take(page: str, language: str, files: dict[str, Path]) -> None:
    """Write the pictures of a page in a language to `files`."""
    with browser(width=1000, height=760, dark=True) as window:
        window.open(page)
        window.click(f"label:has(#{language})")
        window.screenshot(files["dark"])
    with browser(width=500, height=844) as window:
        window.on_phone(390, 700)
        window.open(page)
        window.click(f"label:has(#{language})")
        window.run(LEDGER)
        window.screenshot(files["phone"])
        printed = window.printed()
    with tempfile.TemporaryDirectory() as scratch:
        pdf = Path(scratch) / "report.pdf"
        pdf.write_bytes(printed)
        first = ["-f", "1", "-l", "1", "-singlefile", str(pdf), str(files["paper"].with_suffix(""))]
        subprocess.run(["/usr/bin/pdftoppm", "-r", "80", "-png", *first], check=True)
    for file in files.values():
        with Image.open(file) as opened:
            opened.convert("RGB").quantize(64).save(file, optimize=True)


if __name__ == "__main__":
    main()
