"""Print the tables of runtime/edgepack_runtime/inference/unicode_data.py: `scripts/unicode_tables.py PYTHON...`.

Compares the character data of this Python, which must have Unicode 14.0 (3.11), with that of each PYTHON. One with the
package `unicodedata2` has the version of that package. The tables come from versions 12.1 (Python 3.8) to 18.0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence

PROBE = """
import json, sys
try:
    import unicodedata2 as data
except ImportError:
    import unicodedata as data
def kind(category):  # the category that stands for all that the tokenizer treats alike
    return category if category == "Mn" else {"C": "Cn", "P": "So", "S": "So", "Z": "Zs"}.get(category[0], "Lo")
def distance(character, lower):
    return ord(lower) - ord(character) if len(lower) == 1 else lower
characters = [chr(code) for code in range(0x110000)]
json.dump({
    "category": [kind(data.category(c)) for c in characters],
    "combining": [data.combining(c) for c in characters],
    "lower": [distance(c, c.lower()) for c in characters],
    "decomposed": [ascii(data.normalize("NFD", c)) for c in characters],
}, sys.stdout)
"""


def ranges(codes: Sequence[int], bounds: Sequence[bool]) -> Iterator[str]:
    """Ranges of ascending `codes` with none between for which `bounds` holds."""
    first = 0
    for place, code in enumerate(codes):
        if place + 1 == len(codes) or any(bounds[code : codes[place + 1]]):
            yield f"{codes[first]:X}" + f"-{code:X}" * (place > first)
            first = place + 1


def main() -> int:
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit("run this on Python 3.11, which has Unicode 14.0")
    wanted, *others = (
        json.loads(subprocess.check_output([python, "-c", PROBE])) for python in (sys.executable, *sys.argv[1:])
    )
    for name, values in wanted.items():
        # What Unicode 14.0 does not know is dropped, so that its other properties do not matter.
        differing = [
            code
            for code in range(0x110000)
            if any(other[name][code] != values[code] for other in others)
            and (name == "category" or wanted["category"][code] != "Cn")
        ]
        for value in sorted({values[code] for code in differing}):
            codes = [code for code in differing if values[code] == value]
            text = " ".join(ranges(codes, [other != value for other in values]))
            sys.stdout.write(f"{name} {value}: {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
