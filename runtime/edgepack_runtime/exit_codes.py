"""Exit codes of every edgepack command, build side and device side alike.

Scripts and CI branch on these numbers, so they are part of the public contract: never renumber one.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What a process ends with. `docs/exit-codes.md` tells each code's meaning and the usual remedy."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    RECIPE_INVALID = 3
    ENVIRONMENT_UNFIT = 4
    STAGE_FAILED = 5
    GATE_FAILED = 6
    GATE_INCONCLUSIVE = 7
    BUNDLE_INVALID = 8
    TARGET_UNREACHABLE = 9
    ROLLED_BACK = 10
