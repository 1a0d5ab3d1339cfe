"""HTTP errors: a status, a code for programs, a message for people.

400 not JSON, or not of the protocol    401 missing or wrong token     403 request of a page of another origin
404, 405 unknown path or method         408 the body was too slow      413 the body is too large
415 the body is compressed              421 unknown host name          422 texts that the model cannot process
429 the queue is full                   499 the client disconnected    500 the model failed
503 stopping, or not ready              504 no answer in time
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

GONE = 499


class HttpError(Exception):
    """Error response to a request.

    Args:
        status: HTTP status.
        code: stable identifier for programs.
        message: description for people, without any text of the request.
        fix: what the client can do.
        headers: additional response headers.
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
        """JSON body of the response; in the KServe v2 protocol `error` is a string."""
        message = f"{self.message}: {self.fix}" if self.fix else self.message
        if kserve:
            return {"error": message, "code": self.code, "request_id": request_id}
        found = {"code": self.code, "message": self.message, "request_id": request_id}
        return {"error": {**found, "fix": self.fix} if self.fix else found}


def malformed(message: str, fix: str = "") -> HttpError:
    """400: the request does not follow the protocol."""
    return HttpError(400, "malformed", message, fix=fix)


def unfit(message: str, fix: str = "") -> HttpError:
    """422: the request is well-formed, but the model cannot process it."""
    return HttpError(422, "unprocessable", message, fix=fix)


def overloaded(message: str, retry_after_s: int) -> HttpError:
    """429: the queue is full."""
    fix = f"try again in {retry_after_s} s"
    return HttpError(429, "queue_full", message, fix=fix, headers={"Retry-After": str(retry_after_s)})


def gone() -> HttpError:
    """499: the client disconnected. For log and metrics only, with nginx's status."""
    return HttpError(GONE, "client_gone", "the client disconnected before its answer")


def draining() -> HttpError:
    """503: the server is stopping."""
    return HttpError(503, "draining", "this server is stopping", fix="try again", headers={"Retry-After": "1"})


def expired(timeout_s: float) -> HttpError:
    """504: no answer in time."""
    return HttpError(
        504,
        "timeout",
        f"no answer within {timeout_s:g} s",
        fix="try again, send less at a time, or serve with a larger --timeout-s",
    )


def broken(what: str) -> HttpError:
    """500: the model failed."""
    return HttpError(500, "failed", what, fix="look for the request id in the server's log")
