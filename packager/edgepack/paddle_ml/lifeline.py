"""Ends the processes of a training with the build that started them, even one that is killed and cannot say so.

The build holds a lock on a file, which the system lets go of when the build ends in whatever way; every process that
it started waits for that lock in a thread, and ends itself when it gets it. Threads of Python run while Paddle waits.

`python -m edgepack.paddle_ml.lifeline FILE MODULE [ARGUMENT]...` runs a module in that way.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Final

MODULE: Final = "edgepack.paddle_ml.lifeline"
_CUT_OFF: Final = 3  # exit status of a process whose build has ended: nobody is left to read it


class Lifeline:
    """The build's end. `cut` ends all that hang on it.

    Args:
        file: made here; on a file system of this machine.
    """

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def cut(self) -> None:
        """Let go."""
        os.close(self._descriptor)


def hang_on(file: Path) -> None:
    """End this process at once when the holder of `file` lets go or ends."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os._exit(_CUT_OFF)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def main() -> None:
    """Hang on the file, then be the module with its arguments."""
    file, module = sys.argv[1:3]
    hang_on(Path(file))
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
