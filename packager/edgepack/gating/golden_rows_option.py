"""Options of a gate for golden rows that the bundle does not carry."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.gate import rows
from edgepack_runtime.schema.gates import Limits


@dataclass(frozen=True)
class GoldenRowsOption:
    """The options `--rows FILE` and `--without-rows`; neither if the bundle carries its rows."""

    file: Path | None = None
    without: bool = False

    def arguments(self) -> list[str]:
        """Options of the verb `gate` on this machine."""
        given = [] if self.file is None else ["--rows", str(self.file.resolve())]
        return [*given, *(["--without-rows"] if self.without else [])]

    @cached_property
    def data(self) -> bytes | None:
        """The content of the file, read once.

        Raises:
            UsageError: the file cannot be read.
        """
        if self.file is None:
            return None
        return rows.read_file(self.file)

    def require_of(self, bundle: str, manifest: Manifest) -> None:
        """Check, before a device is reached, that the file holds the rows of the bundle. The device checks again.

        Raises:
            UsageError: it does not, or the bundle carries its rows.
            BundleInvalidError: the bundle's gates are invalid.
        """
        if self.file is None or self.data is None:
            return
        rows.require(self.data, self.file.name, Limits.parse(manifest.gates), bundle)
