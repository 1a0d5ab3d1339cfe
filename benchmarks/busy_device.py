"""Updates on a device that others keep busy: an equal release, a slower one, and a limit that is shown missed.

    python benchmarks/busy_device.py BUNDLE [--updates 20] [--taken 1.5] [--wait 5] [--idle-only | --busy-only]

BUNDLE is one for `local`, such as the quickstart's. Its copies differ in version and in limits on latency. First it is
timed on the idle machine: the truth. Then others take --taken cores, and releases are installed over the active one:
equal ones, and ones that are half as fast again slower (after each answer they spin for half of the time it took). At
last, on the idle machine, ones whose limit is half of the truth. Prints a line an install, and ends in one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.bundle.archive import listed, write_bundle
from edgepack.bundle.head import head
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, dump, parse
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.receipts import last_receipt

SLOWER: Final = 1.5
NEAR: Final = 1.02  # of the truth, as a limit that a busy device cannot show to be kept
PREDICTOR: Final = "edgepack_runtime/inference/predictor.py"
ANSWER: Final = "        return self._task.answer(items)\n"
SPIN: Final = f"""\
        import time
        begin = time.perf_counter()
        found, split = self._task.answer(items)
        end = begin + {SLOWER} * (time.perf_counter() - begin)
        while time.perf_counter() < end:
            pass
        return found, split._replace(run_ms=split.run_ms + {SLOWER - 1} * split.total_ms)
"""
_MAX_BYTES: Final = 1 << 30
# Takes a share of one core: bursts of 20 to 50 ms, with pauses.
NEIGHBOUR: Final = """\
import sys, time
share = float(sys.argv[1])
while True:
    end = time.perf_counter() + 0.05 * share
    while time.perf_counter() < end:
        pass
    if share < 1:
        time.sleep(0.05 * (1 - share))
"""


class Copies:
    """Copies of a bundle with rising versions."""

    def __init__(self, bundle: Path, folder: Path) -> None:
        with Archive(bundle) as archive:
            self._manifest = parse(archive.read(MANIFEST_NAME, _MAX_BYTES))
            names = [entry.path for entry in self._manifest.files]
            self._members = {name: archive.read(name, _MAX_BYTES) for name in names}
        self._folder, self._number = folder, 0

    def make(self, latency: Mapping[str, float], *, slower: bool = False) -> Path:
        """A copy whose only limits are those on `latency`, besides the floor of every release."""
        self._number += 1
        members = dict(self._members)
        if slower:
            source = members[PREDICTOR].decode()
            assert ANSWER in source, "the line that the benchmark replaces is gone"
            members[PREDICTOR] = source.replace(ANSWER, SPIN).encode()
        version = f"9.0.{self._number}"
        first = head(self._manifest.name, f"{self._manifest.name} {version}", {})
        manifest = dataclasses.replace(
            self._manifest,
            version=version,
            sequence=self._manifest.sequence + self._number,
            gates={"accuracy": {"above_majority": True}, "latency": {**latency, "threads": 1}},
            files=tuple(listed(name, data) for name, data in sorted(members.items())),
            head_sha256=hashlib.sha256(first).hexdigest(),
        )
        file = self._folder / f"{self._manifest.name}-{version}-local.edgepack"
        write_bundle({**members, MANIFEST_NAME: dump(manifest)}, file, first)
        return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--taken", type=float, default=1.5, help="cores that others use")
    parser.add_argument("--wait", type=float, default=5, help="seconds that `install` waits for them")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--idle-only", action="store_true")
    only.add_argument("--busy-only", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"updates": options.updates, "taken_cores": options.taken, "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="busy-device-") as scratch:
        copies, prefix = Copies(options.bundle, Path(scratch)), Prefix(Path(scratch) / "prefix")
        receipt = install(copies.make({}), prefix, options.wait, "idle")
        truth = {key: receipt["gate"]["latency"][key] for key in ("p50_ms", "p95_ms")}
        found["idle_ms"] = truth
        near = {key: NEAR * value for key, value in truth.items()}
        kinds = [] if options.idle_only else [("equal", near, False), ("slower", near, True)]
        with neighbours(0 if options.idle_only else options.taken):
            for name, limits, slower in kinds:
                found[name] = rounds(copies, prefix, options, name, limits, slower=slower)
        if not options.busy_only:
            half = {key: value / 2 for key, value in truth.items()}
            found["missed"] = rounds(copies, prefix, options, "missed", half)
    print(json.dumps(found))


def rounds(
    copies: Copies, prefix: Prefix, options: argparse.Namespace, name: str, limits: Mapping[str, float], *,
    slower: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Install so many copies, and count how they ended, by exit code and by what the checks on latency say."""
    ended: Counter[str] = Counter()
    ratios, begin = [], time.monotonic()
    for _ in range(options.updates):
        file = copies.make(limits, slower=slower)
        receipt = install(file, prefix, options.wait, name)
        turns = receipt["gate"]["latency"]["turns"] or {}
        ratios += [turns["ratio"]] if "ratio" in turns else []
        ended[f"exit {receipt['exit_code']}, gate {receipt['gate']['verdict']}"] += 1
        file.unlink()
    return {
        "ended": dict(ended),
        "in_turns": len(ratios),
        "ratios": [min(ratios), max(ratios)] if ratios else None,
        "seconds_each": round((time.monotonic() - begin) / options.updates, 1),
    }


def install(bundle: Path, prefix: Prefix, wait_s: float, name: str) -> dict[str, Any]:
    """Install a bundle by its own command; return the receipt."""
    command = [sys.executable, bundle, "install", "--prefix", prefix.root, "--wait", str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    receipt = last_receipt(prefix, "install")
    assert receipt is not None and receipt["gate"] is not None, done.stderr
    compared = [line for line in done.stderr.splitlines() if "times the time of" in line]
    ended = f"exit {receipt['exit_code']}, gate {receipt['gate']['verdict']}"
    print(f"{name}: {ended} {' '.join(compared)}", flush=True)
    return receipt


@contextlib.contextmanager
def neighbours(cores: float) -> Iterator[None]:
    """Processes that take so many cores."""
    shares = [min(1.0, cores - number) for number in range(int(-(-cores // 1)))]
    running = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(share)]) for share in shares]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
