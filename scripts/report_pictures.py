"""The pictures of a report in docs: dark, on a phone, and its first page on paper.

    .venv/bin/python scripts/report_pictures.py dist/NAME.report.html docs

Needs chromium with chromedriver, and pdftoppm. Writes report-dark.png, report-phone.png and report-paper.png.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from browser import browser  # noqa: E402

LEDGER = "document.querySelectorAll('h2')[1].scrollIntoView()"


def main() -> None:
    page, folder = Path(sys.argv[1]).resolve().as_uri(), Path(sys.argv[2])
    with browser(width=1000, height=760, dark=True) as window:
        window.open(page)
        window.click("label:has(#en)")
        window.screenshot(folder / "report-dark.png")
    with browser(width=500, height=844) as window:
        window.on_phone(390, 700)
        window.open(page)
        window.click("label:has(#en)")
        window.run(LEDGER)
        window.screenshot(folder / "report-phone.png")
        printed = window.printed()
    with tempfile.TemporaryDirectory() as scratch:
        pdf = Path(scratch) / "report.pdf"
        pdf.write_bytes(printed)
        first = ["-f", "1", "-l", "1", "-singlefile", str(pdf), str(folder / "report-paper")]
        subprocess.run(["/usr/bin/pdftoppm", "-r", "80", "-png", *first], check=True)
    for picture in ("dark", "phone", "paper"):
        file = folder / f"report-{picture}.png"
        with Image.open(file) as opened:
            opened.convert("RGB").quantize(64).save(file, optimize=True)


if __name__ == "__main__":
    main()
