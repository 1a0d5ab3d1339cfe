"""Address of a gate's target: this machine, or a device reached over SSH."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from edgepack.errors import UsageError

LOCAL: Final = "local"
FORM: Final = "local | ssh://[USER@]HOST[:PORT][/PREFIX]"
_URL: Final = re.compile(
    r"ssh://(?:(?P<user>[^@/]*)@)?(?P<host>\[[^]/@]*]|[^:/@\[\]]*)(?::(?P<port>[^/]*))?(?P<prefix>/.*)?", re.DOTALL
)
# A leading `-` would be an option to ssh.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IPV6: Final = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)]")
_USER: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Address:
    """Address of a device. `prefix` is the folder of an install there, absolute or below `~/`; None: the default."""

    host: str
    user: str | None = None
    port: int | None = None
    prefix: str | None = None

    @property
    def name(self) -> str:
        """The URL without `ssh://`, as in messages and folder names."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        prefix = "" if self.prefix is None else "/" * self.prefix.startswith("~") + self.prefix
        return f"{self.login(host)}{'' if self.port is None else f':{self.port}'}{prefix}"

    @property
    def url(self) -> str:
        return f"ssh://{self.name}"

    @property
    def ssh_command(self) -> str:
        """The command to log in by hand: `ssh -p 2222 pi@line3`."""
        return f"ssh {'' if self.port is None else f'-p {self.port} '}{self.login(self.host)}"

    def login(self, host: str) -> str:
        """`USER@host`, or `host` if no user is named."""
        return host if self.user is None else f"{self.user}@{host}"


def parse(text: str) -> Address | None:
    """Parse an address; None is this machine.

    Raises:
        UsageError: it is invalid, or ssh could read a part of it as an option.
    """
    if text == LOCAL:
        return None
    found = _URL.fullmatch(text)
    if found is None:
        near = f"ssh://{text}" if "://" not in text and not text.startswith("-") else f"one of {FORM}"
        raise UsageError(f"{text!r} is not a target", why=f"a target is {FORM}", fix=f"--target {near}")
    user, host, port = found["user"], found["host"], found["port"]
    ipv6 = _IPV6.fullmatch(host)
    if not ipv6 and not _HOST.fullmatch(host):
        why = "use letters, digits, `.`, `_` and `-`, and no `-` at the start"
        raise _invalid(text, f"{host!r} is not a host name", why)
    if user is not None and not _USER.fullmatch(user):
        why = "an address cannot hold a password" if ":" in user else "use letters, digits, `.`, `_`, `+` and `-`"
        raise _invalid(text, f"{user.partition(':')[0]!r} is not a user name", why)
    if port is not None and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise _invalid(text, f"{port!r} is not a port", "use a number from 1 to 65535")
    return Address(ipv6[1] if ipv6 else host, user, None if port is None else int(port), _prefix(text, found["prefix"]))


def _prefix(text: str, path: str | None) -> str | None:
    folder = unquote(path or "").rstrip("/")
    if not folder:
        return None
    if _CONTROL.search(folder) or ".." in folder.split("/"):
        raise _invalid(text, f"{folder!r} is not a prefix of an install", "use an absolute path without `..`")
    return folder[1:] if folder == "/~" or folder.startswith("/~/") else folder


def _invalid(text: str, what: str, why: str) -> UsageError:
    without_password = re.sub(r"(ssh://[^@/:]*):[^@/]*@", r"\1:...@", text)
    return UsageError(f"{without_password}: {what}", why=why, fix=f"--target {FORM}")
