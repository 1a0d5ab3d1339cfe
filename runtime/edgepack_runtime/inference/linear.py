"""A linear model on the characters of a text or a pair: `linear.json`, in plain Python, some tens of microseconds.

Its features are the characters and the pairs of neighbouring characters of a text, each counted once and weighted by
its rarity in the training texts (idf, Sparck Jones 1972; counted once as in Wang and Manning 2012), the whole of
length 1. Those of two texts are the ones that both have, the ones that one of them has, and how much they overlap.
With W[g][k] the weight of feature g for output k, quantized to 8 bits with one scale per output, an output is

    scale[k] * sum of W[g][k] / sqrt(sum of idf[g]^2) + bias[k]        over the known features g

A feature has one integer with three bytes for each output and for idf^2. One sum of Python's own adds all of them.
"""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.util.fs import read_regular
from edgepack_runtime.util.texts import Item

MOST_CHARACTERS = 16_384  # of a text; the sums of as many pairs and characters fit three bytes
_WIDTH = 3  # bytes of a sum
_BOTH, _ONE = "=", "~"  # before the n-grams of a pair
_OFFSET = 128  # weights are stored as unsigned bytes
_FULL_WIDTH = range(0xFF01, 0xFF5F)  # forms of the printable ASCII characters
# Fixed here, because `str.lower` depends on the Unicode version of the interpreter.
_NORMAL = {
    **{ord(space): " " for space in "\t\n\v\f\r\u00a0\u3000"},
    **{wide: chr(wide - 0xFEE0).lower() for wide in _FULL_WIDTH},
    **{ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
}


def ngrams(text: str) -> Set[str]:
    """The characters and the pairs of neighbouring characters of `text`, in one case and width."""
    text = text[:MOST_CHARACTERS].translate(_NORMAL)
    found = set(map(str.__add__, text, text[1:]))
    found.update(text)
    return found


def features(item: Item) -> Set[str]:
    """The n-grams of a text. Of a pair, `=` before those of both and `~` before those of one; and `_overlaps`."""
    if isinstance(item, str):
        return ngrams(item)
    first, second = map(ngrams, item)
    return {
        *map(_BOTH.__add__, first & second),
        *map(_ONE.__add__, first ^ second),
        *_overlaps(first, second),
    }


def _overlaps(first: Set[str], second: Set[str]) -> Iterator[str]:
    """Names of tenths, such as `j2:7`: of the Jaccard and overlap coefficients of characters (1) and pairs (2)."""
    for length in (1, 2):
        ours, theirs = ({gram for gram in grams if len(gram) == length} for grams in (first, second))
        both = len(ours & theirs)
        yield f"j{length}:{_tenths(both, len(ours | theirs))}"
        yield f"o{length}:{_tenths(both, min(len(ours), len(theirs)))}"


def _tenths(part: int, whole: int) -> int:
    """`part` / `whole` in tenths, rounded; in whole numbers, so that all processors agree."""
    return (20 * part + whole) // (2 * whole) if whole else 0


class LinearModel:
    """A linear model from the content of `linear.json`, one output for each label; safe to share between threads.

    Raises:
        ValueError, KeyError, TypeError: `document` is no such content.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._scale = [float(value) for value in document["scale"]]
        self._bias = [float(value) for value in document["bias"]]
        self._idf_scale = float(document["idf_scale"])
        grams: List[str] = document["ngrams"]
        stored = base64.b64decode(document["weights"], validate=True)
        fields = len(self._scale) + 1
        if not grams or len(self._bias) != fields - 1 or len(stored) != len(grams) * fields:
            raise ValueError(f"{len(grams)} n-grams and {fields - 1} labels have {len(stored)} bytes of weights")
        if not all(map(math.isfinite, (*self._scale, *self._bias, self._idf_scale))) or self._idf_scale <= 0:
            raise ValueError("its scales are not numbers")
        self._row_bytes = fields * _WIDTH
        spread = bytearray(len(stored) * _WIDTH)
        spread[::_WIDTH] = stored
        starts = range(0, len(spread), self._row_bytes)
        rows = (int.from_bytes(spread[start : start + self._row_bytes], "little") for start in starts)
        self._rows: Dict[str, int] = dict(zip(grams, rows))
        if len(self._rows) != len(grams):
            raise ValueError("duplicate n-gram")

    @classmethod
    def load(cls, file: Path) -> LinearModel:
        """The model of a `linear.json`.

        Raises:
            BundleInvalidError: the file is missing or invalid.
        """
        try:
            return cls(json.loads(read_regular(file).decode("utf-8")))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise BundleInvalidError(
                f"{file.name} cannot be used", why=f"{type(error).__name__}: {error}", fix="build the bundle again"
            ) from error

    @property
    def outputs(self) -> int:
        """Number of logits of a text."""
        return len(self._bias)

    def logits(self, item: Item) -> List[float]:
        """One number for each output: log-odds of a label, or the number itself. Unknown characters get the bias."""
        known = list(
            filter(self._rows.__contains__, features(item))
        )  # `keys() & set` copies all keys before Python 3.9
        if not known:
            return list(self._bias)
        total = sum(map(self._rows.__getitem__, known)).to_bytes(self._row_bytes, "little")
        sums = [int.from_bytes(total[start : start + _WIDTH], "little") for start in range(0, len(total), _WIDTH)]
        length = math.sqrt(max(sums.pop(), 1) * self._idf_scale)
        zero = _OFFSET * len(known)
        return [scale * (found - zero) / length + bias for scale, found, bias in zip(self._scale, sums, self._bias)]


def document(
    grams: Sequence[str], weights: Sequence[Sequence[float]], idf: Sequence[float], bias: Sequence[float]
) -> Dict[str, Any]:
    """The content of `linear.json`.

    Args:
        grams: the n-grams.
        weights: of each n-gram one number per output, idf included.
        idf: of each n-gram.
        bias: one number per output.
    """
    outputs = range(len(bias))
    scale = [max(max(abs(row[k]) for row in weights), 1e-12) / 127 for k in outputs]
    idf_scale = max(rarity * rarity for rarity in idf) / 255
    stored = bytearray()
    for row, rarity in zip(weights, idf):
        stored += bytes(_OFFSET + round(row[k] / scale[k]) for k in outputs)
        stored.append(max(1, round(rarity * rarity / idf_scale)))
    return {
        "scale": scale,
        "bias": list(bias),
        "idf_scale": idf_scale,
        "ngrams": list(grams),
        "weights": base64.b64encode(stored).decode("ascii"),
    }
