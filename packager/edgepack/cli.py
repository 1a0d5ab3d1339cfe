"""Command line of edgepack: the group of commands, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import tempfile
import traceback
from typing import Any, Final, NoReturn

import click

from edgepack import __version__
from edgepack.commands import options as common
from edgepack.errors import EdgepackError, EnvironmentUnfitError, UsageError
from edgepack.util import process
from edgepack.util.text import safe, safe_lines
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.util import signals, streams
from edgepack_runtime.util.fs import temporary_base

COMMANDS: Final = (
    "demo",
    "init",
    "check",
    "doctor",
    "plan",
    "build",
    "sweep",
    "targets",
    "fetch",
    "gate",
    "sign",
    "verify",
    "inspect",
    "image",
    "diff",
    "report",
    "receipts",
    "clean",
)  # in the order of a user's work
_OTHERS_WRITE: Final = 0o002  # bit of the mode that no file or folder gets, whatever the umask


class _Commands(click.Group):
    """Commands of `edgepack.commands`. Errors print what, why and fix to stderr, and set the exit code."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"edgepack.commands.{name}").command
        return found

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError as error:
            from edgepack.messages import message

            near = difflib.get_close_matches(arguments[0], COMMANDS, n=1)
            if not near:
                raise click.UsageError(message("usage.no_command", name=arguments[0]), context) from error
            raise click.UsageError(message("usage.near_command", name=arguments[0], near=near[0]), context) from error

    def main(self, *arguments: Any, **options: Any) -> Any:
        run: Any = super().main  # its overloads differ only in the return type
        if not options.pop("standalone_mode", True):
            return run(*arguments, standalone_mode=False, **options)
        os.umask(os.umask(0) | _OTHERS_WRITE)
        streams.open_closed()
        streams.go_on_without_stderr()
        process.name_stdout()
        with process.noticed() as arrived:
            try:
                with process.exit_on_broken_pipe():
                    self._run(run, *arguments, **options)
            finally:
                if arrived:
                    sys.exit(signals.exit_code(arrived[0]))

    def _run(self, run: Any, *arguments: Any, **options: Any) -> NoReturn:
        try:
            sys.exit(run(*arguments, standalone_mode=False, **options))
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(int(ExitCode.USAGE))
        except click.ClickException as error:
            where = getattr(error, "ctx", None)
            command = where.command_path if where else "edgepack"
            _end(UsageError(_said(error), fix=f"{command} --help"))
        except click.Abort:
            click.echo("interrupted", err=True)
            sys.exit(signals.exit_code(signal.SIGINT))
        except OSError as error:
            if isinstance(error, BrokenPipeError) or not _is_of_output(error):
                raise
            streams.redirect_to_devnull(1)
            _end(EnvironmentUnfitError("the output cannot be written", why=error.strerror or ""))

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with process.exit_on_broken_pipe():  # prints `--help`
            return super().make_context(*arguments, **options)

    def invoke(self, context: click.Context) -> Any:
        with process.exit_on_broken_pipe():
            return self._invoke(context)

    def _invoke(self, context: click.Context) -> Any:
        try:
            _choose_temporary_folder()
            return super().invoke(context)
        except EdgepackError as error:
            common.console(context).error(error, verbose=common.is_verbose(context))
            context.exit(int(error.exit_code))
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if _is_of_output(error):
                raise
            # An unexpected error.
            if common.is_verbose(context):
                click.echo(safe_lines("".join(traceback.format_exception(error)), ""), err=True)
            click.echo(safe(f"error: unexpected {type(error).__name__}: {error}"), err=True)
            click.echo("  fix: run again with -v and report it", err=True)
            context.exit(int(ExitCode.UNEXPECTED))


def _said(error: click.ClickException) -> str:
    """An error of the command line; of the frequent kinds as a message."""
    from edgepack.messages import message  # slow to import, as pydantic

    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        return message("usage.no_option", text=text, option=error.option_name)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return message("usage.missing", text=text, name=error.param.human_readable_name)
    return text


def _choose_temporary_folder() -> None:
    """Have all temporary files of this process lie where no other user can replace them."""
    try:
        tempfile.tempdir = temporary_base()
        if "TMPDIR" in os.environ:
            os.environ["TMPDIR"] = tempfile.tempdir  # the programs that are started follow no link of another user
    except FileNotFoundError:
        tempfile.tempdir = os.devnull  # not every command needs a folder; one that does fails
    except OSError as error:
        fix = "set TMPDIR to a writable folder of your own"
        raise EnvironmentUnfitError("there is no folder for temporary files", why=str(error), fix=fix) from error


def _end(error: EdgepackError) -> NoReturn:
    from edgepack.console.console import Console

    Console().error(error)
    sys.exit(int(error.exit_code))


def _is_of_output(error: Exception) -> bool:
    """Whether writing to stdout failed."""
    return isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.filename == process.STDOUT)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgepack")
@common.verbosity_options
def main() -> None:
    """One recipe in, one gated offline bundle out.

    \b
    edgepack demo                              the whole way of a small model, in a quarter of a minute
    edgepack init reviews.csv                  draft a recipe from a table of texts and labels
    edgepack build recipes/quickstart.yaml     train, distil, quantize, export, bundle, gate
    edgepack gate dist/NAME.edgepack           gate a finished bundle on this machine
    """


if __name__ == "__main__":
    sys.exit(main())
