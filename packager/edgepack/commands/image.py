"""`edgepack image`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.commands import options

if TYPE_CHECKING:
    from edgepack.oci.image import WrittenImage


@click.command()
@options.verbosity_options
@click.argument("bundles", metavar="FILE...", nargs=-1, required=True, type=options.existing_file)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    show_default="NAME-VERSION.oci.tar beside the bundle",
    help="Write the image to this file.",
)
@click.option(
    "--model-only",
    is_flag=True,
    help="Only the model's files, for a Kubernetes image volume: NAME-VERSION.model.oci.tar.",
)
@click.option("--json", "as_json", is_flag=True, help="Print digests and sizes as JSON.")
@click.pass_context
def command(
    context: click.Context, bundles: tuple[Path, ...], output: Path | None, model_only: bool, as_json: bool
) -> None:
    """Write one container image (OCI archive) of the bundles FILE, with a variant for each of their machines.

    From scratch, for user 65532 and a read-only root; it serves over HTTP. No daemon and no network are needed.
    """
    from edgepack.console import build_tables
    from edgepack.oci import image

    console = options.console(context)
    written = image.write(bundles, output, model_only=model_only, progress=console)
    if as_json:
        options.say_json(written.as_json())
        return
    console.show([build_tables.image(written, live=console.is_terminal)])
    console.closing(_next_steps(written, model_only=model_only))


def _next_steps(written: WrittenImage, *, model_only: bool) -> list[str]:
    file = shlex.quote(str(written.file))
    lines = [
        f"wrote {written.file}",
        f"      {written.digest}",
        "",
        "to a registry:",
        f"  skopeo copy --all oci-archive:{file} docker://REGISTRY/{written.reference}",
    ]
    if not model_only:
        lines += [
            "here:",
            f"  podman load --input {file}",
            f"  podman run --rm --read-only --tmpfs /tmp -p 8000:8000 -e EDGEPACK_TOKEN localhost/{written.reference}",
        ]
    return lines
