"""Store of numbered receipts, one folder per device, for `edgepack receipts`.

Several gates may write to one folder at the same time. Each receipt has its own number, and readers see complete ones.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from edgepack.errors import EnvironmentUnfitError
from edgepack.util.folders import require_own
from edgepack_runtime.device.doctor import existing_parent
from edgepack_runtime.install.receipts import next_number
from edgepack_runtime.util.fs import FILE_MODE, fsync_folder, make_folder, set_mode

RECEIPT: Final = re.compile(r"([0-9]{6,12})-[a-z]+\.json\Z")
_TRIED_BYTES: Final = 256 * 1024  # larger than any receipt
_LONGEST_NAME: Final = 200
_FIX: Final = "name another folder with --receipts"


class ReceiptStore:
    """The numbered receipts in one device's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_target(cls, root: Path, target: str) -> ReceiptStore:
        """The store of a target, a folder below `root`."""
        return cls(root / folder_name(target))

    def require_writable(self) -> None:
        """Check that a receipt can be written, without creating anything.

        Raises:
            EnvironmentUnfitError: it cannot.
        """
        self._require_own()
        try:
            with tempfile.TemporaryFile(dir=existing_parent(self.folder)) as file:
                file.write(bytes(_TRIED_BYTES))
        except OSError as error:
            raise self._error(error) from error

    def keep(self, receipt: Mapping[str, Any]) -> Path:
        """Write a receipt under the next number.

        Raises:
            EnvironmentUnfitError: it cannot be written.
        """
        text = json.dumps(receipt, ensure_ascii=False, indent=1, sort_keys=True, allow_nan=False) + "\n"
        try:
            make_folder(self.folder)
            self._require_own()
            descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".tmp")
            temporary = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as out:
                    set_mode(out.fileno(), FILE_MODE)
                    out.write(text.encode("utf-8", "replace"))
                    out.flush()
                    os.fsync(out.fileno())
                path = self._numbered(temporary)
            finally:
                temporary.unlink(missing_ok=True)
            fsync_folder(self.folder)
        except OSError as error:
            raise self._error(error) from error
        return path

    def _require_own(self) -> None:
        """Refuse links and folders that another user, or a stick, may have planted beside a bundle."""
        for place in (self.folder, self.folder.parent):
            if place.is_symlink():
                raise self._error(OSError(errno.ELOOP, f"{place} is a link"))
        require_own(self.folder, fix=_FIX)

    def _numbered(self, temporary: Path) -> Path:
        """Give a complete file the next free number."""
        taken: set[int] = set()
        while True:
            taken |= {int(found[1]) for path in self.folder.iterdir() if (found := RECEIPT.match(path.name))}
            number = next_number(taken)
            taken.add(number)  # it may be claimed
            path = self.folder / f"{number:06d}-gate.json"
            with contextlib.suppress(FileExistsError):
                _rename_to_free(temporary, path)
                return path

    def _error(self, error: OSError) -> EnvironmentUnfitError:
        return EnvironmentUnfitError(
            f"the receipt cannot be kept in {self.folder}",
            why=error.strerror or str(error),
            fix=_FIX,
        )


def folder_name(target: str) -> str:
    """The folder name of a target's receipts, with `%XX` for characters that file systems do not allow.

    Different targets have different folders; a name that is too long ends in a digest.
    """
    name = quote(target, safe="@+").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}%{hashlib.sha256(target.encode()).hexdigest()[:32]}"
    return name


def _rename_to_free(temporary: Path, path: Path) -> None:
    """Rename to a free name, which a second file reserves: file systems of USB sticks have no hard links."""
    claim = path.with_name(f".{path.name}.claim")
    claim.touch(exist_ok=False)  # if it is left by a killed process, a number is lost
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "another receipt has this number", str(path))
        temporary.rename(path)
    finally:
        claim.unlink()
