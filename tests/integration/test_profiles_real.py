"""The wheels of every profile that computes on a CPU: each check passes, and there is nothing to tell of any of them.

They come from the cache (`$EDGEPACK_CACHE`) or through pip, as in a build; what cannot be had is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.packages import wheels
from edgepack.packages.site_packages import assemble
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import SILENT
from edgepack.targets import profile_file
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.model_config import CPU

pytestmark = pytest.mark.integration
# Those without a glibc are of this machine's own kind, and are unpacked by test_site_real.py.
KNOWN = profile_file.load_profiles()
NAMES = [name for name, one in KNOWN.items() if one.glibc and one.provider == CPU and len(one.machines) == 1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_locked_for_a_target_fits_it(name: str, tmp_path: Path) -> None:
    context = BuildContext()
    profile = context.profile(name)
    try:
        fetched = wheels.fetch(TargetSpec(profile, serve=True), context, SILENT)
    except EnvironmentUnfitError as error:
        pytest.skip(str(error))
    site = assemble(fetched, tmp_path / "assembled", profile)
    assert site.needs.checks.notes == ()
    found = {check.check: check for check in site.needs.checks.passed}
    assert found["ELF"].found == "2"
    assert found["glibc"].allowed == f"<= {profile.glibc}"
    assert found["libstdc++"].allowed == f"<= {profile.glibcxx}"
    assert (site.folder / "site" / "onnxruntime").is_dir()
