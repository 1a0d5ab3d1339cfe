"""Devices as folders: programs `ssh` and `sftp` that run what they get on this machine, and bundles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.stubs import STUB
from tests.unit.runtime.conftest import as_bytecode, make_manifest, runnable_members, small_members

from edgepack.bundle.archive import write_bundle
from edgepack.targets.this_machine import base_python
from edgepack_runtime.bundle.manifest import dump

# What measures nothing has a receipt with all that one has.
RECEIPT = """\
CODES = {"pass": 0, "fail": 6, "inconclusive": 7}

def receipt_of(verdict, facts, mebibytes, where, unmeasured):
    check = {
        "gate": "size.bundle_mib", "verdict": verdict, "value": mebibytes, "low": None,
        "high": None, "limit": 1.0, "unit": "MiB", "n": 1, "confidence": None, "detail": "as it was asked for",
    }
    return {
        "receipt": 1, "verb": "gate", "bundle": facts, "verdict": verdict, "checks": [check],
        "unmeasured": unmeasured, "accuracy": {"metric": "accuracy", "value": 0.9, "n": 200}, "conditions": where,
        "latency": {"p50_ms": 5.0, "p95_ms": 8.0, "threads": 1},
    }
"""
GATE = f"""\
import json, os, sys, time
from edgepack_runtime.bundle import verify
from edgepack_runtime.install import receipts

{RECEIPT}
def run(release, manifest, *, bundle_bytes, progress, rows_file, without_rows, without_gates, active):
    verdict = json.loads((release / "golden/behaviour.json").read_text())["gate"]
    progress("measuring")
    if verdict == "hang":
        progress("process %d" % os.getpid())
        time.sleep(600)
    if verdict == "break":
        raise SystemExit(3)
    if verdict == "flood":
        print("x" * (5 << 20))
    found, raw = verify.read_manifest(release)
    facts = dict(vars(receipts.bundle_facts(found, raw)))
    if verdict == "of another":
        verdict, facts["release_id"] = "pass", "9.9.9-000000000000"
    where = {{"cpu_model": "Cortex-A76", "release": str(release)}}
    if rows_file is not None:
        where["rows"] = rows_file.read_text(encoding="utf-8")
    unmeasured = [{{"gate": "accuracy.min", "why": "they are at home", "waived": True}}] if without_rows else []
    return receipt_of(verdict, facts, bundle_bytes and bundle_bytes / 2**20, where, unmeasured)

def exit_code(receipt):
    return CODES[receipt["verdict"]]

def render(receipt):
    return "gate: " + receipt["verdict"]
"""
# The program of a bundle that has no runtime, for tests of what comes after the verdict.
BRIEF = f"""\
import hashlib, json, os, sys, zipfile

{RECEIPT}
where = os.path.dirname(os.path.abspath(__file__))

def read(name):
    if os.path.isdir(where):
        with open(os.path.join(where, name), "rb") as file:
            return file.read()
    with zipfile.ZipFile(where) as archive:
        return archive.read(name)

if "doctor" in sys.argv:
    print('{{"checks": [], "device": {{"system": "Linux"}}}}')
    sys.exit()
manifest, digest = json.loads(read("manifest.json")), hashlib.sha256(read("manifest.json")).hexdigest()
facts = {{"name": manifest["name"], "version": manifest["version"], "target": manifest["target"]["profile"]}}
facts.update(release_id=manifest["version"] + "-" + digest[:12], manifest_sha256=digest)
verdict = read("golden/verdict.txt").decode()
print("measuring", file=sys.stderr)
print(json.dumps(receipt_of(verdict, facts, 2.0, {{"cpu_model": "Cortex-A76"}}, [])))
sys.exit(CODES[verdict])
"""

# `ssh ... -- HOST COMMAND`: HOST is a folder with what it has at home. They share one machine, and no lock. How OpenSSH
# itself fails is tested in tests/integration/test_gate_ssh.py.
SSH = """\
#!/bin/sh
printf '%s\\n' "$*" >> {root}/calls
while [ "$1" != -- ]; do
    [ "$1" != -O ] || exit 255
    shift
done
home={root}/$2
case $2 in
    refused) echo "it is switched off" >&2; exit 255;;
    banner) exec yes "no end of a banner" >&2;;
    nologin) echo "This account is currently not available."; exit 1;;
    noisy) echo "Last login: today"; printf "no end of a line";;
    greedy) cat > /dev/null;;
    slow) sleep 600;;
