"""Files with a token and its tag on each line, as CoNLL's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgepack.data.files import filled_lines
from edgepack.recipe.finding_log import FindingLog
from edgepack.tasks.tags import TagReader
from edgepack.util.text import counted
from edgepack_runtime.rows.lines import MAX_LINE_BYTES
from edgepack_runtime.rows.reader import Rows

_DOCUMENT: Final = "-DOCSTART-"  # token of a line that starts a document

Sentence = tuple[int, list[str], list[str]]  # line from 1 of the first token, tokens, tags


def sentences(rows: Rows, log: FindingLog) -> Iterator[Sentence]:
    """Read tokens and tags of a CoNLL file: a token and its tag on each line, a blank line between two sentences.

    They are the first and the last field of a line, separated by tabs or else by spaces. A sentence with an error is
    dropped.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    start, tokens, tags = 0, list[str](), list[str]()
    complete, size = True, 0
    reader, known = TagReader(), dict[str, str]()  # tag of the file -> of BIO or BIOES
    for number, line in filled_lines(rows):
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
            read, problem = reader.read(tag)
            if problem is not None:
                complete = False
                log.add("unknown tags", "error", number, *problem)
                continue
            known[tag] = read
        size = size + len(line) if tokens else len(line)
        if size > MAX_LINE_BYTES:
            reason = f"the sentence that begins here goes on for more than {MAX_LINE_BYTES >> 20} MiB"
            log.end("sentences without an end", start, reason, "write a blank line between two sentences")
            return
        start = start if tokens else number
        tokens.append(token)
        tags.append(known[tag])
    if tokens and complete:
        yield start, tokens, tags
