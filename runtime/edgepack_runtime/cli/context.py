"""The bundle, release or prefix that a command line means, and the output of results.

`predict` imports this module, so what only other verbs need is imported where it is used.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Tuple

from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import UsageError, printable, unheard
from edgepack_runtime.install.prefix import Prefix, default_prefix
from edgepack_runtime.messages import local, message
from edgepack_runtime.util import columns

if TYPE_CHECKING:
    from edgepack_runtime.bundle.manifest import Manifest


def log(text: str) -> None:
    """Print one line of progress to stderr."""
    print(printable(local(text)), file=sys.stderr, flush=True)


def print_result(options: argparse.Namespace, result: Mapping[str, Any], text: str) -> None:
    """Print a result to stdout: one line of JSON with --json, else `text`."""
    if options.json:
        print(printable(json.dumps(result, ensure_ascii=False, sort_keys=True)))
    elif sys.stdout.isatty():
        print(text)
    else:
        print(unheard(columns.wrapped(text, columns.asked())))  # other words begin the lines now


def delegate(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    """Run the verb in a temporary unpacked copy of the bundle; return the exit code.

    Raises:
        UsageError: a folder is given. Its files could change after they were checked, and before they run.
    """
    from edgepack_runtime.bundle.archive import Archive
    from edgepack_runtime.install import release_process

    path = bundle_or_release(options, context)
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder",
            why="only bundles run here; a release runs from the prefix in which it was installed",
            fix=f"give the .edgepack file, or type PREFIX/bin/NAME {options.verb}",
        )
    if context.bundle is None:  # `edgert` names the bundle or release; its own command line does not
        arguments = [options.verb]
        for name in ("threads", "rows"):
            value = getattr(options, name, None)
            arguments += [f"--{name}", str(value)] if value else []
        arguments += ["--without-rows"] if getattr(options, "without_rows", False) else []
        arguments += ["--json"] if options.json else []
    with release_process.unpacked(path, check_signature=context.bundle is None) as release:
        if options.verb == "gate":
            with Archive(path) as archive:
                arguments = [*arguments, "--bundle-bytes", str(archive.size)]
        code = release_process.run(release, arguments)
        if code:
            release_process.require_kept(release)
        return code


def bundle_or_release(options: argparse.Namespace, context: Context) -> Path:
    """The bundle or release on the command line, or else the running one."""
    path: Optional[Path] = getattr(options, "path", None) or context.bundle or context.release
    assert path is not None  # argparse requires it without a context
    return path


def find_prefix(options: argparse.Namespace, context: Context) -> Optional[Prefix]:
    """The prefix of a verb about an install: --prefix, the running release's, or a bundle's default."""
    if getattr(options, "prefix", None):
        return Prefix(options.prefix.absolute())
    return Prefix(default_prefix(context.name)) if context.bundle else running_prefix(context)


def verifying_prefix(options: argparse.Namespace, context: Context) -> Optional[Prefix]:
    """The prefix of which the trusted keys count for `verify`: as `find_prefix`, but none where there is no default."""
    try:
        return find_prefix(options, context)
    except UsageError:
        return None


def require_prefix(options: argparse.Namespace, context: Context) -> Prefix:
    """`find_prefix`, where no prefix is an error.

    Raises:
        UsageError: no prefix is given or known.
    """
    prefix = find_prefix(options, context)
    if prefix is None:
        what = message("error.needs_prefix", verb=options.verb)
        raise UsageError(what, fix=f"{context.prog} {options.verb} --prefix DIR")
    return prefix


def bundle_name(context: Context) -> Optional[str]:
    """The name of the running bundle or release; None for `edgert`, which accepts any."""
    return context.name if context.bundle or context.release else None


def running_prefix(context: Context) -> Optional[Prefix]:
    """The prefix of the running release; None for a bundle or a release that is not installed."""
    if context.release is None:
        return None
    prefix = Prefix.containing(context.release)
    if prefix is None or context.release.parent != prefix.releases:
        return None
    # Either file is enough, since a lost state.json is rebuilt. A temporary copy (`unpacked`) has neither.
    return prefix if prefix.state_file.exists() or prefix.current.is_symlink() else None


def require_installed(options: argparse.Namespace, context: Context) -> Tuple[Prefix, Path]:
    """The prefix and folder of the running release, for a verb that starts, or names, programs of that prefix.

    Such a verb takes no --prefix: any folder can look like an install and name any program.

    Raises:
        UsageError: a bundle or `edgert` runs, or a release that is not installed.
    """
    prefix = running_prefix(context)
    if prefix is None or context.release is None:
        name = "NAME" if bundle_name(context) is None else context.name
        raise UsageError(
            message("error.not_release", verb=options.verb),
            why=message("error.is_none", command=context.prog),
            fix=message("error.install_first", command=f"PREFIX/bin/{name} {options.verb}"),
        )
    return prefix, context.release


def read_bundle_manifest(bundle: Path, *, own: bool) -> Manifest:
    """The manifest of a bundle; of one that is not `own`, only if a key that is trusted for the machine signed it.

    Raises:
        BundleInvalidError: the bundle is damaged, or not signed by a trusted key.
        EnvironmentUnfitError: the signature cannot be checked here.
    """
    from edgepack_runtime.bundle import manifest as contract
    from edgepack_runtime.bundle import verify
    from edgepack_runtime.bundle.archive import Archive

    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
    if not own:
        from edgepack_runtime.install import trust

        trust.require(trust.read_trusted_keys(None), bundle.name, raw, signature)
    return contract.parse(raw)


@contextlib.contextmanager
def report_damage(release: Optional[Path]) -> Iterator[None]:
    """If the block fails and `release` is damaged, report the damage instead.

    A bundle that runs from its file was verified when it was unpacked; the interpreter there is a link.
    """
    try:
        yield
    except Exception:
        from edgepack_runtime.bundle import verify
        from edgepack_runtime.bundle.manifest import PYTHON_FOLDER

        if release is not None and not (release / os.uname().machine / PYTHON_FOLDER).is_symlink():
            verify.verify_folder(release)
        raise
