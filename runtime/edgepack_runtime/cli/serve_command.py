"""The verb `serve`: turns its options into settings."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from importlib.util import find_spec

from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.serve import settings

LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
_OLDEST_PYTHON = (3, 10)


def run(options: argparse.Namespace, *, inside: bool) -> int:
    """Serve --model, or the model of this release, until a signal; return the exit code.

    Args:
        inside: whether this code runs from a release.

    Raises:
        UsageError: options contradict each other, or a library is missing.
        EnvironmentUnfitError: this Python is too old.
        EdgepackError: as `serve.server.serve`.
    """
    wanted = read(options)
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise _not_carried(missing[0], inside=inside)
    if sys.version_info < _OLDEST_PYTHON:
        raise EnvironmentUnfitError(
            "`serve` needs Python 3.10 or newer",
            why=f"this is Python {sys.version.split()[0]}, and the libraries of the server need more",
            fix="build the bundle with `interpreter: bundled`",
        )
    from edgepack_runtime.serve.server import DEFAULT_HOST, DEFAULT_PORT, Where, serve

    port = DEFAULT_PORT if options.port is None else options.port
    metrics = (options.metrics_host or DEFAULT_HOST, options.metrics_port)
    return serve(wanted, Where(options.host or DEFAULT_HOST, port, options.uds, options.fd, *metrics))


def check_carried(manifest: Manifest) -> None:
    """Check, before unpacking, that a bundle carries the libraries of this verb.

    Raises:
        UsageError: one is missing.
    """
    found = {entry.path.split("/")[1] for entry in manifest.files if entry.path.startswith("site/")}
    missing = [name for name in LIBRARIES if name not in found]
    if missing:
        raise _not_carried(missing[0], inside=True)


def read(options: argparse.Namespace) -> settings.Settings:
    """Settings from the command line; the token from a file or the environment.

    Raises:
        UsageError, EnvironmentUnfitError: as `Settings` and `settings.token`.
    """
    places = [f"--{name}" for name in ("host", "uds", "fd") if getattr(options, name) is not None]
    if options.port is not None and not places:
        places = ["--port"]
    if len(places) > 1:
        raise UsageError(f"{' and '.join(places)} exclude each other")
    if options.port is not None and places[0] in ("--uds", "--fd"):
        raise UsageError(f"{places[0]} has no port", fix="omit --port")
    if options.metrics_host is not None and options.metrics_port is None:
        raise UsageError("--metrics-host needs --metrics-port")
    token = settings.token(options.token_file, os.environ)
    names = tuple(name.lower() for name in options.allow_host or ())
    # Without a token, only known host names are accepted, against DNS rebinding by web pages.
    hosts = names if token and not names else (*settings.LOOPBACK_HOSTS, *names)
    # Fields of which the option was given; a release has no --model, and serves its own.
    values = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(settings.Settings)}
    given = {name: value for name, value in values.items() if value is not None}
    return settings.Settings(**{**given, "token": token, "hosts": hosts})


def _not_carried(library: str, *, inside: bool) -> UsageError:
    if inside:
        return UsageError(
            message("error.no_serve"),
            why=message("error.not_carried", library=library),
            fix=message("error.add_serve"),
        )
    fix = message("error.install_it", command="pip install 'edgepack[serve]'")
    return UsageError(message("error.serve_needs", library=library), fix=fix)
