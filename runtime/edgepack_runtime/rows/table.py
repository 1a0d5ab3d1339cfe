"""A table: its first row, the places of its columns, and the rows below, each as its fields or an error."""

from __future__ import annotations

from typing import Iterator, List

from edgepack_runtime.messages import joined, message
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Cells, Rows

MOST_COLUMNS = 1024  # an output repeats them, in broken rows as well, and a header must not fill the disk
NO_CONTENT = "empty rows"
WRONG_WIDTH = "rows with a wrong number of fields"


class Table:
    """A table in the rows of a file. What is above its first row with content is skipped.

    Args:
        head: what the first row is, for messages.

    Raises:
        RowError: there is no such row, it cannot be read, or it is not one of a table that can be read.
    """

    def __init__(self, rows: Rows, head: str = message("rows.header")) -> None:
        self.file, self._head, self._cells = rows, head, rows.cells()
        filled = (row for row in self._cells if isinstance(row[1], RowError) or any(map(str.strip, row[1])))
        line, first = next(filled, (1, RowError(None, message("rows.empty"), message("rows.give_rows"))))
        if isinstance(first, RowError):
            raise first
        if len(first) > MOST_COLUMNS:
            what = message("rows.columns", n=len(first), most=MOST_COLUMNS)
            raise RowError(None, what, message("rows.fewer_columns"))
        self.line, self.first = line, first  # the line, from 1, on which the row begins, and its fields

    def places(self, name: str) -> List[int]:
        """Positions, from 0, of the columns of that name: one, unless it is missing or occurs several times.

        White space around names does not count, unless two names differ in nothing else.
        """
        exact = [place for place, one in enumerate(self.first) if one == name]
        return exact or [place for place, one in enumerate(self.first) if one.strip() == name.strip()]

    def below(self) -> Iterator[Cells]:
        """The rows below the first, with as many fields, or an error that has the fields if these are known.

        Blank lines are counted in `Rows.blank`. A program may write the row of a .csv whose only cell is empty as `""`.
        """
        quoted, width = self.file.format.quoted, len(self.first)
        fewest = 1 if width == 1 and quoted else 2  # fields of a row without content
        for line, fields in self._cells:
            if isinstance(fields, RowError):
                yield line, fields
            elif not any(map(str.strip, fields)):
                self.file.blank += len(fields) < fewest
                if len(fields) >= fewest:
                    what = message("rows.separators" if len(fields) > 1 else "rows.empty_field")
                    yield (
                        line,
                        RowError(line, what, message("rows.remove"), kind=NO_CONTENT, fatal=False, fields=fields),
                    )
            elif len(fields) == width:
                yield line, fields
            else:
                what = message("rows.fields", n=len(fields), head=self._head, width=width)
                fix: str = message("rows.add_fields" if len(fields) < width else "rows.no_separator")
                if not quoted and any('"' in field for field in fields):
                    fix = joined(fix, message("rows.quoted"))
                yield line, RowError(line, what, fix, kind=WRONG_WIDTH, fatal=False, fields=fields)
