"""What a build of a recipe would download: models of the hub, and packages for its bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle import bundled_interpreters
from edgepack.messages import message
from edgepack.packages import wheels
from edgepack.packages.target_spec import target_specs
from edgepack.recipe import hub
from edgepack.recipe.findings import Finding
from edgepack.recipe.hub import HubModel
from edgepack.recipe.model import AnyRecipe, Recipe
from edgepack.targets.context import BuildContext
from edgepack.training import environment
from edgepack.util.text import mib


@dataclass(frozen=True)
class Downloads:
    """Models and packages that are not on this machine. `packages` holds names with versions."""

    models: tuple[HubModel, ...]
    packages: tuple[str, ...]
    offline: bool = False  # nothing may be fetched
    uninstalled: tuple[str, ...] = ()  # packages of this Python that the build needs; no build installs them

    def __bool__(self) -> bool:
        return bool(self.models or self.packages)

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """What is to be fetched, or missing."""
        parts = [_with_size(model) for model in self.models]
        if self.packages:
            parts.append(message("say.packages", n=len(self.packages)))
        if not parts:
            return message("say.no_files", names=self.uninstalled) if self.uninstalled else message("say.no_downloads")
        if self.offline:
            return message("say.missing_offline", parts=parts)
        return message("say.downloads", parts=parts)

    def findings(self, file: Path) -> list[Finding]:
        """The warning about what is not installed, with the fix that a build names. `file` is the recipe."""
        if not self.uninstalled:
            return []
        error = environment.not_installed(self.uninstalled[0])
        reason = message("mistake.with_why", what=error.what, why=error.why)
        return [Finding("warning", file, None, reason, error.fix)]


def missing(recipe: AnyRecipe, context: BuildContext) -> Downloads:
    """What a build of a resolved recipe would download. Nothing is fetched, and cached wheels are not checked.

    Raises:
        EnvironmentUnfitError: a lock is damaged, or a local wheel does not fit its target.
    """
    packages: dict[str, None] = {}
    for target in recipe.targets:
        profile = context.known(target)
        for spec in target_specs(recipe, profile):
            machine, lacking = spec.profile.machine, wheels.missing(spec, context)
            packages |= dict.fromkeys(f"{package.name} {package.version} {machine}" for package in lacking)
        packages |= dict.fromkeys(
            package.file_name for package in bundled_interpreters.missing(recipe, profile, context)
        )
    models = hub.models(recipe) if isinstance(recipe, Recipe) else ()
    uninstalled = environment.lacking() if recipe.needs_paddle else ()
    absent = tuple(model for model in models if not model.is_cached)
    return Downloads(absent, tuple(packages), context.offline, uninstalled)


def _with_size(model: HubModel) -> str:
    if model.size_bytes is None:
        return message("say.size_unknown", name=model.name)
    return message("say.of_size", name=model.name, size=mib(model.size_bytes))
