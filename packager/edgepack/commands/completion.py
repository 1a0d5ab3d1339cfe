"""`edgepack completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from edgepack.commands import common

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@common.speaking
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete edgepack's commands and options.

    \b
    bash   eval "$(edgepack completion bash)"          (4.4 or newer)
    zsh    eval "$(edgepack completion zsh)"
    fish   edgepack completion fish | source
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that this command offers"
    click.echo(kind(context.find_root().command, {}, "edgepack", "_EDGEPACK_COMPLETE").source())
