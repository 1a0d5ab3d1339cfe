"""Context of a build besides recipe and data: target profiles, and packages for bundles."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.targets.profile_file import load_profiles
from edgepack.targets.profiles import Profile, check_host
from edgepack_runtime.util.fs import user_cache


def default_wheel_cache() -> Path:
    """The default folder for wheels."""
    return user_cache() / "wheels"


@dataclass(frozen=True)
class BuildContext:
    """Target profiles, and packages for bundles.

    Attributes:
        wheel_cache: folder with wheels, and packages of the interpreter, at `<sha256>/<file name>`.
        given: local wheels of each target.
        offline: fetch nothing.
    """

    profiles: Mapping[str, Profile] = field(default_factory=load_profiles)
    wheel_cache: Path = field(default_factory=default_wheel_cache)
    offline: bool = False
    given: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    def profile(self, target: str) -> Profile:
        """The profile of a recipe's target.

        Raises:
            RecipeInvalidError: there is none of this name.
            TargetUnreachableError: this machine cannot build for it.
        """
        profile = self.known(target)
        if not profile.glibc:
            check_host(profile)
        return profile

    def known(self, target: str) -> Profile:
        """The profile called `target`.

        Raises:
            RecipeInvalidError: there is none of this name.
        """
        if target in self.profiles:
            return self.profiles[target]
        near = difflib.get_close_matches(target, self.profiles, n=1)
        raise RecipeInvalidError(
            message("mistake.near_target", target=target, near=near[0])
            if near
            else message("mistake.unknown_target", target=target),
            why=message("mistake.known_are", names=", ".join(self.profiles)),
            fix=message("mistake.one_of_targets"),
        )
