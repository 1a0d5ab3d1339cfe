"""Tables: the first row, columns by name, and which rows below have content."""

from __future__ import annotations

import io

import pytest

from edgepack_runtime.rows.formats import BY_SUFFIX
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Rows
from edgepack_runtime.rows.table import MOST_COLUMNS, NO_CONTENT, WRONG_WIDTH, Table


def opened(suffix: str, content: str) -> Table:
    return Table(Rows(io.BufferedReader(io.BytesIO(content.encode())), f"a{suffix}", BY_SUFFIX[suffix]))


@pytest.mark.parametrize(
    ("suffix", "content", "expected", "blank"),
    [
        (
            ".tsv",
            '\n\t\nid\ttext\n1\ta\n\n \n\t\n\t \t\n2\n"3\tb\tc\n',
            [4, NO_CONTENT, NO_CONTENT, *2 * [WRONG_WIDTH]],
            2,
        ),
        (".csv", ',\nid,text\n1,a\n\n \n""\n,\n,,\n2\n', [3, NO_CONTENT, NO_CONTENT, WRONG_WIDTH], 3),
        (".csv", 'text\na\n\n""\n \n,\nb,\n', [2, *3 * [NO_CONTENT], WRONG_WIDTH], 1),
        (".tsv", "text\na\n\n \n\t\n", [2, NO_CONTENT], 2),
    ],
)
def test_a_row_has_the_fields_of_the_first_or_an_error(
    suffix: str, content: str, expected: list[object], blank: int
) -> None:
    table = opened(suffix, content)
    found = list(table.below())
    assert [row.kind if isinstance(row, RowError) else line for line, row in found] == expected
    assert all(not row.fatal and row.fields and row.line == line for line, row in found if isinstance(row, RowError))
    assert table.file.blank == blank


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is empty"),
        ("\n,\n \n", "is empty"),
        ('a"b,c\n"', "not a row"),
        ("a" + ",b" * MOST_COLUMNS, "1025 columns"),
    ],
)
def test_what_is_no_table_is_refused(content: str, what: str) -> None:
    with pytest.raises(RowError) as refused:
        opened(".csv", content if what != "not a row" else f'"{content}')
    assert what in refused.value.what


@pytest.mark.parametrize(
    ("header", "name", "places"),
    [
        (["id", "text", "label"], "label", [2]),
        (["id", " text "], "text", [1]),
        (["id", " text "], " text ", [1]),
        (["text", "text "], "text", [0]),
        (["text", "text"], "text", [0, 1]),
        ([" text", "text "], "text", [0, 1]),
        (["id"], "text", []),
    ],
)
def test_columns_are_found_by_their_names(header: list[str], name: str, places: list[int]) -> None:
    assert opened(".tsv", "\t".join(header)).places(name) == places
