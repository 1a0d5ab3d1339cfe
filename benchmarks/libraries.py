"""What LZMA saves on the shared libraries of a bundle, and how long packing and unpacking take, beside deflate.

    python benchmarks/libraries.py BUNDLE [--rounds 7]

Each library is packed once by the writer of bundles, in both forms, and unpacked by their reader, the forms in turns.
Prints a table, MB are 10^6 bytes and times medians with quartiles, and ends in one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle.archive import HEAD_BYTES, Archive, is_library

FORMS: Final = {"deflate": False, "LZMA": True}


def measured(path: str, content: bytes, rounds: int, folder: Path) -> dict[str, Any]:
    """Size, seconds to pack and seconds to unpack of one library, by form."""
    found: dict[str, Any] = {"library": path, "mb": len(content) / 1e6}
    files = {name: folder / f"{name}.edgepack" for name in FORMS}
    unpack: dict[str, list[float]] = {name: [] for name in FORMS}
    for name, file in files.items():
        begin = time.perf_counter()
        cache = folder / path.replace("/", "_") if FORMS[name] else None
        write_bundle({path: content}, file, bytes(HEAD_BYTES), lzma_cache=cache)
        found[name] = {"pack_s": round(time.perf_counter() - begin, 2)}
    for _ in range(rounds):
        for name, file in files.items():
            with Archive(file) as archive:
                member = archive.members[path]
                begin = time.perf_counter()
                for _ in archive.chunks(member):
                    pass
                unpack[name].append(time.perf_counter() - begin)
            found[name]["mb"] = member.compressed_size / 1e6
    for name, seconds in unpack.items():
        found[name]["unpack_s"] = [round(value, 3) for value in statistics.quantiles(seconds, n=4)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = []
    print("| library | MB | | MB in the file | s to pack | s to unpack |\n|---|---|---|---|---|---|")
    with Archive(options.bundle) as archive, tempfile.TemporaryDirectory() as folder:
        for member in filter(lambda one: is_library(one.path), archive.members.values()):
            content = b"".join(archive.chunks(member))
            row = measured(member.path, content, options.rounds, Path(folder))
            for name in FORMS:
                low, middle, high = row[name]["unpack_s"]
                times = f"{row[name]['pack_s']:.1f} | {middle:.2f} ({low:.2f}-{high:.2f})"
                print(f"| `{member.path}` | {row['mb']:.2f} | {name} | {row[name]['mb']:.2f} | {times} |", flush=True)
            rows.append(row)
    print(json.dumps({"bundle": options.bundle.name, "rounds": options.rounds, "libraries": rows}))


if __name__ == "__main__":
    main()
