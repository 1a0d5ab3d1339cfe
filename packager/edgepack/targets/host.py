"""What this machine is, as far as a measurement made on it depends on it."""

from __future__ import annotations

import platform

from edgepack.versions import minor_version
from edgepack_runtime.device import cpu_model


def host_facts() -> dict[str, str]:
    """Processor, kernel architecture and Python's minor version: figures of another combination are not these."""
    return {
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "python": minor_version(platform.python_version()),
    }
