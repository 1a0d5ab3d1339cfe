"""Where a gate runs: `local`, or a device as `ssh://[user@]host[:port][/prefix]`."""

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
# What ssh, a ProxyCommand and a shell all take for a name: a leading `-` would be an option to the first.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IPV6: Final = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)]")
_USER: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Address:
    """A device. `prefix` is the folder of an install there, absolute or below `~/`; None: where the bundle would go."""

    host: str
    user: str | None = None
    port: int | None = None
    prefix: str | None = None

    @property
    def name(self) -> str:
        """What it is called in lines and files: as it was given, without `ssh://`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        prefix = "" if self.prefix is None else "/" * self.prefix.startswith("~") + self.prefix
        return f"{self.login(host)}{'' if self.port is None else f':{self.port}'}{prefix}"

    @property
    def url(self) -> str:
        return f"ssh://{self.name}"

    @property
    def typed(self) -> str:
        """What reaches it by hand: `ssh -p 2222 pi@line3`."""
        return f"ssh {'' if self.port is None else f'-p {self.port} '}{self.login(self.host)}"

    def login(self, host: str) -> str:
        """`host` with the user in front of it, if one was named."""
        return host if self.user is None else f"{self.user}@{host}"


def parse(text: str) -> Address | None:
    """The device that `text` names; None for this machine.

    Raises:
        UsageError: it is neither, or a name in it could be taken for something else.
    """
    if text == LOCAL:
        return None
    found = _URL.fullmatch(text)
    if found is None:
        near = f"ssh://{text}" if "://" not in text and not text.startswith("-") else f"one of {FORM}"
        raise UsageError(f"{text!r} is no target", why=f"a target is {FORM}", fix=f"--target {near}")
    user, host, port = found["user"], found["host"], found["port"]
    ipv6 = _IPV6.fullmatch(host)
    if not ipv6 and not _HOST.fullmatch(host):
        raise _wrong(text, f"{host!r} is no name of a host", "letters, digits, `.`, `_` and `-`, no `-` in front")
    if user is not None and not _USER.fullmatch(user):
        why = "a password never stands in an address" if ":" in user else "letters, digits, `.`, `_`, `+` and `-`"
        raise _wrong(text, f"{user.partition(':')[0]!r} is no name of a user", why)
    if port is not None and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise _wrong(text, f"{port!r} is no port", "a number from 1 to 65535")
    return Address(ipv6[1] if ipv6 else host, user, None if port is None else int(port), _prefix(text, found["prefix"]))


def _prefix(text: str, path: str | None) -> str | None:
    folder = unquote(path or "").rstrip("/")
    if not folder:
        return None
    if _CONTROL.search(folder) or ".." in folder.split("/"):
        raise _wrong(text, f"{folder!r} is no folder of an install", "an absolute path without `..`")
    return folder[1:] if folder == "/~" or folder.startswith("/~/") else folder


def _wrong(text: str, what: str, why: str) -> UsageError:
    shown = re.sub(r"(ssh://[^@/:]*):[^@/]*@", r"\1:...@", text)
    return UsageError(f"{shown}: {what}", why=why, fix=f"--target {FORM}")
