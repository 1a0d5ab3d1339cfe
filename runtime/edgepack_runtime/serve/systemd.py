"""systemd unit of an installed release, hardened for a server on the loopback.

The unit is written into the prefix. The administrator enables it; nothing is started here.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shlex
from pathlib import Path
from typing import Iterator, List, Optional

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.model_config import CUDA
from edgepack_runtime.errors import UsageError
from edgepack_runtime.install import release_process
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.util.fs import fsync_folder, make_folder, os_errors, write_atomic

FOLDER = "systemd"
_HOMES = ("/home", "/root", "/run/user")  # protected by ProtectHome=
_UNIT = """\
# {name} over HTTP, on this machine only. The installer rewrites this file: put changes into a drop-in
# (systemctl edit {name}). After an update of the release: systemctl restart {name}
[Unit]
Description={name}: an offline model for texts over HTTP

[Service]
Type=notify
NotifyAccess=main
ExecStart={command} serve
Restart=on-failure
RestartSec=2
# A model that hangs: the server ends itself after 60 s (--stuck-s), and tells the watchdog nothing from 30 s on.
WatchdogSec=30
# A stop while the model is loaded.
SuccessExitStatus=143
# After a stop it answers new requests for 5 s (--drain-s), then for up to 10 s (--timeout-s) what has begun.
TimeoutStopSec=30
TimeoutStartSec=120

# For other machines: first a token,
#   sudo sh -c 'umask 077; head -c 24 /dev/urandom | base64 > /etc/{name}.token'
# then, with `sudo systemctl edit {name}`, a drop-in with these lines, and with the network that may ask:
#   [Service]
#   LoadCredential=token:/etc/{name}.token
#   ExecStart=
#   ExecStart={command} serve --host 0.0.0.0 --token-file ${{CREDENTIALS_DIRECTORY}}/token
#   IPAddressAllow=192.168.1.0/24
# and `sudo systemctl restart {name}`. They ask with the header `Authorization: Bearer TOKEN`.
IPAddressDeny=any
IPAddressAllow=localhost

# Limits for the model and the device; `{name} gate` prints its peak memory.
#MemoryMax=512M
#CPUQuota=200%
LimitNOFILE=4096

{who}
ProtectHome={home}
CapabilityBoundingSet=
LockPersonality=yes
NoNewPrivileges=yes
{devices}
PrivateMounts=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077

[Install]
WantedBy=multi-user.target
"""


# A GPU needs /dev/nvidia*, and a Jetson further devices of these groups.
_GPU_GROUPS = ("video", "render")
_NO_DEVICES = "PrivateDevices=yes\nPrivateUsers=yes"


def write(prefix: Prefix, name: str) -> Path:
    """Write the unit of the release installed in `prefix`; return its path.

    Raises:
        EnvironmentUnfitError: it cannot be written.
        BundleInvalidError: the release is damaged.
        UsageError: a unit cannot contain the path of the prefix.
    """
    path = prefix.root / FOLDER / f"{name}.service"
    provider = verify.read_manifest(prefix.current)[0].target.provider
    text = unit(
        prefix,
        name,
        interpreter=Path(release_process.carried_interpreter(prefix.current) or release_process.interpreter()),
        user=_user(),
        gpu=provider == CUDA,
    )
    with os_errors(f"the unit {path} cannot be written"):
        for made in make_folder(path.parent):
            fsync_folder(made.parent)
        write_atomic(path, text.encode("utf-8"))
    return path


def _user() -> str:
    """The name of this user, or its number if the system has no name for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def unit(prefix: Prefix, name: str, *, interpreter: Path, user: str, gpu: bool = False) -> str:
    """The text of the unit.

    Args:
        interpreter: the Python that the release runs on.
        user: the installing user. The server runs as this user if the release or Python is in a home; else as a dynamic
            user of systemd.
        gpu: whether the release runs on a GPU; the unit then allows its devices, with their groups on this machine.

    Raises:
        UsageError: a unit cannot contain the path of the prefix.
    """
    in_home = any(_is_below(path, home) for path in (prefix.root, interpreter) for home in _HOMES)
    return _UNIT.format(
        name=name,
        command=quoted(prefix.bin / name),
        who=f"User={user}" if in_home else "DynamicUser=yes",
        home="read-only" if in_home else "yes",
        devices="\n".join(_of_gpu()) if gpu else _NO_DEVICES,
    )


def _of_gpu() -> Iterator[str]:
    yield "# Devices of the GPU, and their groups:"
    yield "PrivateDevices=no"
    yield "PrivateUsers=no"
    groups = [group.gr_name for group in grp.getgrall() if group.gr_name in _GPU_GROUPS]
    if groups:  # systemd does not start a unit with an unknown group
        yield f"SupplementaryGroups={' '.join(sorted(groups))}"


def commands(path: Path) -> List[str]:
    """The commands that start the unit at `path` now and at every boot.

    A unit that another user than root may change is copied: who may change it decides as whom it runs.
    """
    own = all(place.stat().st_uid == 0 for place in (path, *path.resolve().parents))
    take = "systemctl link {}" if own else "install -m 644 {} /etc/systemd/system/"
    return [f"sudo {take.format(shlex.quote(str(path)))}", f"sudo systemctl enable --now {path.name}"]


def quoted(path: Path) -> str:
    """A path as `ExecStart=` takes it.

    Raises:
        UsageError: it holds a control character.
    """
    text = str(path)
    bad: Optional[re.Match[str]] = re.search(r"[\x00-\x1f\x7f]", text)
    if bad is not None:
        raise UsageError(f"no unit can name {text!r}", fix="install into a folder without control characters")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if re.search(r"[^0-9A-Za-z/._%$-]", escaped) else escaped


def _is_below(path: Path, folder: str) -> bool:
    return str(path) == folder or str(path).startswith(folder + "/")
