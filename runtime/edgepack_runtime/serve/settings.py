"""Settings of the server: limits, token, hosts, log level.

The command `serve` builds `Settings` from its options. ASGI servers that import `app.create`, such as gunicorn, use
environment variables: `EDGEPACK_SERVE_MAX_BATCH=16`.
"""

from __future__ import annotations

import codecs
import dataclasses
import difflib
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgepack_runtime.bundle.model_config import TEXT, TEXTS
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.inference.windows import LONG_TEXTS, TRUNCATE
from edgepack_runtime.schema.maxima import MAX_THREADS
from edgepack_runtime.util.texts import counted

PREFIX = "EDGEPACK_SERVE_"
TOKEN_VARIABLE = "EDGEPACK_TOKEN"
LEAST_TOKEN = 16  # characters; a short one can be guessed
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOG_LEVELS = ("debug", "info", "warning", "error")
_MAX_TOKEN = 4096  # characters
_AROUND_TOKEN = 16  # bytes of a file: a byte order mark, line ends
# EDGEPACK_SERVE_PORT, _PORT_80_TCP_ADDR, _SERVICE_HOST, _SERVICE_PORT_HTTP and more of the kind
_LINK = re.compile(
    PREFIX[:-1] + r"(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))=.*"
    rf"|{PREFIX[:-1]}(_\w+)?_PORT(_[0-9]+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*"
)
MAX_TEXTS_KIB = 64  # default of `max_body_kib` for texts: to tokenize 64 KiB takes at most 50 ms
MAX_FILE_KIB = 16_384  # for files and JSON values
_STUCK_S = 60.0


def _number(default: Optional[float], least: float, most: float) -> Any:
    return dataclasses.field(default=default, metadata={"range": (least, most)})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits of the server, and access to it.

    Raises:
        UsageError: a value is out of range, or all hosts are allowed without a token.
    """

    model: Optional[Path] = None  # a model folder, a release or a prefix; None: the release this package lies in
    threads: Optional[int] = _number(None, 1, MAX_THREADS)  # of one batch; None: the result of `tune`
    workers: int = _number(1, 1, 64)  # batches that run at the same time
    max_batch: int = _number(8, 1, 256)  # texts
    max_wait_ms: float = _number(0.0, 0, 1000)  # maximum wait of texts for a full batch, while all workers are busy
    queue: int = _number(256, 1, 100_000)  # queued texts
    timeout_s: float = _number(10.0, 0.01, 3600)  # for a body to arrive; for an answer
    max_body_kib: Optional[int] = _number(None, 1, 65_536)  # None: as `for_item` finds right
    max_texts: int = _number(32, 1, 10_000)  # in one request
    token: Optional[str] = dataclasses.field(default=None, repr=False)
    hosts: Tuple[str, ...] = LOOPBACK_HOSTS  # accepted `Host` headers; empty: any, which needs a token
    long: str = TRUNCATE  # handling of texts with more tokens than the model reads, one of LONG_TEXTS
    max_windows: int = _number(256, 1, 1_000_000)  # of one text; 64 KiB of Chinese at `max_length` 128 have 232
    drain_s: float = _number(5.0, 0, 3600)  # between SIGTERM and the end of listening, for balancers to learn of it
    stuck_s: Optional[float] = _number(None, 0.1, 86_400)  # None: `_STUCK_S`, and at least three times `timeout_s`
    log_level: str = "info"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, (least, most) = getattr(self, field.name), field.metadata.get("range", (None, None))
            if None not in (value, least) and not least <= value <= most:  # refuses NaN too
                raise UsageError(f"{field.name} is {value}", fix=f"give a number from {least:g} to {most:g}")
        if self.max_texts > self.queue:
            raise UsageError(
                f"requests of {self.max_texts} texts never fit into a queue of {self.queue}",
                fix="make the queue at least as long as max_texts",
            )
        if self.log_level not in LOG_LEVELS:
            raise UsageError(f"there is no log level {self.log_level!r}", fix=f"one of: {', '.join(LOG_LEVELS)}")
        if self.long not in LONG_TEXTS:
            raise UsageError(f"long is {self.long!r}", fix=f"one of: {', '.join(LONG_TEXTS)}")
        if self.token is not None:
            _check_token(self.token)
        elif not self.hosts:
            raise UsageError(
                "a server that accepts any host name needs a token",
                why="any page in a browser on this machine could send requests to it",
                fix=f"put a token into {TOKEN_VARIABLE} or a file, or name the hosts",
            )

    @property
    def max_body_bytes(self) -> int:
        return (self.max_body_kib or MAX_TEXTS_KIB) * 1024

    @property
    def stuck_after_s(self) -> float:
        """Seconds after which a batch that does not end ends the process."""
        return max(_STUCK_S, 3 * self.timeout_s) if self.stuck_s is None else self.stuck_s

    def for_item(self, item: str) -> Settings:
        """These settings with the default of `max_body_kib` for items of this kind."""
        usual = MAX_TEXTS_KIB if item in (TEXT, TEXTS) else MAX_FILE_KIB
        return self if self.max_body_kib is not None else dataclasses.replace(self, max_body_kib=usual)


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Settings from `EDGEPACK_SERVE_*`, with the token in `EDGEPACK_TOKEN` or the file `EDGEPACK_SERVE_TOKEN_FILE`.

    `EDGEPACK_SERVE_HOSTS` is a comma-separated list; `*` allows any host.

    Raises:
        UsageError: a variable is unknown or its value invalid.
        EnvironmentUnfitError: the token's file cannot be read.
    """
    links = service_links(environment)
    own = {name: text for name, text in environment.items() if name.startswith(PREFIX) and name not in links}
    given = {name[len(PREFIX) :].lower(): text for name, text in own.items()}
    token_file = given.pop("token_file", None)
    if token_file == "":  # a template that was not filled in must not open the server
        raise UsageError(f"{PREFIX}TOKEN_FILE is empty", fix="name the file of the token, or unset it")
    fields = {field.name: field for field in dataclasses.fields(Settings) if field.name != "token"}
    values: Dict[str, Any] = {}
    for name, text in given.items():
        if name not in fields:
            near = difflib.get_close_matches(name, [*fields, "token_file"], n=1)
            hint = f"did you mean {PREFIX}{near[0].upper()}?" if near else "unset it"
            raise UsageError(f"{PREFIX}{name.upper()} is not a setting", fix=hint)
        values[name] = _parsed(fields[name], text)
    return Settings(**values, token=token(Path(token_file) if token_file else None, environment))


