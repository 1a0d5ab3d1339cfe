"""HTTP errors: a status, a code for programs, a message for people.

400 no JSON, or not the form of the protocol    401 no token, or another     403 sent for a page of another origin
404, 405 no such path or method                 408 the body came too late   413 the body is too large
415 the body is compressed                      421 another host is meant    422 the model cannot take these texts
429 the queue is full                           499 the client is gone       500 the model failed
503 stopping, or not ready                      504 no answer in time
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

GONE = 499


class HttpError(Exception):
    """A request that gets no prediction.

    Args:
        status: of HTTP.
        code: a word that programs may compare; it never changes.
        message: what is wrong, for people; never a text that was sent.
        fix: what to do about it.
        headers: of the response, besides the usual ones.
    """

    def __init__(
        self, status: int, code: str, message: str, *, fix: str = "", headers: Optional[Mapping[str, str]] = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fix = fix
        self.headers: Dict[str, str] = dict(headers or {})

    def document(self, request_id: str, *, kserve: bool) -> Dict[str, Any]:
        """The body of the response; in the KServe v2 protocol `error` is a string."""
        message = f"{self.message}: {self.fix}" if self.fix else self.message
        if kserve:
            return {"error": message, "code": self.code, "request_id": request_id}
        found = {"code": self.code, "message": self.message, "request_id": request_id}
        return {"error": {**found, "fix": self.fix} if self.fix else found}


def malformed(message: str, fix: str = "") -> HttpError:
    """The request is not what the protocol says."""
    return HttpError(400, "malformed", message, fix=fix)


def unfit(message: str, fix: str = "") -> HttpError:
    """The request is well-formed, and the model cannot be asked that."""
    return HttpError(422, "unprocessable", message, fix=fix)


def overloaded(message: str, retry_after_s: int) -> HttpError:
    """Try again later."""
    fix = f"try again in {retry_after_s} s"
    return HttpError(429, "queue_full", message, fix=fix, headers={"Retry-After": str(retry_after_s)})


def gone() -> HttpError:
    """Nobody is there to be answered: this is for log and metrics alone, with the number that nginx gave it."""
    return HttpError(GONE, "client_gone", "the client went away before its answer")


def draining() -> HttpError:
    """The server was told to stop."""
    return HttpError(503, "draining", "this server is stopping", fix="try again", headers={"Retry-After": "1"})


def expired(timeout_s: float) -> HttpError:
    """Nothing came of it in time."""
    return HttpError(
        504, "timeout", f"no answer within {timeout_s:g} s", fix="try again, or send fewer texts at a time"
    )


def broken(what: str) -> HttpError:
    """The model failed."""
    return HttpError(500, "failed", what, fix="look for the request id in the server's log")
