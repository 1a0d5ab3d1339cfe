"""What is wrong with the key that a recipe signs with, told before anything runs. The key itself is never kept."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.sources import beside, is_file, is_folder
from edgepack_runtime import sshsig

_WHERE: Final[KeyPath] = ("sign", "key")
_KIND: Final = "give a private SSH key, or the .pub file of one that an agent or a piece of hardware holds"


def check_sign(document: Document) -> Iterator[Problem]:
    """Where, reason and fix of each such finding."""
    value = document.get(*_WHERE)
    if not isinstance(value, str) or not value:
        return
    file = beside(document, value)
    if not is_file(file):
        there = "is a folder" if is_folder(file) else "is not there"
        fix = "`~` is not filled in: write `${HOME}`" if value.startswith("~") else _KIND
        yield _WHERE, f"`sign.key`: {value[:200]!r} {there}", fix
        return
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno())
            raw = opened.read(sshsig.MAX_SIGNERS_BYTES + 1)
    except OSError as error:
        yield _WHERE, f"`sign.key`: {value[:200]!r} cannot be read: {error.strerror}", "run as a user who may read it"
        return
    if b"PRIVATE KEY-----" in raw:
        # What ssh-keygen itself refuses, and only when it comes to sign.
        if mode.st_uid == os.geteuid() and mode.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            reason = f"`sign.key`: {value[:200]!r} is a private key that others may read or write"
            yield _WHERE, reason, f"chmod 600 {value[:200]}; if others were there, use a new key"
        return
    try:
        keys = sshsig.parse_signers(raw)
    except ValueError as error:
        yield _WHERE, f"`sign.key`: {value[:200]!r} is no SSH key: {error}", _KIND
        return
    if len(keys) != 1:
        yield _WHERE, f"`sign.key`: {value[:200]!r} holds {len(keys)} keys, and one signs", _KIND
