"""Arguments and options that commands share; loading of recipes and writing of files."""

from __future__ import annotations

import functools
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from edgepack.build.options import STAGES, BuildOptions
from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack.util.text import json_text, safe
from edgepack_runtime.util.fs import write_atomic

if TYPE_CHECKING:
    from edgepack.console.console import Console
    from edgepack.recipe.model import AnyRecipe
    from edgepack.targets.context import BuildContext
    from edgepack.targets.profiles import Profile


def _remember_flag(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Callback of a flag that is allowed before and after the command's name."""
    assert parameter.name is not None
    flags: dict[str, bool] = context.ensure_object(dict)
    flags[parameter.name] = flags.get(parameter.name, False) or value


_VERBOSITY_OPTIONS = (
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        expose_value=False,
        callback=_remember_flag,
        help="Print results and errors only.",
    ),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_remember_flag,
        help="Show the traceback of an error.",
    ),
)


def verbosity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--quiet` and `--verbose`, which the group and every command take."""
    for option in reversed(_VERBOSITY_OPTIONS):
        command = option(command)
    return command


recipe_argument = click.argument("recipe", type=click.Path(dir_okay=False, path_type=Path))


class ExistingFile(click.Path):
    """A path that exists; a file, unless folders are allowed."""

    def __init__(self, *, dir_okay: bool = False) -> None:
        super().__init__(exists=True, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.path.lexists(value):
            from edgepack.messages import message

            raise click.UsageError(message("mistake.no_file", path=value), ctx)
        return super().convert(value, param, ctx)


existing_file = ExistingFile()


class DataFile(ExistingFile):
    """A file of rows, `file.xlsx#sheet`, or a folder of brat."""

    def __init__(self) -> None:
        super().__init__(dir_okay=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from edgepack.recipe.paths import on_disk

        super().convert(str(on_disk(Path(value))), param, ctx)
        return Path(value)


bundle_argument = click.argument("bundle", type=existing_file)
workspace_option = click.option(
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    show_default=".edgepack beside the recipe",
    help="Folder of stage results, which later builds reuse.",
)
settings_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a value of the recipe: `--set teacher.epochs=5`. Repeatable.",
)
dist_option = click.option(
    "--dist",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="dist beside the recipe",
    help="Folder for bundles that passed, and for reports.",
)
keep_going_option = click.option(
    "--keep-going", is_flag=True, help="Continue with other candidates or targets if one fails."
)
strict_option = click.option(
    "--strict", is_flag=True, help="Deliver no bundle whose gates are inconclusive, whatever the recipe says (exit 7)."
)
mlflow_option = click.option(
    "--mlflow",
    metavar="URI",
    help="Log the finished build to this MLflow tracking server. MLflow's variables for user, password and token hold; "
    "nothing is sent without this option.",
)
report_json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON instead of tables.")


def workspace_of(recipe: Path | None, chosen: Path | None) -> Path:
    """The folder of stage results: the `chosen` one, else `.edgepack` beside the recipe, or here without a recipe."""
    if chosen is not None:
        return chosen
    return Path(".edgepack") if recipe is None else recipe.parent / ".edgepack"


def console(context: click.Context) -> Console:
    """The console of this command. With `--quiet` it prints results and errors only."""
    from edgepack.console.console import Console

    return Console(quiet=context.ensure_object(dict).get("quiet", False))


def print_line(text: str) -> None:
    """Print one line to standard output. Names of files in it may come from outside."""
    click.echo(safe(text))


def say_json(document: object, **options: Any) -> None:
    """Print `document` as JSON to standard output. `options`: of `json.dumps`."""
    click.echo(json_text(document, **options))


def is_verbose(context: click.Context) -> bool:
    """Whether `--verbose` requests the traceback of an error."""
    return bool(context.ensure_object(dict).get("verbose", False))


PROFILES_FILE: Final = "edgepack-targets.toml"
PROFILES_VARIABLE: Final = "EDGEPACK_PROFILES"

