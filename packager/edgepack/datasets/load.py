"""All three splits of a recipe's data, from files or from a built-in generator, with everything found wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgepack.artifacts import Row
from edgepack.datasets import reviews_zh
from edgepack.datasets.check import check_splits
from edgepack.datasets.tables import read_table
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding, errors
from edgepack.recipe.model import BUILTIN_PREFIX, Data, is_builtin

Labelled = Literal["train", "dev", "test"]
_GENERATORS = {"reviews-zh": reviews_zh.generate}


@dataclass(frozen=True)
class Splits:
    """Labelled rows by split, in file order, and the warnings about them."""

    rows: dict[Labelled, list[Row]]
    warnings: tuple[Finding, ...]


def load_splits(section: Data) -> Splits:
    """Read or generate train, dev and test.

    Raises:
        RecipeInvalidError: with every finding, when one of them stops a build.
    """
    if is_builtin(section.train):
        made = _GENERATORS[section.train.removeprefix(BUILTIN_PREFIX)](section.seed)
        return Splits({"train": made["train"], "dev": made["dev"], "test": made["test"]}, ())
    assert section.dev is not None and section.test is not None, "load_recipe requires all three"
    train, dev, test = (read_table(Path(file), section.columns) for file in (section.train, section.dev, section.test))
    findings = [finding for table in (train, dev, test) for finding in table.findings]
    findings += check_splits(train, dev, test)
    if stopping := errors(findings):
        count = f"{len(stopping)} error{'s' if len(stopping) > 1 else ''}"
        raise RecipeInvalidError(f"the data cannot be used: {count}", findings=findings)
    return Splits({"train": list(train.rows), "dev": list(dev.rows), "test": list(test.rows)}, tuple(findings))
