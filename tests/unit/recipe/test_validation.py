"""The key that a recipe signs with: what is wrong with it is told before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.ssh_keys import make_key, needs_ssh_keygen, public

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import Recipe
from edgepack.stages.bundle import recipe_sha256

RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
student: {model: {scratch: {layers: 1, hidden: 32, heads: 2}}}
"""


def load(folder: Path, key: str | None) -> Recipe:
    file = folder / "recipe.yaml"
    file.write_text(RECIPE + (f"sign: {{key: {key}}}\n" if key else ""), encoding="utf-8")
    return load_recipe(file, {"local": ("onnxruntime",)}, (), {})


def finding(folder: Path, key: str) -> str:
    with pytest.raises(RecipeInvalidError) as caught:
        load(folder, key)
    (found,) = caught.value.findings
    assert found.line == 6
    return f"{found.reason}; {found.fix}"


@needs_ssh_keygen
def test_a_key_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    key = make_key(tmp_path / "keys", "release", passphrase="secret")
    for name in ("keys/release", "keys/release.pub", str(key)):
        sign = load(tmp_path, name).sign
        assert sign is not None
        assert Path(sign.key) == tmp_path / "keys" / Path(name).name
    (tmp_path / "both.pub").write_text(f"{public(key).line}\n" * 2)
    assert "holds 2 keys, and one signs" in finding(tmp_path, "both.pub")


@needs_ssh_keygen
def test_a_private_key_that_others_may_read_or_write_is_refused(tmp_path: Path) -> None:
    key = make_key(tmp_path, "release")
    assert recipe_sha256(load(tmp_path, "release")) == recipe_sha256(load(tmp_path, None))  # who signs changes nothing
    for mode in (0o644, 0o660, 0o604):
        key.chmod(mode)
        found = finding(tmp_path, "release")
        assert "is a private key that others may read or write; chmod 600" in found
        key.with_name("release.pub").chmod(mode)
        assert load(tmp_path, "release.pub").sign is not None


def test_what_is_no_single_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "none.pub").write_text("")
    assert "keys' is a folder" in finding(tmp_path, "keys")
    assert "nope' is not there" in finding(tmp_path, "nope")
    assert "holds 0 keys, and one signs" in finding(tmp_path, "none.pub")
