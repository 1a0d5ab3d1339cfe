"""The document of a build, for tests to change, and what a reader sees of a page: its words, cards and figures."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from edgepack.artifacts import LedgerRow
from edgepack.report import gates, html, junit, markdown, model
from edgepack.report.document import make
from edgepack.results import Build

CODE = {"code", "pre", "style"}
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Collects what a browser would act on, and checks that tags close in order.

    `words` are those that a reader of `language` sees, "en" or "zh"; `texts` are its parts that are no code.
    """

    def __init__(self, text: str, language: str = "en") -> None:
        super().__init__()
        self.hidden = {"en": "zh", "zh": "en"}[language]
        self.hiding: list[bool] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.hiding.append(dict(attrs).get("class") == self.hidden)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.hiding.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if not any(self.hiding):
            self.words += data + " "
            if not CODE.intersection(self.open):
                self.texts.append(data)

    def values(self, attribute: str) -> list[str]:
        return [str(attributes[attribute]) for _, attributes in self.tags if attribute in attributes]


def document(build: Build) -> dict[str, Any]:
    """`report.json` of a build."""
    found: dict[str, Any] = json.loads(model.dumps(make(build)))
    return found


def many(report: dict[str, Any], count: int, label: str = "label") -> dict[str, Any]:
    """The report of one target with `count` labels, examples of each kind, and warnings about the data."""
    names = [f"{label}{number}" for number in range(count)]
    (target,) = report["targets"]
    classes, examples = target["receipt"]["classes"], target["examples"]
    classes |= {
        "classes": count,
        "scores": [{**classes["scores"][0], "label": name} for name in names],
        "confusion": {name: {name: 2, names[0]: 1} for name in names},
    }
    for kind in ("changed", "wrong"):
        row = {**examples[kind][0], "truth": names[0], "answer": names[-1]}
        examples[kind] = [{**row, "text": f"{kind}{number}"} for number in range(count)]
    report["data"]["splits"]["train"]["labels"] = dict.fromkeys(names, 7)
    report["data"]["warnings"] = [f"warning{number}" for number in range(count)]
    return report


def render(report: dict[str, Any]) -> str:
    """The page of a document."""
    return html.render(model.parse(report))


def junit_of(report: dict[str, Any]) -> str:
    """The JUnit XML of a document."""
    return junit.render(gates.of_build(model.parse(report)))


def markdown_of(report: dict[str, Any]) -> str:
    """The Markdown of a document."""
    return markdown.render_build(model.parse(report))


def words_of(report: dict[str, Any], language: str = "en") -> str:
    """The words of the whole page, with one space between two."""
    return " ".join(Page(render(report), language).words.split())


def cards_of(report: dict[str, Any], language: str = "en") -> str:
    """The words between the heading of the verdicts and that of the ledger."""
    words = words_of(report, language)
    begin, end = {"en": ("Verdict", "Ledger"), "zh": ("结论", "账本")}[language]
    return words[words.index(f"{begin} ") : words.index(f"{end} ")]


def figure_of(report: dict[str, Any], label: str, language: str = "en") -> str:
    """The words of the one figure whose name begins so; empty where there is none."""
    found = [part for part in render(report).split("<figure ")[1:] if f'<span class="en">{label}' in part]
    assert len(found) < 2
    drawn = "".join(f"<p>{part[part.index('</figcaption>') + 13 : part.index('</figure>')]}</p>" for part in found)
    return " ".join(Page(drawn, language).words.split())


def with_last_row(built: Any, row: LedgerRow) -> Any:
    """The build with another row for what its one target measured."""
    (item,) = built.target_results
    return replace(built, target_results=(replace(item, gate=replace(item.gate, ledger=row)),))
