"""The unit that `install --systemd` writes."""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgepack_runtime.cli import main
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import ExitCode, UsageError
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.serve import systemd

OUTSIDE = Context("edgert", None, None)


def written(root: str, python: str = "/usr/bin/python3") -> str:
    return systemd.unit(Prefix(Path(root)), "hotel", interpreter=Path(python), user="field")


@pytest.mark.parametrize(
    ("root", "python", "who", "home"),
    [
        ("/opt/hotel", "/usr/bin/python3", "DynamicUser=yes", "yes"),
        ("/home/field/.local/share/edgepack/hotel", "/usr/bin/python3", "User=field", "read-only"),
        ("/opt/hotel", "/root/.pyenv/versions/3.11.7/bin/python", "User=field", "read-only"),
        ("/homes/hotel", "/usr/bin/python3", "DynamicUser=yes", "yes"),
    ],
)
def test_the_unit_names_its_user(root: str, python: str, who: str, home: str) -> None:
    text = written(root, python)
    assert f"\n{who}\n" in text
    assert f"\nProtectHome={home}\n" in text
    assert f"\nExecStart={root}/bin/hotel serve\n" in text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/opt/a/bin/a", "/opt/a/bin/a"),
        ("/opt/a b/bin/a", '"/opt/a b/bin/a"'),
        ("/opt/50%/$x", "/opt/50%%/$$x"),
        ('/opt/"x\\', '"/opt/\\"x\\\\"'),
        ("/opt/酒店", '"/opt/酒店"'),
    ],
)
def test_the_unit_quotes_paths_or_refuses_them(path: str, expected: str) -> None:
    assert systemd.quoted(Path(path)) == expected
    with pytest.raises(UsageError):
        systemd.quoted(Path("/opt/a\nExecStart=/bin/sh"))


def test_a_release_on_a_gpu_sees_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\nPrivateDevices=yes\nPrivateUsers=yes\n" in written("/opt/hotel")
    here = [SimpleNamespace(gr_name=name) for name in ("root", "video", "render", "audio")]
    for groups, told in ((here, "SupplementaryGroups=render video\n"), (here[:1], "PrivateMounts=yes\n")):
        monkeypatch.setattr("grp.getgrall", lambda groups=groups: groups)
        text = systemd.unit(
            Prefix(Path("/opt/hotel")), "hotel", interpreter=Path("/usr/bin/python3"), user="field", gpu=True
        )
        assert f"\nPrivateDevices=no\nPrivateUsers=no\n{told}" in text


def test_install_writes_it_where_the_bundle_can_serve(
    make_bundle: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle, root = make_bundle(), tmp_path / "prefix"
    line = ["install", str(bundle), "--prefix", str(root), "--systemd"]
    assert main.run(line, OUTSIDE) == ExitCode.USAGE
    assert "built without `serve: true`" in capsys.readouterr().err
    assert not root.exists()
    monkeypatch.setattr("edgepack_runtime.cli.serve_command.LIBRARIES", ("fakelib.py",))
    assert main.run(line, OUTSIDE) == ExitCode.OK
    unit = root / "systemd" / "sentiment.service"
    take = f"systemctl link {unit}" if os.geteuid() == 0 else f"install -m 644 {unit} /etc/systemd/system/"
    assert f"sudo {take}\n  sudo systemctl enable --now sentiment.service" in capsys.readouterr().out
    parsed = configparser.RawConfigParser(strict=False)
    parsed.read_string(unit.read_text())
    assert parsed["Service"]["ExecStart"] == f"{root}/bin/sentiment serve"
    if os.geteuid() == 0:
        os.chown(unit.parent, 12345, 12345)  # who owns the folder may replace the unit, and systemd would obey it
        assert systemd.commands(unit)[0] == f"sudo install -m 644 {unit} /etc/systemd/system/"
        os.chown(unit.parent, 0, 0)
    names: dict[int, str] = {}
    monkeypatch.setattr("pwd.getpwuid", names.__getitem__)  # a user without a name
    assert main.run([*line, "--json"], OUTSIDE) == ExitCode.OK  # installed already: written again
    assert json.loads(capsys.readouterr().out)["systemd_unit"] == str(unit)
