"""The real wheels: unpacked and slimmed, they import and run a model, and nothing that was left out is missed.

The wheels come from the cache (`$EDGEPACK_CACHE`) or through pip, as in a build.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgepack_runtime
from edgepack.packages import wheels
from edgepack.packages.site_packages import SiteFacts, assemble
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import SILENT
from edgepack.targets.context import BuildContext
from edgepack_runtime.device.info import libc

pytestmark = pytest.mark.integration
TARGET = "local"
MIB = 2**20

# What the runtime does with the libraries.
PROGRAM = r"""
import json, pkgutil, importlib, sys
from pathlib import Path
site, runtime, model = sys.argv[1:]
sys.path[:0] = [site, runtime]
sys.dont_write_bytecode = True
import edgepack_runtime
for module in pkgutil.walk_packages(edgepack_runtime.__path__, "edgepack_runtime."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from edgepack_runtime.inference.predictor import Predictor
predictor = Predictor(Path(model))
files = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
print(json.dumps({
    "logits": predictor.logits(["\u597d\u574f", "\u810f"]),
    "label": predictor.predict("\u597d").label,
    "providers": predictor.providers,
    "mapped": sorted({line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}),
    "outside": [file for file in files if "-packages" in file and not file.startswith(site)],
    "engine": predictor.engine,
}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> SiteFacts:
    profile = BuildContext().profile(TARGET)
    fetched = wheels.fetch(TargetSpec(profile, serve=True), BuildContext(), SILENT)
    return assemble(fetched, tmp_path_factory.mktemp("site") / "assembled", profile)


@pytest.fixture
def answer(site: SiteFacts, tmp_path: Path, make_model: Callable[..., Path]) -> dict[str, Any]:
    model = make_model(tmp_path / "model")
    arguments = [site.folder / "site", Path(edgepack_runtime.__path__[0]).parent, model]
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_the_slimmed_site_runs_a_model(answer: dict[str, Any], site: SiteFacts) -> None:
    assert answer["providers"] == ["CPUExecutionProvider"]
    assert [len(row) for row in answer["logits"]] == [2, 2]
    assert answer["label"] in ("0", "1")
    assert answer["engine"] in [f"{package.name} {package.version}" for package in site.packages]


def test_nothing_that_reports_home_travels(site: SiteFacts) -> None:
    assert not [path for path in (site.folder / "site").iterdir() if "telemetry" in path.name]


def test_everything_came_from_the_site(answer: dict[str, Any], site: SiteFacts) -> None:
    assert answer["outside"] == []
    libraries = [path for path in answer["mapped"] if "/onnxruntime/" in path]
    assert libraries
    assert all(path.startswith(str(site.folder)) for path in libraries)


def test_no_bytecode_and_no_scripts_lie_in_the_site(site: SiteFacts) -> None:
    names = [path.name for path in (site.folder / "site").rglob("*")]
    assert not [name for name in names if name == "__pycache__" or name.endswith(".pyc") or name == "bin"]


def test_a_server_travels_where_it_is_asked_for(site: SiteFacts) -> None:
    serving = [package for package in site.packages if package.name in ("starlette", "uvicorn", "prometheus-client")]
    assert len(serving) == 3


def test_what_was_left_out_is_worth_it(site: SiteFacts) -> None:
    before = sum(package.bytes_before for package in site.packages)
    assert before > 60 * MIB
    assert site.site_bytes < 31 * MIB


def test_binaries_load_on_the_glibc_they_were_built_for(site: SiteFacts) -> None:
    needed, here = (tuple(map(int, version.split("."))) for version in (site.needs.glibc, libc()[1]))
    assert (2, 17) <= needed <= here
    assert "libstdc++.so.6" in site.needs.libraries
    assert site.needs.binaries == 2


def test_every_check_passed_and_there_is_nothing_to_tell(site: SiteFacts) -> None:
    assert [check.check for check in site.needs.checks.passed] == ["wheels", "licences", "ELF", "glibc", "libstdc++"]
    assert site.needs.checks.notes == ()


def test_every_wheel_has_its_licence_text(site: SiteFacts) -> None:
    for package in site.packages:
        texts = [site.folder / path for path in package.license_files if not path.endswith(".json")]
        assert texts
        assert max(text.stat().st_size for text in texts) > 300  # a NOTICE may be shorter
