"""An application of its own, on the device, with the installed predictor."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.installing import Device, MakeBundle, silent

from edgepack_runtime.bundle.verify import verify_folder
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix

APPLICATION = """\
import fakelib
from edgepack_runtime.install import locate
print(fakelib.WHO, locate.locate_own_release().release.name)
"""


@pytest.fixture(scope="module")
def bundle(make_bundle: MakeBundle) -> Path:
    """One with the runtime's sources: an import could lay bytecode beside them."""
    return make_bundle(sources=True)


@pytest.fixture(scope="module")
def prefix(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("pre fix") / "it's")
    install(bundle, prefix.root, log=silent)
    return prefix


def test_an_application_finds_the_release_and_leaves_it_as_it_was(
    prefix: Prefix, device: Device, tmp_path: Path
) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    line = f'eval "$("{prefix.bin}/sentiment" env)"; exec "$EDGEPACK_PYTHON" application.py'
    done = device("/bin/sh", "-c", line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"the bundle {prefix.current_id()}\n"
    verify_folder(prefix.current.resolve())
    assert not list(tmp_path.rglob("*.pyc"))


def test_env_prints_json_for_an_install_and_refuses_a_bundle(bundle: Path, prefix: Prefix, device: Device) -> None:
    found = json.loads(device(prefix.bin / "sentiment", "env", "--json").stdout)
    release = prefix.releases / str(prefix.current_id())
    assert found["PYTHONPATH"] == f"{release}:{release / platform.machine() / 'site'}:{release / 'site'}"
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"
    assert Path(found["EDGEPACK_PYTHON"]).is_file()
    done = device(sys.executable, bundle, "env")
    assert done.returncode == 2
    assert "works only for an installed release" in done.stderr
