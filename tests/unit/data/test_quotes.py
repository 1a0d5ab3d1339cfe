"""Fields in quotes that swallow rows."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from edgepack.data import quotes
from edgepack.data.quotes import Quotes
from edgepack.data.tables import read_rows
from edgepack.recipe.finding_log import MAX_LISTED, FindingLog
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import Columns

ROWS = [f"第{n}位客人说房间很{'大' if n % 3 else '小'},{'正面' if n % 3 else '负面'}" for n in range(400)]
SWAPPED = [f"{row.split(',')[1]},{row.split(',')[0]}" for row in ROWS]
ENGLISH = "Dear all, we liked it.\nThe room was big, the bed too.\nThe food, well.\nBut yes, we will come again."


def read(folder: Path, lines: list[str], name: str = "a.csv", header: str = "text,label") -> tuple[int, list[Finding]]:
    file = folder / name
    file.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    log = FindingLog(file)
    return len(list(read_rows(file, Columns(), log))), list(log.findings())


def quoted(rows: list[str], first: int, last: int, column: int = 0) -> list[str]:
    """`rows` (from 1, the header is line 1) with a quote at the start of a text and one at the end of a later."""
    rows = list(rows)
    for line, before in ((first, True), (last, False)):
        fields = rows[line - 2].split(",")
        fields[column] = f'"{fields[column]}' if before else f'{fields[column]}"'
        rows[line - 2] = ",".join(fields)
    return rows


@pytest.mark.parametrize(("first", "last"), [(100, 300), (2, 300), (2, 9), (40, 43), (100, 102), (200, 401)])
@pytest.mark.parametrize(("rows", "header", "column"), [(ROWS, "text,label", 0), (SWAPPED, "label,text", 1)])
def test_rows_inside_of_quotes_are_found(
    tmp_path: Path, rows: list[str], header: str, column: int, first: int, last: int
) -> None:
    count, (finding,) = read(tmp_path, quoted(rows, first, last, column), header=header)
    assert (finding.severity, finding.line, count) == ("error", first, first - 2)
    assert finding.reason == (
        f"a quote opens a field of {last - first + 1} lines, up to line {last}: they look like rows"
    )


@pytest.mark.parametrize(("rows", "header", "column"), [(ROWS, "text,label", 0), (SWAPPED, "label,text", 1)])
@pytest.mark.parametrize("pairs", [2, 3, 9])
def test_quotes_around_single_rows_have_warnings_when_they_are_several(
    tmp_path: Path, rows: list[str], header: str, column: int, pairs: int
) -> None:
    lines = [100 + 10 * pair for pair in range(pairs)]
    for line in lines:
        rows = quoted(rows, line, line + 1, column)
    count, found = read(tmp_path, rows, header=header)
    assert count == len(rows) - pairs
    if pairs < 3:
        assert found == []
        return
    [warning] = found
    assert warning.line == lines[0] and "one of them reads like a whole row" in warning.reason
    shown = lines[1 : MAX_LISTED["warning"]]
    more = ", ..." if pairs > MAX_LISTED["warning"] else ""
    assert warning.reason.endswith(f"; {pairs - 1} more like it: lines {', '.join(map(str, shown))}{more}")


def test_other_columns_and_line_ends_hide_nothing(tmp_path: Path) -> None:
    rows = [f"{n},{row},web\r" for n, row in enumerate(ROWS)]
    _, (finding,) = read(tmp_path, quoted(rows, 100, 150, column=1), header="id,text,label,source\r")
    assert (finding.severity, finding.line) == ("error", 100)


def test_a_text_of_several_lines_is_one_text(tmp_path: Path) -> None:
    rows = [*ROWS[:50], *(f'"{ENGLISH}",正面' for _ in range(5)), *ROWS[50:]]
    assert read(tmp_path, rows) == (405, [])
    assert read(tmp_path, [f'"{ENGLISH}",正面', *ROWS]) == (401, [])
    assert read(tmp_path, ['"\n",正面', '"\n\n，",负面'])[0] == 1
    assert read(tmp_path, [*ROWS, '"{}",正面'.format("\n".join("段" * 20))]) == (401, [])  # of 21 lines: a warning
    assert read(tmp_path, [*ROWS, '"结论,正面\n就是这样",正面']) == (401, [])


@pytest.mark.parametrize("count", [3, 10, 300])
def test_texts_of_one_form_are_texts(tmp_path: Path, count: int) -> None:
    """Every line has one comma, as every row has, and lines come again from text to text."""
    form = "Dear all, we liked it {}.\nThe room was big, fine.\nThe food, good.\nYes, again."
    rows = [f'"{form.format(n)}",{"正面" if n % 2 else "负面"}' for n in range(count)]
    assert read(tmp_path, rows) == (count, [])


class Uncopied(list[str]):
    """Fields of which no part is copied: for each of many, that would take the square of their number."""

    def __getitem__(self, index: object) -> str:  # type: ignore[override]
        raise AssertionError("copied")


def test_a_row_of_many_fields_is_looked_at_once(tmp_path: Path) -> None:
    quotes = Quotes(",", FindingLog(tmp_path / "a.csv"))
    quotes.remember(["text", "label"])
    assert not quotes.hold(2, 40, Uncopied(["b,c\nd", "正面\n" * 5, "x"] * 10))


def test_labels_of_few_rows_are_counted_once_for_a_row_of_many_fields(tmp_path: Path) -> None:
    columns = [f"c{number}" for number in range(40)]
    row = ",".join(f'"{"," * (39 - number)}\nx"' for number in range(40))
    with mock.patch.object(quotes, "_recurring", wraps=quotes._recurring) as counted:
        read(tmp_path, [",".join(columns), row], header=",".join(("text", "label", *columns[2:])))
    assert counted.call_count < 3
