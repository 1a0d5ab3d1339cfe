"""Where the weights and texts of one model lie, for every environment: the standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SOURCE_FILE: Final = "source.json"


@dataclass(frozen=True)
class Source:
    """One trained model in the forms that the backends start from. All texts are single ones."""

    name: str
    folder: Path  # holds all that is made of this model
    trained: bool  # False: random weights, whose answers mean nothing
    labels: tuple[str, ...]
    max_length: int  # tokens, the special ones included
    layers: int
    hidden: int
    heads: int
    huggingface: Path  # a BERT as transformers saves it, with its tokenizer
    static: Path  # Paddle's static graph, with vocab.txt: `model.json` and `model.pdiparams`
    paddlenlp: Path  # as PaddleNLP saves it
    onnx_float: Path  # folders as the runtime loads them
    onnx_int8: Path
    train: Path  # TSV with a header: texts to calibrate with, and those that are scored
    test: Path
    calibration_rows: int

    def calibration(self) -> list[str]:
        """Training texts to find ranges with, as many as this project calibrates with."""
        texts = [text for text, _ in read(self.train)]
        return texts[:: max(len(texts) // self.calibration_rows, 1)][: self.calibration_rows]


def save(source: Source) -> None:
    """Write it into its folder; `load` reads it."""
    text = json.dumps(asdict(source), default=str, ensure_ascii=False, indent=1)
    (source.folder / SOURCE_FILE).write_text(text + "\n", encoding="utf-8")


def load(folder: Path) -> Source:
    """What `save` wrote."""
    fields = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))
    for name in (
        "folder",
        "huggingface",
        "static",
        "paddlenlp",
        "onnx_float",
        "onnx_int8",
        "train",
        "test",
    ):
        fields[name] = Path(fields[name])
    return Source(**{**fields, "labels": tuple(fields["labels"])})


def read(table: Path) -> list[tuple[str, str]]:
    """Text and label of each row of a TSV with a header that names both."""
    header, *rows = (line.split("\t") for line in table.read_text(encoding="utf-8").splitlines())
    text, label = header.index("text"), header.index("label")
    return [(row[text], row[label]) for row in rows]


def of_length(texts: list[str], characters: int, count: int) -> list[str]:
    """`count` texts of exactly so many characters: the beginnings of texts that are long enough.

    Raises:
        ValueError: there are not as many.
    """
    found = [text[:characters] for text in texts if len(text) >= characters][:count]
    if len(found) < count:
        raise ValueError(f"only {len(found)} of {len(texts)} texts have {characters} characters; {count} are needed")
    return found
