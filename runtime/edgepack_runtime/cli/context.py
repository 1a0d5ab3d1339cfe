"""Which bundle or release a command line means, and how its verbs tell what they found (standard library only)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, List, Mapping, Optional

from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import UsageError
from edgepack_runtime.install.prefix import Prefix, default_prefix
from edgepack_runtime.util.fs import os_errors, remove_tree


def say(text: str) -> None:
    """One line of progress for people."""
    print(text, file=sys.stderr, flush=True)


def emit(options: argparse.Namespace, result: Mapping[str, Any], text: str) -> None:
    """The result on stdout: `text` for people, or one line of JSON when asked for."""
    print(json.dumps(result, ensure_ascii=False, sort_keys=True) if options.json else text)


def elsewhere(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    """Run the verb in the named release, or in a temporary unpacked copy of the bundle."""
    from edgepack_runtime.install import release_process, trust

    path = named(options, context)
    if context.bundle is None:  # `edgert` names it; inside it is meant
        threads = ["--threads", str(options.threads)] if getattr(options, "threads", None) else []
        arguments = [options.verb, *threads, *_about_rows(options), *(["--json"] if options.json else [])]
    if path.is_dir():
        # Whose prefix it may lie in is not asked: keys beside it come from where it comes from.
        _, raw = verify.verify_folder(path)
        pins = trust.read_pins(None)
        trust.require(pins, path.name, raw, verify.read_signature(path))
        if pins:
            _drop_bytecode(path)
        return release_process.run(path, arguments)
    with release_process.unpacked(path, checked=context.bundle is None) as release:
        if options.verb == "gate":
            with Archive(path) as archive:
                arguments = [*arguments, "--bundle-bytes", str(archive.size)]
        return release_process.run(release, arguments, to_drain=options.verb == "serve")


def _about_rows(options: argparse.Namespace) -> List[str]:
    """What was said of the labelled rows of a gate."""
    given = ["--rows", str(options.rows)] if getattr(options, "rows", None) else []
    return [*given, *(["--without-rows"] if getattr(options, "without_rows", False) else [])]


def _drop_bytecode(release: Path) -> None:
    """Remove the bytecode of `release`: Python runs it instead of the files that were checked, and nobody signs it."""
    resolved = Path(os.path.realpath(release))
    prefix = Prefix.around(resolved)
    if prefix is not None:
        with os_errors(f"{release} lies beside bytecode that nobody checked, which cannot be removed"):
            remove_tree(prefix.bytecode_of(resolved))


def named(options: argparse.Namespace, context: Context) -> Path:
    """The bundle or release that is meant: the one named on the command line, or the one we run from."""
    path: Optional[Path] = getattr(options, "path", None) or context.bundle or context.release
    assert path is not None  # argparse insists on it where there is no context
    return path


def prefix_meant(options: argparse.Namespace, context: Context) -> Optional[Prefix]:
    """The prefix that a verb about an install means, if it is known."""
    prefix = Prefix(options.prefix.absolute()) if options.prefix else own_prefix(context)
    return Prefix(default_prefix(context.name)) if prefix is None and context.bundle is not None else prefix


def prefix_of(options: argparse.Namespace, context: Context) -> Prefix:
    """The prefix that a verb about an install means.

    Raises:
        UsageError: it does not say.
    """
    prefix = prefix_meant(options, context)
    if prefix is None:
        raise UsageError(f"{options.verb} needs to know where", fix=f"{context.prog} {options.verb} --prefix DIR")
    return prefix


def bundle_name(context: Context) -> Optional[str]:
    """The bundle that a bundle or a release means; `edgert` means whichever is installed."""
    return context.name if context.bundle or context.release else None


def own_prefix(context: Context) -> Optional[Prefix]:
    """The prefix that the running release is installed in; None for a bundle, and for a release not installed."""
    if context.release is None:
        return None
    prefix = Prefix.around(context.release)
    if prefix is None or context.release.parent != prefix.releases:
        return None
    # Either is enough: a lost state.json is rebuilt, and must not make a command look for its prefix and pinned keys
    # elsewhere. What `unpacked` makes has neither.
    return prefix if prefix.state_file.exists() or prefix.current.is_symlink() else None


def manifest_of(bundle: Path) -> contract.Manifest:
    with Archive(bundle) as archive:
        return contract.parse(archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES))
