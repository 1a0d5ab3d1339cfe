"""The report of a real build in a real browser: desk and phone, light, dark and printed, in both languages."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import pytest
from tests.integration.browser import CHROMIUM, DRIVER, Browser, browser
from tests.unit.report.pages import many, render

from .conftest import Project

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(None in (CHROMIUM, DRIVER), reason="there is no chromium with chromedriver"),
]
LEGIBLE: Final = 4.5  # least contrast of text (WCAG 2.2, 1.4.3)
A4_PX: Final = 794
MARGIN_PX: Final = 45  # of the printed page, on each side
GOLDEN: Final = Path(__file__).parents[1] / "unit" / "golden"
MOST_PAGES: Final = 4
PHONE: Final = (390, 844)
LEAST_LETTER_PX: Final = 9.5
# Of each kind of text, the contrast of its colour with what lies behind it (WCAG: relative luminance).
CONTRASTS: Final = """
const light = colour => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
  const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if (!/^rgba\\(.*, 0\\)$|^transparent$/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
const found = {};
for (const element of document.querySelectorAll('p, td, th, h1, h2, summary, .verdict, figure svg text')) {
  if (!element.getClientRects().length || element.closest('.confusion')) continue;
  const style = getComputedStyle(element), drawing = element.closest('svg');
  // A dark page inverts its drawings. That the hue is turned back does not change how light a grey is.
  const inverted = drawing && getComputedStyle(drawing).filter.includes('invert');
  const fill = inverted ? style.fill.replace(/\\d+/g, part => 255 - part) : style.fill;
  const ink = drawing ? fill : style.color;
  const [less, more] = [light(ink), light(behind(element))].sort((a, b) => a - b);
  const kind = element.tagName.toLowerCase() + '.' + element.getAttribute('class');
  found[kind] = Math.min(found[kind] ?? 99, (more + 0.05) / (less + 0.05));
}
return found;
"""
OVERFLOW: Final = "return document.documentElement.scrollWidth - window.innerWidth"
# Words that go on in another line, and figures. Within a line, places differ by fractions of a pixel.
BROKEN: Final = """
const lines = range => new Set([...range.getClientRects()].filter(box => box.width > 1)
  .map(box => Math.round(box.top / 4))).size;
const found = [];
for (const cell of document.querySelectorAll('td:not(.examples *, .confusion *, .text, code), th:not(.confusion *)')) {
  const inside = document.createRange();
  inside.selectNodeContents(cell);
  if (cell.matches('td.n, td.keep') && lines(inside) > 1) found.push(cell.innerText);
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    if (walk.currentNode.parentElement.closest('code')) continue;
    for (const word of walk.currentNode.data.matchAll(/[\\w.]+/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, word.index);
      range.setEnd(walk.currentNode, word.index + word[0].length);
      if (lines(range) > 1) found.push(word[0]);
    }
  }
}
return found;
"""
# What lies outside of its cell, or of the paper.
CUT: Final = """
return [...document.querySelectorAll('td, th, p, li, .target')].filter(one => one.getClientRects().length
  && !one.matches('.unseen') && (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline'
  || one.getBoundingClientRect().right > innerWidth + 1)).map(one => one.innerText);
"""
# Size of the smallest letters of tables and charts, as shown.
LETTERS: Final = """
const scale = one => one.getScreenCTM ? Math.hypot(one.getScreenCTM().a, one.getScreenCTM().b) : 1;
const seen = one => one.getClientRects().length && !one.closest('details:not([open])');
return Math.min(...[...document.querySelectorAll('td, th, svg text')].filter(seen)
  .map(one => parseFloat(getComputedStyle(one).fontSize) * scale(one)));
"""
HIDDEN: Final = "return [...document.querySelectorAll('{}')].every(one => !one.getClientRects().length)"


@pytest.fixture
def address(project: Project) -> str:
    (page,) = (project.folder / "dist").glob("*.report.html")
    return page.as_uri()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: `EDGEPACK_SHOTS`, for anyone who wants to look at them."""
    return Path(os.environ.get("EDGEPACK_SHOTS", tmp_path))


def faint(page: Browser) -> dict[str, float]:
    """Kinds of text that are hard to read where they stand."""
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) >= 8
    return {kind: contrast for kind, contrast in contrasts.items() if contrast < LEGIBLE}


@pytest.mark.parametrize("dark", [False, True])
def test_the_verdict_is_there_first_and_everything_can_be_read(address: str, shots: Path, dark: bool) -> None:
    with browser(width=1200, height=900, dark=dark) as page:
        page.open(address)
        assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches") is dark
        assert page.run("return document.querySelector('.badge').getBoundingClientRect().bottom") < 300
        assert page.run(OVERFLOW) <= 0
        assert faint(page) == {}
        page.screenshot(shots / f"report-{'dark' if dark else 'light'}.png")
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert faint(page) == {}
        assert page.run("return performance.getEntriesByType('resource').length") == 0
        assert page.complaints() == []


