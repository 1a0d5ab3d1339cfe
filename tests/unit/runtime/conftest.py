"""Fixtures for the tests of `edgepack_runtime`: a bundle that is real but for its model.

Its runtime is the real one, except that the modules which need numpy and onnxruntime are replaced by a few lines
that behave as `golden/behaviour.json` in the release says.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import marshal
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.stubs import STUB, STUB_SHA256
from tests.unit.runtime.installing import MakeBundle, silent
from tests.unit.runtime.ssh_keys import make_key
from tests.unit.runtime.tiny_model import TUNED

import edgepack_runtime
from edgepack.bundle.archive import write_bundle
from edgepack.bundle.main_program import main_source
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.manifest import FileEntry, Manifest, TargetFacts, dump
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.install import release_process, trust
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util import gate_lock

RUNTIME = Path(edgepack_runtime.__path__[0])
# Folders that need packages, or that no fake bundle runs; what FAKES has stands in for modules of them.
LEFT_OUT = ("engine", "serve", "gate", "inference")

FAKES = {
    "inference/selftest": """\
import json, os, signal
from edgepack_runtime.errors import StageFailedError

def run(release):
    import fakelib
    behaviour = json.loads((release / "golden/behaviour.json").read_text())["selftest"]
    if behaviour == "broken device":  # one that worked when it was installed, and does not any more
        told = release.parent.parent / "device.json"
        behaviour = json.loads(told.read_text()) if told.exists() else "pass"
        if behaviour == "fail installed":
            if (release.parent.parent / "current").resolve() != release:
                behaviour = "pass"
    if behaviour == "signal":
        os.kill(os.getpid(), signal.SIGILL)
    if behaviour == "fail" or (behaviour == "fail installed" and release.parent.name == "releases"):
        raise StageFailedError("the self-test failed", why="a logit differs", fix="build again")
    told = os.environ.get("ORT_DISABLE_TELEMETRY")
    return {"texts": 2, "max_difference": 0.0, "tolerance": 0.1, "telemetry_disabled": told}
""",
    "gate/runner": """\
import json

CODES = {"pass": 0, "fail": 6, "inconclusive": 7}

def run(release, manifest, *, bundle_bytes, progress, rows_file, without_rows, without_gates, active):
    verdict = json.loads((release / "golden/behaviour.json").read_text())["gate"]
    progress("measuring")
    if active is not None:
        progress(f"measured beside {active.name}")
    policy = "refuse" if verdict == "inconclusive, which refuses" else "deliver"
    verdict = verdict.replace(", which refuses", "")
    gate = "size.bundle_mib" if policy == "deliver" else "latency.p95_ms"
    check = {"gate": gate, "verdict": verdict.split()[0], "value": bundle_bytes, "low": None, "high": None,
             "limit": 1.0, "unit": "bytes", "n": 1, "confidence": None, "detail": "n=1"}
    if verdict == "no better than the majority":
        verdict = "inconclusive"
        check.update(gate="accuracy.above_majority", verdict=verdict, value=None, detail="one answer")
    at_home = [{"gate": "accuracy.min", "why": "they are at home", "waived": without_rows}]
    unmeasured = at_home if verdict == "pass at home" else []
    if verdict == "no gates":
        verdict, check = "pass" if without_gates else "inconclusive", None
        unmeasured = [{"gate": "gates", "why": "the recipe sets none", "waived": without_gates}]
    return {"receipt": 1, "verb": "gate", "verdict": verdict.split()[0], "checks": [check] if check else [],
            "unmeasured": unmeasured, "inconclusive": policy,
            "bundle": {"name": "sentiment", "release_id": release.name}}

def exit_code(receipt):
    return CODES[receipt["verdict"]]

def render(receipt):
    return "gate: " + receipt["verdict"]
""",
    "inference/tune": """\
import json
from edgepack_runtime.errors import StageFailedError

def run(release, *, most_threads, progress):
    behaviour = json.loads((release / "golden/behaviour.json").read_text())["tune"]
    if behaviour == "fail":
        raise StageFailedError("the model could not be run", why="out of memory")
    progress("trying")
    tuning = {"threads": 2, "spinning": False, "disabled_optimizers": ["A"]}
    return {"tune": 1, "tuning": {} if behaviour == "nonsense" else tuning, "measured": {"most_threads": most_threads}}