def service_links(environment: Mapping[str, str]) -> List[str]:
    """Variables that Kubernetes sets for a Service whose name begins with `edgepack-serve`; they are not settings."""
    return sorted(name for name, text in environment.items() if _LINK.fullmatch(f"{name}={text}"))


def token(file: Optional[Path], environment: Mapping[str, str]) -> Optional[str]:
    """The token in `file`, else in EDGEPACK_TOKEN; None without either.

    Raises:
        UsageError: it is too short, or contains other characters than printable ASCII.
        EnvironmentUnfitError: the file cannot be read.
    """
    found = environment.get(TOKEN_VARIABLE)
    if file is not None:
        try:
            with file.open("rb") as stream:
                raw = stream.read(_MAX_TOKEN + _AROUND_TOKEN)
        except OSError as error:
            raise EnvironmentUnfitError(f"the token's file {file} cannot be read", why=str(error.strerror)) from error
        found = (raw[len(codecs.BOM_UTF8) :] if raw.startswith(codecs.BOM_UTF8) else raw).decode("latin-1")
    if found is not None:
        found = found.strip()  # a line end, as Secrets have that were made of a file
        _check_token(found)
    return found


def _check_token(token: str) -> None:
    """Refuse tokens that are not valid in a header or easy to guess. The message does not contain the token."""
    why = ""
    if not all("!" <= character <= "~" for character in token):
        why = "it has a blank, or a character that is not printable ASCII"
    elif not LEAST_TOKEN <= len(token) <= _MAX_TOKEN:
        why = f"it has {counted(len(token), 'character')}; a token has {LEAST_TOKEN} to {_MAX_TOKEN}"
    if why:
        raise UsageError("the token cannot be used", why=why, fix="make one: head -c 24 /dev/urandom | base64")


def _parsed(field: dataclasses.Field[Any], text: str) -> Any:
    if field.name == "hosts":
        hosts = tuple(host.strip().lower() for host in text.split(",") if host.strip())
        return () if hosts == ("*",) else hosts or LOOPBACK_HOSTS
    if field.name == "model":
        return Path(text)
    if "range" not in field.metadata:
        return text
    try:
        number = float(text) if "float" in str(field.type) else int(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{PREFIX}{field.name.upper()} is {text!r}", fix="give a number")
    return number
