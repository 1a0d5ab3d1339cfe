"""JSON log of the server: one object per line on stderr.

Log lines contain no text of a request. Errors are therefore logged by type and stack frames, without their message,
which might quote one; of lines of libraries, which may end with such a message, the first is logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from types import TracebackType
from typing import Any, Dict, List, Optional, TextIO, Tuple, Type

LOGGER = "edgepack.serve"
_FOREIGN = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
_MOST_PLACES = 20
_QUIET_S, _MOST_SAID = 10.0, 100
# uvicorn's about HTTP/2, which Java's client offers with each request, and does without.
_NEEDLESS = ("Unsupported upgrade request.", "No supported WebSocket library")
_ExcInfo = Tuple[Optional[Type[BaseException]], Optional[BaseException], Optional[TracebackType]]


class Formatter(logging.Formatter):
    """`{"time": ..., "level": ..., "event": ..., ...}` with the fields of `event`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: Dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage().partition("\n")[0],
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line.update(error(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)


class RepeatFilter(logging.Filter):
    """Lets a library say the same thing once in `_QUIET_S` seconds: a client may cause as many lines as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self._said: Dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, what = time.monotonic(), str(record.msg).partition("\n")[0]
        if what.startswith(_NEEDLESS) or now - self._said.get(what, -_QUIET_S) < _QUIET_S:
            return False
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said[what] = now
        return True


def configure(level: str, stream: Optional[TextIO] = None) -> logging.Logger:
    """Send what the server and its libraries log to `stream` (stderr), as JSON lines; return the server's logger."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter())
    for name in (LOGGER, *_FOREIGN):
        logger = logging.getLogger(name)
        logger.handlers = [handler] if name in (LOGGER, "uvicorn", "asyncio") else []
        logger.propagate = name.startswith("uvicorn.")
        logger.filters = [] if name == LOGGER else [RepeatFilter()]
        # Of other libraries, only warnings and errors are logged.
        logger.setLevel(level.upper() if name == LOGGER else max(logging.WARNING, logging.getLevelName(level.upper())))
    return logging.getLogger(LOGGER)


def event(logger: logging.Logger, level: int, name: str, **fields: Any) -> None:
    """Log the event `name` with `fields`."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": fields})


def error(exc_info: Any) -> Dict[str, Any]:
    """Log fields of an exception and its causes, without their messages."""
    kind, value, where = exc_info
    found = {"error": getattr(kind, "__name__", "unknown"), "where": _places(where)}
    cause = getattr(value, "__cause__", None)
    return found if cause is None else {**found, "cause": error((type(cause), cause, cause.__traceback__))}


def _places(where: Optional[TracebackType]) -> List[str]:
    frames = traceback.extract_tb(where)[-_MOST_PLACES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