def test_every_plot_has_its_words_inside(address: str) -> None:
    """Text that leaves the drawing is cut off."""
    outside = """
    const out = [];
    for (const svg of document.querySelectorAll('figure svg')) {
      const box = svg.getBoundingClientRect();
      for (const text of svg.querySelectorAll('text')) {
        const place = text.getBoundingClientRect();
        if (!place.width) continue;
        if (place.left < box.left - 1 || place.right > box.right + 1 || place.top < box.top - 1
            || place.bottom > box.bottom + 1) out.push(text.textContent);
      }
    }
    return out;
    """
    with browser(width=1200, height=900) as page:
        page.open(address)
        assert page.run("return document.querySelectorAll('figure svg text').length") > 20
        assert page.run(outside) == []
        page.click("label:has(#zh)")
        assert page.run(outside) == []


def test_in_chinese_on_a_phone(address: str, shots: Path) -> None:
    with browser(width=500, height=900) as page:
        page.open(address)  # labels of the build are Chinese
        assert page.run(HIDDEN.format(".en"))
        page.click("label:has(#en)")
        assert page.run(HIDDEN.format(".zh"))
        assert page.spoken("figure").startswith("Score of each stage on the test rows with its interval; ")
        page.click("label:has(#zh)")
        assert page.run(HIDDEN.format(".en"))
        headings = page.run("return [...document.querySelectorAll('h2')].map(one => one.innerText)")
        assert all(any("\u4e00" <= character <= "\u9fff" for character in heading) for heading in headings if heading)
        assert page.spoken("figure") == "各阶段在测试样本上的得分及其区间；数值见下表"
        assert page.run(OVERFLOW) <= 0
        page.screenshot(shots / "report-zh.png")
        assert page.complaints() == []


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a build with 50 labels, as many examples of each kind, and more."""
    document = many(json.loads((GOLDEN / "report.json").read_text(encoding="utf-8")), 50, "a label of some words ")
    page = tmp_path_factory.mktemp("full") / "full.html"
    page.write_text(render(document), encoding="utf-8")
    return page.as_uri()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", ["address", "full"])
def test_on_paper_no_word_is_broken_or_cut_off(kind: str, language: str, request: pytest.FixtureRequest) -> None:
    with browser(width=A4_PX - 2 * MARGIN_PX, height=1123, dark=True) as page:
        page.open(request.getfixturevalue(kind))
        page.click(f"label:has(#{language})")
        assert len(re.findall(rb"/Type /Page\b", page.printed())) <= MOST_PAGES
        page.emulate_print()
        assert page.run(HIDDEN.format(".languages, .screen"))
        kept = "document.querySelectorAll('details:not(.screen, .screen *) > :not(summary)')"
        heights = page.run(f"return [...{kept}].filter(one => !one.matches('.paper')).map(one => one.clientHeight)")
        assert heights
        assert min(heights) > 0
        assert page.run(OVERFLOW) <= 0
        assert page.run("return document.querySelectorAll('.gates td.n').length") > 8
        assert page.run(BROKEN) == []
        assert page.run(CUT) == []
        assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert faint(page) == {}


# Of the plot of the ledger: the size of its letters, and its ends with those of what is inside.
PLOT: Final = """
const plot = document.querySelector('figure svg.phone'), box = plot.getBoundingClientRect();
const inside = [...plot.querySelectorAll('circle, text')].filter(one => one.getClientRects().length);
const places = inside.map(one => one.getBoundingClientRect());
const least = Math.min(...places.map(one => one.left)), most = Math.max(...places.map(one => one.right));
const scale = plot.getScreenCTM().a * parseFloat(getComputedStyle(plot.querySelector('text')).fontSize);
return [scale, least - box.left, box.right - most, innerWidth - box.right, box.left];
"""


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [360, PHONE[0]])
def test_on_a_phone_the_plot_of_the_ledger_is_seen_without_scrolling(full: str, width: int, language: str) -> None:
    with browser(width=500, height=900) as page:
        page.on_phone(width, PHONE[1])
        page.open(full)
        page.click(f"label:has(#{language})")
        assert page.run(HIDDEN.format("figure:has(.phone) svg:not(.phone)"))
        letters_px, *margins_px = page.run(PLOT)
        assert letters_px >= 11
        assert min(margins_px) >= 0


def test_on_a_phone_tables_scroll_and_keep_their_first_column(full: str) -> None:
    with browser(width=500, height=900) as page:
        page.on_phone(*PHONE)
        page.open(full)
        assert page.run("return innerWidth") == PHONE[0]
        assert page.run(OVERFLOW) <= 0
        assert page.run(LETTERS) >= LEAST_LETTER_PX
        rows = "[...document.querySelectorAll('h2 ~ .wide')][0].querySelectorAll('tr')"
        assert page.run(f"return Math.max(...[...{rows}].map(row => row.clientHeight))") < PHONE[1] / 8
        box = "document.querySelector('h2 ~ .wide')"
        assert page.run(f"{box}.scrollLeft = 9999; return {box}.scrollLeft") > 100
        assert page.run(f"return {box}.querySelector('td').getBoundingClientRect().left") >= 0