def render(result):
    return "tuned: {} threads".format(result["tuning"]["threads"])
""",
    "inference/bench": """\
def compare(folders, texts, *, threads, runs, progress):
    return {"models": [str(f) for f in folders], "texts": len(texts), "threads": threads, "runs": runs}

def render(result):
    return "bench: {} texts".format(result["texts"])
""",
    "inference/predictor": """\
import collections
from edgepack_runtime.bundle import model_config

class Prediction(collections.namedtuple("Prediction", "label score scores")):
    def as_json(self, *, with_scores):
        return dict(list(self._asdict().items())[: 3 if with_scores else 2])

class Predictor:
    engine = "fake 1"
    cut_texts = 0

    def __init__(self, model_folder, *, threads=None, long_texts="truncate"):
        self.config = model_config.load(model_folder)
        self.folder = model_folder
        self.labels = (model_folder / "vocab.txt").read_text(encoding="utf-8").split()
        self.threads = threads

    def predict(self, item):
        label = self.labels[len(item) % 2]
        scores = {name: 0.75 if name == label else 0.25 for name in self.labels}
        return Prediction(label, 0.75, scores)

    def stream_tagged(self, items, *, workers, batch_tokens):
        return ((tag, None if item is None else self.predict(item)) for tag, item in items)
""",
}


def target_facts(**changes: Any) -> TargetFacts:
    """What this machine is."""
    facts: dict[str, Any] = {
        "profile": "test",
        "machines": (platform.machine(),),
        "libc_min": "2.5",
        "interpreter": "host",
        "provider": "CPUExecutionProvider",
    }
    return TargetFacts(**{**facts, **changes})


def make_manifest(members: Mapping[str, bytes], **changes: Any) -> Manifest:
    """A manifest that lists `members`."""
    entries = [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(members.items())]
    facts: dict[str, Any] = {
        "name": "sentiment",
        "version": "1.2.0",
        "sequence": 1,
        "task": "text-classification",
        "target": target_facts(),
        "model": {"precision": "int8", "onnx_bytes": 100},
        "gates": {},
        "ledger": (),
        "tools": {"edgepack": "0.1.0"},
        "recipe_sha256": "0" * 64,
        "stub_sha256": STUB_SHA256,
        "interpreters": (),
        "files": tuple(entries),
    }
    return Manifest(**{**facts, **changes})


def small_members() -> dict[str, bytes]:
    """A few files that make a bundle of about 2 KB: a library, one deflated, one stored, one empty, a Chinese name."""
    return {
        "__main__.py": b"raise SystemExit(0)\n",
        "edgepack_runtime/__init__.py": b"",
        "golden/rows.jsonl": '{"text": "很好", "label": "1", "float_label": "1"}\n'.encode() * 9,
        "model/model.onnx": b"\x12\xfd\x01" + bytes(range(253)),  # the name of a producer, and nothing else
        "site/lib.so.1": b"\x7fELF" + bytes(range(9)) * 20,
        "site/词.txt": b"abc",
    }


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle small enough to damage every byte of it; its code is never run."""
    members = small_members()
    path = tmp_path_factory.mktemp("small") / "small.edgepack"
    members |= {"manifest.json": dump(make_manifest(members))}
    write_bundle(dict(members), path, STUB, lzma_cache=path.with_name("lzma"))
    return path


