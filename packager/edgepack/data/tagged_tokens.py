"""Files with a token and its tag on each line, as CoNLL's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from edgepack.data.files import filled_lines
from edgepack.recipe.finding_log import FindingLog
from edgepack.tasks.tags import TagReader, is_tag
from edgepack.util.text import counted
from edgepack.util.text_digests import shortened
from edgepack_runtime.rows.lines import MAX_LINE_BYTES
from edgepack_runtime.rows.reader import Rows
from edgepack_runtime.util.spans import OUTSIDE

_DOCUMENT: Final = "-DOCSTART-"  # token of a line that starts a document

_SAMPLE_LINES: Final = 200
_SAMPLE_CHARACTERS: Final = 1 << 20
# Of the third column of CoNLL-2003.
_CHUNKS: Final = frozenset(("NP", "VP", "PP", "ADVP", "ADJP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP"))
_FEWEST_NUMBERED: Final = 3  # fields of a line with a number, and tokens of a sentence whose numbers are no chance

Sentence = tuple[int, list[str], list[str]]  # line from 1 of the first token, tokens, tags


def sentences(rows: Rows, log: FindingLog) -> Iterator[Sentence]:
    """Read tokens and tags of a CoNLL file: a token and its tag on each line, a blank line between two sentences.

    They are the first and the last field of a line, separated by tabs or else by spaces. Where the first field numbers
    the tokens of each sentence, as in CoNLL-U, the token is the second, and lines that begin with # are comments. A
    sentence with an error is dropped.

    Raises:
        RowError: the rest of the file cannot be read.
    """
    start, tokens, tags = 0, list[str](), list[str]()
    complete, size = True, 0
    reader, known = TagReader(), dict[str, str]()  # tag of the file -> of BIO or BIOES
    lines = filled_lines(rows)
    sample = _sample(lines)
    shown = [_fields(line) for _, line in sample]
    is_numbered = _are_numbered(shown)
    _warn_of_other_tags(sample, shown, log)
    for number, line in chain(sample, lines):
        if not line.strip():
            if tokens and complete:
                yield start, tokens, tags
            tokens, tags, complete = [], [], True
            continue
        fields = _fields(line)
        token, tag = fields[0], fields[-1].strip()
        if token == _DOCUMENT or (is_numbered and token.startswith("#")):
            continue
        if is_numbered:
            token = fields[1] if len(fields) >= _FEWEST_NUMBERED else ""
        if len(fields) < 2 or not token.strip() or not tag:
            complete = False
            has = "white space as its token" if token and not token.strip() else counted(len(line.split()), "field")
            reason = f"this line has {has}, and a token and its tag are wanted"
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


def _fields(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t") if "\t" in line else line.split()


def _sample(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first lines, which are taken from `lines`."""
    found, size = list[tuple[int, str]](), 0
    for number, line in lines:
        found.append((number, line))
        size += len(line)
        if len(found) == _SAMPLE_LINES or size > _SAMPLE_CHARACTERS:
            break
    return found


def _are_numbered(lines: Sequence[list[str]]) -> bool:
    """Whether the first fields of lines count the tokens of each sentence, from 0 or 1."""
    longest = expected = first = 0
    for fields in lines:
        if not fields or not any(map(str.strip, fields)):
            expected = 0
        elif not fields[0].startswith("#"):
            if not expected and fields[0] in ("0", "1"):
                expected = first = int(fields[0])
            if len(fields) < _FEWEST_NUMBERED or fields[0] != str(expected):
                return False
            expected += 1
            longest = max(longest, expected - first)
    return longest >= _FEWEST_NUMBERED


def _warn_of_other_tags(sample: Sequence[tuple[int, str]], lines: Sequence[list[str]], log: FindingLog) -> None:
    """Warn of a column of tags before the last one, such as the outer spans of GermEval."""
    others = [
        (number, fields[-2], fields[-1])
        for (number, _), fields in zip(sample, lines, strict=True)
        if len(fields) >= _FEWEST_NUMBERED and is_tag(fields[-1])
    ]
    number, other, tag = next((one for one in others if one[1] != OUTSIDE), (0, "", ""))
    if other and all(is_tag(one[1]) for one in others) and other[2:] not in _CHUNKS:
        reason = f"two columns of tags: `{shortened(tag)}` in the last is read, `{shortened(other)}` before it is not"
        log.add("other tags", "warning", number, reason, "remove the last column if the other one has the tags")
