"""What a gate is told of golden rows that do not travel in the bundle."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import UsageError
from edgepack_runtime import gate_limits
from edgepack_runtime.manifest import Manifest


@dataclass(frozen=True)
class Rows:
    """The file that holds them, or that the other gates are to be judged alone; neither where they travel."""

    file: Path | None = None
    without: bool = False

    def arguments(self) -> list[str]:
        """Of the verb `gate`, on this machine."""
        given = [] if self.file is None else ["--rows", str(self.file.resolve())]
        return [*given, *(["--without-rows"] if self.without else [])]

    def read(self) -> bytes | None:
        """What goes to a device, which does not keep it.

        Raises:
            UsageError: the file cannot be read.
        """
        if self.file is None:
            return None
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read", why=error.strerror or str(error)) from error

    def require_of(self, bundle: str, manifest: Manifest) -> None:
        """That the file holds the rows of that bundle: known before a device is asked, which looks again.

        Raises:
            UsageError: it does not, or the bundle carries its rows.
            BundleInvalidError: the bundle's gates are none.
        """
        if self.file is None:
            return
        wanted = gate_limits.parse(manifest.gates).rows_sha256
        if wanted is None:
            raise UsageError("--rows is for bundles whose rows stayed at home", why=f"{bundle} carries them")
        found = hashlib.sha256(self.read() or b"").hexdigest()
        if found != wanted:
            raise UsageError(
                f"{self.file.name} does not hold the rows of {bundle}",
                why=f"its sha256 is {found}, and the manifest says {wanted}",
                fix="give the file that the build wrote beside this bundle",
            )
