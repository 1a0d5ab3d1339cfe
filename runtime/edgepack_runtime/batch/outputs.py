"""Output formats of file predictions: one line per input row.

.jsonl and .txt get one JSON object per line, as on stdout. .csv and .tsv get a header, the columns `text` (and
`text_pair`), one column for each key, and one `score_<label>` for each label instead of `scores`. Other values than
texts and numbers are written as JSON.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any, List, Mapping, Sequence, Tuple

from edgepack_runtime.bundle.model_config import TOKENS, ModelConfig
from edgepack_runtime.errors import UsageError
from edgepack_runtime.util.texts import Item

_TABLES = (".tsv", ".csv")


def answer_keys(config: ModelConfig, *, with_scores: bool) -> Tuple[str, ...]:
    """The keys of every answer of a model, in their order."""
    if config.task == TOKENS:
        return ("spans",)
    if config.multi_label:
        return "labels", "scores"
    return ("label", "score", "scores") if with_scores else ("label", "score")


class Form:
    """Writer of one output format.

    Args:
        suffix: format of the file.
        keys: keys of the answers.
        score_labels: labels with a column in a table; empty without scores.
        pairs: whether items are pairs.
    """

    def __init__(self, suffix: str, keys: Sequence[str], score_labels: Sequence[str], *, pairs: bool) -> None:
        self._table = suffix in _TABLES
        self._labels = tuple(score_labels) if self._table else ()
        self._all_keys = tuple(keys)
        self._keys = [key for key in keys if key != "scores" or not self._labels]
        self._texts = ("text", "text_pair")[: 1 + pairs]
        self._buffer = io.StringIO()
        options: Any = {"lineterminator": "\n"}
        if suffix == ".tsv":
            options.update(delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None)
        self._rows = csv.writer(self._buffer, **options)

    def header(self) -> str:
        """The header line of a table; empty for JSON lines."""
        if not self._table:
            return ""
        return self._line([*self._texts, *self._keys, *(f"score_{label}" for label in self._labels)])

    def answer(self, item: Item, found: Mapping[str, Any]) -> str:
        """The line of an answered item.

        Raises:
            UsageError: a .tsv, which has no quoting, cannot hold the text.
        """
        if not self._table:
            return json.dumps(found, ensure_ascii=False) + "\n"
        fields = [item] if isinstance(item, str) else list(item)
        scores = [found["scores"][label] for label in self._labels]
        try:
            return self._line([*fields, *(_cell(found[key]) for key in self._keys), *scores])
        except csv.Error as error:
            raise UsageError(
                f"a .tsv file cannot hold the text {fields[0][:40]!r}",
                why=str(error),
                fix="write a .csv or .jsonl file",
            ) from error

    def missing(self) -> str:
        """The line of a row without an answer, with null keys or empty cells, so that line numbers match the input."""
        if not self._table:
            return json.dumps(dict.fromkeys(self._all_keys), ensure_ascii=False) + "\n"
        return self._line([""] * (len(self._texts) + len(self._keys) + len(self._labels)))

    def _line(self, cells: List[Any]) -> str:
        self._buffer.seek(0)
        self._buffer.truncate()
        self._rows.writerow(cells)
        return self._buffer.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value