profiles_option = click.option(
    "--profiles",
    type=existing_file,
    help=f"Target profiles of your own; else ${PROFILES_VARIABLE}, else {PROFILES_FILE} beside the recipe.",
)
wheel_cache_option = click.option(
    "--wheel-cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of fetched packages.  [default: wheels/ in edgepack's cache]",
)
_SOURCE_OPTIONS: Final = (
    profiles_option,
    wheel_cache_option,
    click.option(
        "--offline", is_flag=True, help="Fetch nothing: a package that is not in the wheel cache is an error."
    ),
    click.option(
        "--wheel",
        "wheels",
        type=existing_file,
        multiple=True,
        help="Local wheel to carry instead of the locked one, for the targets that it fits. Repeatable.",
    ),
)


@dataclass(frozen=True)
class SourceOptions:
    """Where profiles and packages come from: the values of `--profiles`, `--wheel-cache`, `--offline` and `--wheel`."""

    profiles: Path | None = None
    wheel_cache: Path | None = None
    offline: bool = False
    wheels: tuple[Path, ...] = ()


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--profiles`, `--wheel-cache`, `--offline` and `--wheel`; the command gets their values as `sources`."""

    @functools.wraps(command)
    def gathered(
        *inputs: Any,
        profiles: Path | None,
        wheel_cache: Path | None,
        offline: bool,
        wheels: tuple[Path, ...],
        **others: Any,
    ) -> Any:
        return command(*inputs, sources=SourceOptions(profiles, wheel_cache, offline, wheels), **others)

    wrapped: Callable[..., Any] = gathered
    for option in reversed(_SOURCE_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def known_profiles(profiles: Path | None, beside: Path) -> Mapping[str, Profile]:
    """The built-in profiles and those of the user's file: `profiles`, that of the variable, or one in `beside`."""
    from edgepack.targets.profile_file import load_profiles

    return load_profiles(profiles_file(profiles, beside))


def complete_target(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Names of targets that start with `typed`, for completion in the shell."""
    from edgepack.errors import EdgepackError

    try:
        known = known_profiles(context.params.get("profiles"), Path.cwd())
    except EdgepackError:  # completion has no place for errors; the command reports them
        return []
    return [name for name in known if name.startswith(typed)]


def profiles_file(profiles: Path | None, beside: Path) -> Path | None:
    """The user's file of profiles, if there is one."""
    if profiles is not None:
        return profiles
    if named := os.environ.get(PROFILES_VARIABLE):
        return Path(named)
    found = beside / PROFILES_FILE
    return found if found.is_file() else None


def load_recipe(
    recipe: Path, settings: Sequence[str], profiles: Path | None
) -> tuple[AnyRecipe, Mapping[str, Profile]]:
    """The recipe of a file with overrides `settings`, checked against the profiles; and the profiles."""
    from edgepack.recipe import loader
    from edgepack.recipe.model import OwnInterpreter
    from edgepack.targets.profiles import chosen
    from edgepack_runtime.bundle.manifest import OWN

    known = known_profiles(profiles, recipe.parent)
    loaded = loader.load_recipe(recipe, known, settings)
    interpreter = OWN if isinstance(loaded.interpreter, OwnInterpreter) else loaded.interpreter
    return loaded, chosen(known, loaded.targets, interpreter, loaded.cuda)


def load(
    recipe: Path, settings: Sequence[str] = (), sources: SourceOptions = SourceOptions()
) -> tuple[AnyRecipe, BuildContext]:
    """The recipe and the context of its build.

    Raises:
        RecipeInvalidError: the recipe or the user's profiles are invalid.
        UsageError: a wheel of the command line fits no target of the recipe.
    """
    from edgepack.packages import local_wheels, wheels
    from edgepack.targets.context import BuildContext, default_wheel_cache

    loaded, known = load_recipe(recipe, settings, sources.profiles)
    shares = {target: tuple(map(Path, files)) for target, files in loaded.wheels.items()}
    if sources.wheels:
        takers = {}
        for target in loaded.targets:
            profile = known[target]
            locked = wheels.locked_for(profile.on(profile.machines[0]), serve=loaded.serve)  # as of its other machine
            takers[target] = (profile, {one.name for one in locked})
        for target, files in local_wheels.shared_out(sources.wheels, takers).items():
            shares[target] = (*shares.get(target, ()), *files)
    cache = sources.wheel_cache or default_wheel_cache()
    return loaded, BuildContext(known, cache.absolute(), sources.offline, shares)


_STAGE_OPTIONS = (
    click.option("--until", type=click.Choice(STAGES), help="End after this stage."),
    click.option("--from", "start", type=click.Choice(STAGES), help="Run this stage and all later ones again."),
    click.option("--force", is_flag=True, help="Run every stage again."),
)


def stage_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--until`, `--from` and `--force`; the command gets them as `until`, `start` and `force`."""
    for option in reversed(_STAGE_OPTIONS):
        command = option(command)
    return command


def build_options(
    until: str | None, start: str | None, force: bool, *, keep_going: bool = False, strict: bool = False
) -> BuildOptions:
    """The build options of the command line.

    Raises:
        click.UsageError: `--force` with `--from`, or `--from` names a later stage than `--until`.
    """
    if force and start is not None:
        raise click.UsageError("--force runs every stage again; use it without --from")
    if until is not None and start is not None and STAGES.index(start) > STAGES.index(until):
        raise click.UsageError(f"--from {start} comes after --until {until}: no stage would run")
    return BuildOptions(until, start, force, keep_going, strict=strict)


def arguments(settings: Sequence[str], workspace: Path, sources: SourceOptions) -> list[str]:
    """The command line of these options, for another process: absolute paths."""
    found = ["--workspace", str(workspace.absolute())]
    for setting in settings:
        found += ["--set", setting]
    for name, path in (("--profiles", sources.profiles), ("--wheel-cache", sources.wheel_cache)):
        found += [] if path is None else [name, str(path.absolute())]
    for wheel in sources.wheels:
        found += ["--wheel", str(wheel.absolute())]
    return [*found, *(["--offline"] if sources.offline else [])]


def require_apart(written: Sequence[Path], read: Sequence[Path]) -> None:
    """Check that no input file is also an output file.

    Raises:
        UsageError: one is.
    """
    inputs = [file.resolve() for file in read]
    for file in written:
        if file.resolve() in inputs:
            raise UsageError(f"{file} is an input and an output")


def try_file(file: Path) -> None:
    """Check that `file` can be written, and create its folder.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not file.is_file():  # a pipe
            return
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise _unwritable(file, error) from error


def clear(file: Path) -> None:
    """Remove the output `file` of an earlier command, so that it is not mistaken for this one's.

    Raises:
        EnvironmentUnfitError: it cannot be removed.
    """
    try:
        if file.is_file():  # and no pipe
            file.unlink()
    except OSError as error:
        raise _unwritable(file, error) from error


def write(file: Path, text: str) -> None:
    """Replace `file` by `text`, with escapes for lone surrogates. A pipe or a device is written to, a link replaced.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    content = encoded(text)
    try:
        if file.exists() and not file.is_file() and not file.is_symlink():
            # Opened first, and neither followed nor cut: another user may put a link in its place meanwhile.
            descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "wb") as stream:  # noqa: PTH123 - of an open file
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    stream.write(content)
                    return
        write_atomic(file, content)
    except OSError as error:
        raise _unwritable(file, error) from error


def encoded(text: str) -> bytes:
    """UTF-8 with an escape for each lone surrogate."""
    return text.encode("utf-8", "backslashreplace")


def _unwritable(file: Path, error: OSError) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"{file} cannot be written", why=error.strerror or str(error), fix="check the folder and its disk"
    )
