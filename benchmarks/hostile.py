"""How many hostile bundles are refused: named ones, and random changes of a good one for as long as it is told to.

    python benchmarks/hostile.py [--changes 100000] [--seed 1]

A bundle that is not refused has to be another good one, as Python's own zip reader sees it; anything else ends the run
with the bundle beside it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import hostile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin, taken, tried = time.perf_counter(), Counter[str](), Counter[str]()
    changes = itertools.islice(hostile.mutations(options.seed), options.changes)
    named = (("named", raw) for _, raw in hostile.cases())
    with tempfile.TemporaryDirectory() as place:
        for kind, raw in itertools.chain(named, changes):
            folder = Path(place) / "one"
            folder.mkdir()
            try:
                taken[kind] += hostile.judge(raw, folder)
            except Exception:
                Path("not-refused.edgepack").write_bytes(raw)
                raise
            shutil.rmtree(folder)
            tried[kind] += 1
            if sum(tried.values()) % 10_000 == 0:
                print(f"{sum(tried.values())} tried, {sum(taken.values())} of them other good bundles", flush=True)
    found = {
        "tried": sum(tried.values()),
        "refused": sum(tried.values()) - sum(taken.values()),
        "by_kind": {kind: {"tried": tried[kind], "refused": tried[kind] - taken[kind]} for kind in sorted(tried)},
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
