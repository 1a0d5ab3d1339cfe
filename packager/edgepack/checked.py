"""What the content checks found of each bundle, as a table and lines; `console.Console` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from edgepack.report import NOTHING
from edgepack.tables import table
from edgepack.wording import safe

if TYPE_CHECKING:
    from edgepack.artifacts import BundleArtifact
    from edgepack.content import Check


def checks(bundles: Sequence[BundleArtifact], *, live: bool) -> Iterator[Table | Text]:
    """A row for each bundle, a column for each check; below them GPUs, which take more room, and what is to be told."""
    columns = list(dict.fromkeys(check.check for one in bundles for check in one.checks.passed if not check.package))
    if not columns:
        return
    made = table(live, "checked for", *columns)
    for one in bundles:
        found = {check.check: _cell(check) for check in one.checks.passed}
        made.add_row(safe(one.target), *(safe(found.get(column, NOTHING)) for column in columns))
    yield made
    yield Text("found, and what the target allows; where it does not say, the device compares", style="dim")
    for one in bundles:
        for check in one.checks.passed:
            if check.package:
                yield Text(safe(f"{one.target}: {check.package}: {check.found}; {check.allowed}"))
        for line in one.checks.told:
            yield Text(safe(f"{one.target}: {line}"))


def _cell(check: Check) -> str:
    return f"{check.found} {check.allowed}".rstrip()