def runnable_members(
    *,
    selftest: str = "pass",
    tune: str = "2 threads",
    gate: str = "pass",
    extra: str = "",
    task: str = "text-classification",
    fakelib: str = "",
) -> dict[str, bytes]:
    """Everything of a bundle that runs, without the manifest."""
    paths = {path.relative_to(RUNTIME).as_posix(): path for path in RUNTIME.rglob("*.py")}
    members = {
        f"edgepack_runtime/{name}": path.read_bytes()
        for name, path in paths.items()
        if name.split("/")[0] not in LEFT_OUT or name.endswith("/__init__.py")
    }
    name = "inference/windows"  # the command line reads options with it
    members[f"edgepack_runtime/{name}.py"] = paths[f"{name}.py"].read_bytes()
    members.update({f"edgepack_runtime/{name}.py": text.encode() for name, text in FAKES.items()})
    members["__main__.py"] = main_source()
    members["model/model.onnx"] = b"\x12\xe5\x07" + bytes(997)  # the name of a producer, and nothing else
    members["model/model.json"] = model_config.dump(model_config.ModelConfig(task, ("差", "好"), 16, "int8"))
    members["model/vocab.txt"] = "差 好\n".encode()
    members["golden/rows.jsonl"] = '{"text": "很好", "label": "好", "float_label": "好"}\n'.encode()
    behaviour = {"selftest": selftest, "tune": tune, "gate": gate, "extra": extra}
    members["golden/behaviour.json"] = json.dumps(behaviour).encode()
    members["site/fakelib.py"] = f"WHO = 'the bundle'\n{fakelib}\n".encode()
    return members


@functools.cache
def as_bytecode(name: str, data: bytes) -> tuple[str, bytes]:
    """A module of the runtime as bytecode of this Python, as in a bundle with an interpreter; another member as it is.

    A start compiles 60 modules otherwise, which is four fifths of its time. The .pyc is not compared with a source (PEP
    552).
    """
    if not (name.startswith("edgepack_runtime/") and name.endswith(".py")):
        return name, data
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(data)
    return f"{name}c", head + marshal.dumps(compile(data, name, "exec", dont_inherit=True))


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """A factory of bundles that run: `make_bundle(version=, selftest=, tune=, gate=, extra=, **manifest fields)`.

    With `sources`, the runtime is not compiled: for tests of what is done to its files, and of other Pythons.
    """

    def make(*, sources: bool = False, **changes: Any) -> Path:
        code = {name: changes.pop(name) for name in ("selftest", "tune", "gate", "extra", "fakelib") if name in changes}
        members = runnable_members(**code, task=changes.get("task", "text-classification"))
        if not sources:
            members = dict(as_bytecode(name, data) for name, data in members.items())
        manifest = make_manifest(members, **changes)
        path = tmp_path_factory.mktemp("bundle") / f"{manifest.name}-{manifest.version}-test.edgepack"
        write_bundle({**members, "manifest.json": dump(manifest)}, path, STUB)
        return path

    return make


@pytest.fixture(scope="session")
def bundle(make_bundle: MakeBundle) -> Path:
    """A bundle that runs and passes."""
    return make_bundle()


@pytest.fixture(scope="session")
def second(make_bundle: MakeBundle) -> Path:
    """The release after that of `bundle`."""
    return make_bundle(version="1.3.0", sequence=2)


@pytest.fixture
def device(lock_folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command as a bare device would: no HOME, and of the environment PATH and the folder for the lock."""

    def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", gate_lock.VARIABLE: str(lock_folder), **options.pop("env", {})}
        return subprocess.run(
            [os.fspath(word) for word in command],
            env=environment,
            stdin=options.pop("stdin", subprocess.DEVNULL if "input" not in options else None),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    """One that does not exist yet."""
    return Prefix(tmp_path / "prefix")


@pytest.fixture(scope="session")
def once_installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    """`bundle` serves. For all tests: one that changes it takes `served_prefix`."""
    prefix = Prefix(tmp_path_factory.mktemp("installed") / "prefix")
    install(bundle, prefix.root, log=silent)
    return prefix


@pytest.fixture
def served_prefix(once_installed: Prefix, prefix: Prefix) -> Prefix:
    """A copy of `once_installed`: nothing in an install names its path."""
    shutil.copytree(once_installed.root, prefix.root, symlinks=True)
    return prefix


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Self-test, tuning and gate pass without starting a process."""
    passed = (ExitCode.OK, {"verdict": "pass", "checks": [], **TUNED})
    monkeypatch.setattr(release_process, "run_json", lambda *args, **options: passed)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's own folder of keys: not there, whatever the one that runs the tests has."""
    folder = tmp_path / "etc"
    monkeypatch.setattr(trust, "MACHINE_FOLDER", folder)
    return folder


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two private keys: `release`, and `other`."""
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "release"), make_key(folder, "other")
