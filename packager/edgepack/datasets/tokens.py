"""Tokens and their tags, as token classification is often written down: joined into a text, and as CoNLL files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from edgepack.datasets.lines import UnreadableError, old_line_ends
from edgepack.datasets.log import FindingLog
from edgepack.recipe.findings import Finding
from edgepack.wording import counted
from edgepack_runtime.spans import split_tag

_DOCUMENT: Final = "-DOCSTART-"  # the token of a line that only says where a document begins

Sentence = tuple[int, list[str], list[str]]  # line from 1 of the first token, tokens, tags


def join(tokens: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of `tokens`, and the characters (start, end exclusive) of each in it.

    There is a space between two that end and begin with an ASCII letter or digit, as words of Latin script do, and
    nothing between any others.
    """
    text, offsets = "", []
    for token in tokens:
        text += " " if text and _is_latin(text[-1]) and _is_latin(token[0]) else ""
        offsets.append((len(text), len(text) + len(token)))
        text += token
    return text, offsets


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalnum()


def tag_problem(tag: str) -> tuple[str, str] | None:
    """Reason and fix of a tag that is none of BIO or BIOES; None where it is one."""
    try:
        split_tag(tag)
    except ValueError:
        reason = f"`{tag[:40]}` is no tag of BIO or BIOES"
        return reason, "write `O`, `B-x`, `I-x`, and for BIOES `E-x`, `S-x`; what BMES calls `M-x` is `I-x`"
    return None


def sentences(lines: Iterable[str], log: FindingLog) -> Iterator[Sentence]:
    """Tokens and tags of a CoNLL file: a token and its tag on each line, a blank line between two sentences.

    They are the first and the last field of a line, between tabs or else between spaces. A sentence with an error is
    left out.

    Raises:
        UnreadableError: the lines of the file end in a way that hides where they do.
    """
    start, tokens, tags = 0, list[str](), list[str]()
    complete, known = True, set[str]()
    for number, line in enumerate(lines, start=1):
        if number == 1 and (instead := old_line_ends(line)) is not None:
            raise UnreadableError(Finding("error", log.file, None, *instead))
        if not line.strip():
            if tokens and complete:
                yield start, tokens, tags
            tokens, tags, complete = [], [], True
            continue
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        token, tag = fields[0], fields[-1].strip()
        if token == _DOCUMENT:
            continue
        if len(fields) < 2 or not token.strip() or not tag:
            complete = False
            reason = f"this line has {counted(len(line.split()), 'field')}, and a token and its tag are wanted"
            fix = "write a token, a tab and its tag (`O` where it is in no span), or remove the line"
            log.add("lines without a token or a tag", "error", number, reason, fix)
            continue
        if tag not in known:
            if (problem := tag_problem(tag)) is not None:
                complete = False
                log.add("unknown tags", "error", number, *problem)
                continue
            known.add(tag)
        start = start if tokens else number
        tokens.append(token)
        tags.append(tag)
    if tokens and complete:
        yield start, tokens, tags
