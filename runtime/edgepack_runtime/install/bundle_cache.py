"""Models of bundle files, unpacked into the user's cache for programs that import this package."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from pathlib import Path
from typing import Iterator

from edgepack_runtime.bundle import extract, verify
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.install import trust
from edgepack_runtime.util.fs import CACHE_VARIABLE, os_errors, remove_tree, require_safe_base, user_cache


def unpacked_model(bundle: Path) -> Path:
    """A release folder with the model of `bundle` and no other of its files: libraries are those of this Python.

    The signature and the digest of the file are checked at each call. So is each byte of a copy from an earlier call,
    against the manifest of `bundle`: one that differs is unpacked again. A copy's name is the release id, which has the
    manifest's digest. Only this user and root can write it, so that it stays as it was checked.

    Raises:
        UsageError: there is no file `bundle`.
        BundleInvalidError: it is damaged, or not signed by a key that is trusted for the machine.
        EnvironmentUnfitError: it cannot be read, its signature cannot be checked, or the cache cannot be written.
    """
    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
        trust.require(trust.read_trusted_keys(None), bundle.name, raw, signature)
        manifest = contract.parse(raw)
        files = tuple(entry for entry in manifest.files if entry.path.startswith(f"{MODEL_FOLDER}/"))
        wanted = dataclasses.replace(manifest, files=files, interpreters=())
        base = user_cache() / "bundles"
        with os_errors(f"{bundle.name} cannot be unpacked into {base}, which {CACHE_VARIABLE} moves"):
            base.mkdir(0o700, parents=True, exist_ok=True)
            folder = require_safe_base(base) / contract.release_id(manifest, raw)
            if _is_intact(archive, folder, wanted, raw):
                return folder
            verify.verify_archive(archive, raw)
            with _locked(base / ".lock"):
                if not _is_intact(archive, folder, wanted, raw):  # another process may have been faster
                    stage = folder.with_name(".tmp")
                    remove_tree(stage)
                    extract.extract(archive, wanted, stage, raw=raw, signature=None, durable=False)
                    verify.verify_staged(stage, wanted, raw, None)
                    remove_tree(folder)
                    stage.rename(folder)
            return folder


def _is_intact(archive: Archive, folder: Path, wanted: Manifest, raw: bytes) -> bool:
    """Whether the bundle is, which is refused if damaged, whatever the cache has; and its copy."""
    try:
        archive.check_digest()
        verify.verify_staged(folder, wanted, raw, None)
    except (UsageError, BundleInvalidError):  # there is no copy, or one of them is damaged
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock `path`; wait for another process, which holds it for as long as it unpacks one model."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
