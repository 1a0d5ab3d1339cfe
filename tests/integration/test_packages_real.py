"""Real packages of a recipe: numpy, OpenCV and Pillow run on the carried interpreter, from the site folder alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.bundle import bundled_interpreters
from edgepack.errors import EnvironmentUnfitError
from edgepack.packages import site_packages, unpacked
from edgepack.packages.site_packages import Site
from edgepack.packages.target_spec import TargetSpec, python_of
from edgepack.progress import SILENT
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.manifest import BUNDLED

pytestmark = pytest.mark.integration
MIB = 2**20
# For CPython 3.11: of each package the wheels for aarch64 and x86_64.
LOCK = """\
# as `uv pip compile --generate-hashes` writes it
numpy==2.2.6 \\
    --hash=sha256:b64d8d4d17135e00c8e346e0a738deb17e754230d7e0810ac5012750bbd85a5a \\
    --hash=sha256:ba10f8411898fc418a521833e014a77d3ca01c15b0c6cdcce6a0d2897e6dbbdf
    # via opencv-python-headless
opencv-python-headless==4.11.0.86 \\
    --hash=sha256:6efabcaa9df731f29e5ea9051776715b1bdd1845d7c9530065c7951d2a2899eb \\
    --hash=sha256:0e0a27c19dd1f40ddff94976cfe43066fbbe9dfbb2ec1907d66c19caef42a57b
    # via -r requirements.in
pillow==11.2.1 \\
    --hash=sha256:e6def7eed9e7fa90fde255afaf08060dc4b343bbe524a8f69bdd2a2f0018f600 \\
    --hash=sha256:8f4f3724c068be008c08257207210c138d5f3731af6c155a81c2b09a9eb3a788
    # via -r requirements.in
"""
PROGRAM = r"""
import io, json, sys
sys.path += sys.argv[1:]  # as the launcher does it
from pathlib import Path
import cv2, numpy, numpy.random, numpy.linalg, PIL.Image
image = numpy.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=numpy.uint8)
ok, jpeg = cv2.imencode(".jpg", image)
opened = numpy.asarray(PIL.Image.open(io.BytesIO(jpeg.tobytes())).convert("RGB").resize((32, 24)))
contours, _ = cv2.findContours((image[..., 0] > 128).astype(numpy.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
print(json.dumps({
    "shape": opened.shape,
    "contours": len(contours),
    "solved": float(numpy.linalg.solve(numpy.eye(2) * 2, numpy.ones(2))[0]),
    "mapped": sorted({line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}),
}))
"""

Assemble = Callable[[str], Site]


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lock") / "requirements.txt"
    file.write_text(LOCK, encoding="utf-8")
    return file


@pytest.fixture
def assemble(lock: Path, tmp_path: Path) -> Assemble:
    """Assembles the site of a target."""

    def run(target: str) -> Site:
        context = BuildContext()
        profile = context.profile(target)
        python = python_of(None, profile)
        specs = [TargetSpec(profile.on(machine), packages=lock, python=python) for machine in profile.machines]
        try:
            return site_packages.site_for(specs, context, tmp_path / "site", SILENT)
        except EnvironmentUnfitError as error:
            if "could not be downloaded" in error.what:
                pytest.skip("pip has no network")
            raise

    return run


def test_they_run_on_the_carried_interpreter_from_bytecode(assemble: Assemble, tmp_path: Path) -> None:
    context = BuildContext()
    profile = context.profile("linux-x86_64")
    site = assemble("linux-x86_64")
    recipe: Any = SimpleNamespace(interpreter=BUNDLED)
    inside, members = bundled_interpreters.assemble(
        recipe, profile, context, site.members, tmp_path, SILENT, added=site.added
    )
    release = tmp_path / "release"
    for name, content in (members | inside.members).items():
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        (release / name).write_bytes(content.read_bytes() if isinstance(content, Path) else bytes(content))
        (release / name).chmod(0o755)
    native = release / "x86_64/site"
    sources = {path.relative_to(native).as_posix() for path in native.rglob("*.py")}
    assert {"cv2/config.py", "cv2/config-3.py"} <= sources  # cv2 opens them
    assert len(sources) < 10
    command = [release / "x86_64/python/bin/python3", "-I", "-S", "-B", "-c", PROGRAM, native, release / "site"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["shape"] == [24, 32, 3]
    assert answer["contours"] > 10
    assert answer["solved"] == 0.5
    assert [path for path in answer["mapped"] if not path.startswith(str(release))] == []


@pytest.mark.parametrize("target", ["linux-x86_64", "linux-aarch64"])
def test_what_travels_of_them(assemble: Assemble, target: str) -> None:
    site = assemble(target)
    machine = target.removeprefix("linux-")
    licenses = {package.name: package.license for package in site.packages}
    assert licenses == {
        "numpy": "NOASSERTION",  # its classifier is that of all BSD licences
        "onnxruntime": "MIT",
        "opencv-python-headless": "Apache-2.0",
        "pillow": "MIT-CMU",
    }
    names = [name.removeprefix(f"{machine}/site/") for name in site.members if name in site.added]
    assert "cv2/cv2.abi3.so" in names
    assert not [name for name in names if name.endswith((".pyi", ".pxd", ".a")) or "/tests/test_" in name]
    assert "numpy/_core/tests/_natype.py" in names  # numpy.testing imports it
    assert [name for name in site.members if name.startswith("licenses/numpy-2.2.6/")]
    assert site.needs.checks.notes == ()
    assert site.needs.libraries == ("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1")
    [numpy] = [package for package in site.packages if package.name == "numpy"]
    assert numpy.bytes_before - numpy.bytes_after > 6 * MIB


def test_they_are_unpacked_once_for_the_python_that_builds(lock: Path, tmp_path: Path) -> None:
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("the lock has wheels for CPython 3.11")
    try:
        folder = unpacked.unpacked_here(lock, BuildContext(), SILENT, tmp_path)
    except EnvironmentUnfitError:
        pytest.skip("pip has no network")
    program = "import sys; sys.path.append(sys.argv[1]); import cv2, numpy, PIL.Image; print(cv2.__version__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder], capture_output=True, text=True, check=True
    )
    assert done.stdout == "4.11.0\n"
    made = folder.stat().st_mtime_ns
    assert unpacked.unpacked_here(lock, BuildContext(), SILENT, tmp_path) == folder
    assert folder.stat().st_mtime_ns == made
