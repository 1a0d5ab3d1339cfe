"""Software release and power mode of a Jetson board, read from files.

No tool is run: `nvpmodel -q` may need root, and boards flashed without the SDK lack most tools. Nothing raises here;
unknown values are None.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, Optional

from edgepack_runtime.device.info import ROOT, read

# "# R36 (release), REVISION: 4.3, GCID: ..., BOARD: generic, EABI: aarch64, DATE: ..."
_RELEASE = re.compile(r"# R(\d+) \(release\), REVISION: ([\d.]+)")
_JETPACK_OF_RELEASE = {32: "4", 34: "5", 35: "5", 36: "6", 38: "7", 39: "7"}  # Jetson Linux release -> JetPack
_MODE = re.compile(r"pmode:(\d+)")


class JetsonFacts(NamedTuple):
    """`l4t` is the release of Jetson Linux, such as "36.4.3"; `jetpack` is JetPack's version or its major part."""

    l4t: Optional[str]
    jetpack: Optional[str]
    power_mode: Optional[str]


def facts(root: Path = ROOT) -> Optional[JetsonFacts]:
    """The facts of this board; None if it is not a Jetson."""
    found = _RELEASE.search(read(root / "etc/nv_tegra_release") or "")
    if found is None:
        return None
    major = int(found.group(1))
    installed = _installed_version("nvidia-jetpack", root)
    return JetsonFacts(
        l4t=f"{major}.{found.group(2)}",
        jetpack=installed.partition("+")[0] if installed else _JETPACK_OF_RELEASE.get(major),
        power_mode=power_mode(root),
    )


def power_mode(root: Path = ROOT) -> Optional[str]:
    """The power mode set by nvpmodel, such as "MAXN (0)". Clocks, cores and latencies depend on it."""
    status = _MODE.search(read(root / "var/lib/nvpmodel/status") or "")
    if status is None:
        return None
    number = int(status.group(1))
    model = rf"^<\s*POWER_MODEL\s+ID={number}\s+NAME=(\S+?)\s*>"
    name = re.search(model, read(root / "etc/nvpmodel.conf") or "", re.MULTILINE)
    return f"{name.group(1)} ({number})" if name else str(number)


def _installed_version(package: str, root: Path) -> Optional[str]:
    """The version of an installed Debian package, or None."""
    for entry in (read(root / "var/lib/dpkg/status") or "").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Package") == package and fields.get("Status", "").endswith(" installed"):
            return fields.get("Version")
    return None