esac
mkdir -p "$home/tmp"
exec env -i PATH="$home/bin:/usr/bin:/bin" HOME="$home" TMPDIR="$home/tmp" \\
    EDGEPACK_GATE_LOCK="${{FAR_LOCK-$home}}" sh -c "$3"
"""

# `sftp ... -- HOST`, of which the batch is one `reput`. `breaks` of HOST: bytes after which the link ends, once.
# On `small` no file gets larger than a mebibyte.
SFTP = """\
#!{python} -I
import os, re, shlex, sys
host = sys.argv[-1]
root = "{root}"
with open(root + "/calls", "a") as calls:
    print("sftp", *sys.argv[1:], file=calls)
verb, local, remote = shlex.split(sys.stdin.read())
assert verb == "reput"
data, breaks = open(local, "rb").read(), root + "/" + host + "/breaks"
have = os.stat(remote).st_size
with open(root + "/sent", "a") as sent, open(remote, "ab") as out:
    if os.path.exists(breaks):
        out.write(data[have : int(open(breaks).read())])
        os.unlink(breaks)
        sys.exit(255)
    if host == "small" and len(data) > 1 << 20:
        sys.exit(1)
    print(len(data) - have, file=sent)
    out.write(data[have:] if host != "damages" else bytes(len(data)))
"""


@dataclass
class Heard:
    """Progress that is kept."""

    lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def task(self, label: str, total: int, done: int = 0) -> Any:
        from edgepack.progress import SILENT

        self.lines.append(f"{label}: {total}")
        return SILENT.task(label, total, done)


@dataclass(frozen=True)
class Far:
    """Devices by name, each a folder in `root`."""

    root: Path

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text(encoding="utf-8").splitlines()

    def left(self, host: str) -> list[Path]:
        """What lies in the folder for temporary files there."""
        return sorted((self.root / host / "tmp").iterdir())

    def sent(self) -> list[int]:
        """Bytes of each copy that did not break off."""
        return [int(line) for line in (self.root / "sent").read_text(encoding="utf-8").split()]

    def breaks_after(self, host: str, count: int) -> None:
        """The next copy to `host` ends after so many bytes."""
        (self.root / host).mkdir(exist_ok=True)
        (self.root / host / "breaks").write_text(f"{count}\n")

    @property
    def python(self) -> str:
        """The one that bundles of `far_bundle` are for."""
        return base_python()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    root = tmp_path / "far"
    (root / "bin").mkdir(parents=True)
    for name, text in (("ssh", SSH), ("sftp", SFTP)):
        program = root / "bin" / name
        program.write_text(
            text.format(root=root if name == "ssh" else str(root), python=base_python()), encoding="utf-8"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:/usr/bin:/bin")
    return Far(root)


def far_members(gate: str = "pass", *, model: bytes = b"", more: dict[str, bytes] | None = None) -> dict[str, bytes]:
    members = runnable_members(gate=gate)
    members["edgepack_runtime/gate/runner.py"] = GATE.encode()
    if model:
        members["model/model.onnx"] = b"\x12" + bytes([len(model) % 128 | 128, len(model) // 128]) + model
    return dict(as_bytecode(name, data) for name, data in {**members, **(more or {})}.items())


def brief_bundle(path: Path, verdict: str = "pass", **changes: Any) -> Path:
    """A bundle that tells a verdict: its program is `BRIEF`."""
    return _written(
        path, {**small_members(), "__main__.py": BRIEF.encode(), "golden/verdict.txt": verdict.encode()}, changes
    )


def far_bundle(path: Path, gate: str = "pass", *, model: bytes = b"", more: Any = None, **changes: Any) -> Path:
    """A bundle whose gate says `gate`; `model` is at most 16,383 bytes, `more` are other members."""
    return _written(path, far_members(gate, model=model, more=more), changes)


def _written(path: Path, members: dict[str, bytes], changes: dict[str, Any]) -> Path:
    changes.setdefault("model", {"precision": "int8", "onnx_bytes": 100})
    manifest = make_manifest(members, **changes)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bundle({**members, "manifest.json": dump(manifest)}, path, STUB)
    return path
