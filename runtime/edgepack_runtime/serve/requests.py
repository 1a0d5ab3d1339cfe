"""Parser of requests: reads a body within limits, and returns its items."""

from __future__ import annotations

import asyncio
import base64
import codecs
import functools
import json
import sys
from typing import Any, Callable, Coroutine, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from starlette.requests import ClientDisconnect, Request

from edgepack_runtime.bundle.model_config import FILE, TEXT, TEXTS
from edgepack_runtime.inference.loaded_model import GraphInputs
from edgepack_runtime.serve import http_errors
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.settings import Settings
from edgepack_runtime.util.texts import Item, is_unseen, whole

_KEYS = ("text", "text_pair", "texts", "scores")
_SINGLE = 'send {"text": "..."} or {"texts": ["...", "..."]}'
MOST_VALUES = 1_000_000  # about, of a JSON document of a request or a response: half a second
_MOST_DIGITS = 4300  # of an integer: what Python 3.11 allows
_MOST_UNFINISHED = 1 << 26  # bytes of all bodies that are being received
_MOST_HELD = 1 << 28  # bytes of memory of those, of all requests that wait, and of all answers that clients take
_unfinished = _held = 0
# About the memory that parsed JSON takes for each of these: a small value and its place, a list, an object. In a BYTES
# tensor, JSON is text within JSON, where they may be written as escapes.
_VALUE_BYTES, _LIST_BYTES, _OBJECT_BYTES = 64, 96, 224
_BYTES_BY_MARK: Mapping[bytes, int] = {
    **dict.fromkeys((b",", b"\\u002c", b"\\u002C"), _VALUE_BYTES),
    **dict.fromkeys((b"[", b"\\u005b", b"\\u005B"), _LIST_BYTES),
    **dict.fromkeys((b"{", b"\\u007b", b"\\u007B"), _OBJECT_BYTES),
}
_PAIR = 'send {"text": "...", "text_pair": "..."} or {"texts": [["...", "..."], ...]}'
_UTF8 = "send JSON in UTF-8, whatever the charset of its `Content-Type`"
# The rest of a refused body is not read: the connection ends.
_CLOSE = {"Connection": "close"}


class PredictRequest(NamedTuple):
    """A request to `/predict`. `several`: the response is a list, even for one text."""

    items: List[Any]
    several: bool
    scores: bool


async def read_body(request: Request, settings: Settings) -> bytes:
    """The body of a request.

    Raises:
        HttpError: it is compressed (415), too large (413) or too slow (408), or there are too many (503).
    """
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        message = f"the body is compressed ({coding[:20]})"
        headers = {**_CLOSE, "Accept-Encoding": "identity"}
        raise HttpError(415, "compressed", message, fix="send it without `Content-Encoding`", headers=headers)
    try:
        return await asyncio.wait_for(_read(request, settings.max_body_bytes), settings.timeout_s)
    except asyncio.TimeoutError:
        message = f"the body did not arrive within {settings.timeout_s:g} s"
        raise HttpError(408, "body_timeout", message, headers=_CLOSE) from None
    except ClientDisconnect:
        raise http_errors.malformed("the connection ended before the end of the body") from None


def memory_bytes(raw: bytes, items: Sequence[Any]) -> int:
    """About the memory of the `items` of a request with the body `raw`, and not less than the body.

    JSON may take 40 times its bytes when it is parsed. Walking through its values would take as long as parsing them,
    so they are counted in the body.
    """
    if any(isinstance(item, (list, dict)) for item in items):
        marks = sum(size * raw.count(mark) for mark, size in _BYTES_BY_MARK.items())
        return len(raw) + min(marks, MOST_VALUES * _OBJECT_BYTES)  # marks also stand in texts, and beside the items
    return max(len(raw), sum(map(_item_bytes, items)))


def _item_bytes(item: Any) -> int:
    if isinstance(item, GraphInputs):
        return sum(len(tensor.data) for tensor in item.inputs.values())
    if isinstance(item, tuple):
        return sum(map(sys.getsizeof, item))
    return len(item) if isinstance(item, bytes) else sys.getsizeof(item)


class Reservation:
    """The memory that one request holds: that of its items, then that of its answer until the client has taken it."""

    def __init__(self) -> None:
        self._bytes = 0

    def hold(self, size_bytes: int, settings: Settings) -> None:
        """Count `size_bytes` instead of what was counted before. If no other request holds any, each size is accepted.

        Raises:
            HttpError: others hold too much already (503).
        """
        global _held
        others = _held - self._bytes
        if others and others + size_bytes > _most_held(settings.max_body_bytes):
            raise _busy("too many bodies wait for an answer, or answers for their clients")
        self._bytes, _held = size_bytes, others + size_bytes

    def release(self) -> None:
        global _held
        self._bytes, _held = 0, _held - self._bytes


def _most_held(most_of_body: int) -> int:
    return max(_MOST_HELD, 2 * most_of_body)


def _busy(message: str, headers: Optional[Mapping[str, str]] = None) -> HttpError:
    return HttpError(503, "busy", message, fix="try again later", headers={**(headers or {}), "Retry-After": "1"})


def parse_json(raw: bytes) -> Any:
    """The JSON document in `raw`, with or without a byte order mark (RFC 8259, 8.1).

    The content type is ignored, because KServe clients send none, and with it its charset, which JSON does not have.

    Raises:
        HttpError: it is not JSON (400).
    """
    if not raw:
        raise http_errors.malformed("the body is empty")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:4]:
        raise http_errors.malformed("the body is in UTF-16 or UTF-32", _UTF8)
    _require_few_values((raw,))
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_int=functools.partial(whole, most_digits=_MOST_DIGITS))
    except UnicodeDecodeError as error:
        raise http_errors.malformed(f"the body is not UTF-8 (byte {error.start + 1})", _UTF8) from None
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno} column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise http_errors.malformed(f"the body is not JSON{where}") from None


def parse_each(raws: Sequence[bytes]) -> List[Any]:
    """The JSON documents of one request, which have the number of values of one. Raises as `parse_json`."""
    _require_few_values(raws)
    return [parse_json(raw) for raw in raws]


def _require_few_values(raws: Sequence[bytes]) -> None:
    """All other requests wait for the parser."""
    if sum(raw.count(mark) for raw in raws for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise http_errors.malformed(f"the body has more than {MOST_VALUES} values", "send less at a time")


def split_json(raw: bytes, length: Optional[str]) -> Tuple[Any, bytes]:
    """The JSON at the start of a body, and the bytes after it; `length` is the header with the size of the JSON.

    Raises:
        HttpError: the header does not match the body, or it is not JSON (400).
    """
    if length is None:
        return parse_json(raw), b""
    if not length.isdecimal() or not length.isascii() or len(length) > 10 or int(length) > len(raw):
        raise http_errors.malformed("`Inference-Header-Content-Length` does not match the body")
    size = int(length)
    return parse_json(raw[:size]), raw[size:]


def disconnection(request: Request) -> Callable[[], Coroutine[Any, Any, None]]:
    """A coroutine that returns when the client of `request`, whose body was read, disconnects."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return wait


async def _read(request: Request, most: int) -> bytes:
    """The body; reading ends as soon as it is known to be longer than `most` bytes."""
    global _unfinished
    length = request.headers.get("content-length", "0")
    parts: List[bytes] = []
    size = int(length) if length.isdecimal() else 0
    if size <= most:
        size = 0
        try:
            async for part in request.stream():
                size += len(part)
                _unfinished += len(part)
                if size > most:
                    break
                too_many = _unfinished > max(_MOST_UNFINISHED, 2 * most)
                if too_many or _held + _unfinished > _most_held(most):
                    message = "too many bodies are on their way" if too_many else "too many bodies wait for an answer"
                    raise _busy(message, _CLOSE)
                parts.append(part)
        finally:
            _unfinished -= size
    if size > most:
        raise HttpError(
            413,
            "too_large",
            f"the body is larger than {most} bytes",
            fix="send less at a time, or serve with a larger --max-body-kib",
            headers=_CLOSE,
        )
    return b"".join(parts)


def read(raw: bytes, content_type: str, item: str, max_texts: int) -> PredictRequest:
    """Parse the body of `/predict` for a model of items of this kind.

    A file is the body itself, unless the body is JSON.

    Raises:
        HttpError: 400, 415 or 422, with the expected form.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if item == FILE and kind == "multipart/form-data":
        message = "the body is a form, and the model reads the file alone"
        raise HttpError(415, "form", message, fix="curl --data-binary @FILE URL", headers=_CLOSE)
    if item == FILE and kind != "application/json":
        if not raw:
            raise http_errors.unfit("the body is empty", "send the bytes of a file: curl --data-binary @FILE URL")
        return PredictRequest([raw], several=False, scores=False)
    document = parse_json(raw)
    if item in (TEXT, TEXTS):
        return parse(document, pairs=item == TEXTS, max_texts=max_texts)
    one = FILE if item == FILE else "item"
    form = f'send {{"{one}": ...}} or {{"{one}s": [..., ...]}}' + ("; files in base64" if item == FILE else "")
    if not isinstance(document, dict) or len(document) != 1 or not {one, f"{one}s"}.issuperset(document):
        raise http_errors.unfit(f"the body is not an object with `{one}` or `{one}s`", form)
    several = one not in document
    entries = document[f"{one}s"] if several else [document[one]]
    if not isinstance(entries, list) or not entries:
        raise http_errors.unfit(f"`{one}s` is a list with at least one item", form)
    return PredictRequest(values(entries, item, max_texts=max_texts, form=form), several, scores=False)


def values(entries: Sequence[Any], item: str, *, max_texts: int, form: str) -> List[Any]:
    """Check `entries` of a model with a handler; files are decoded from base64.

    Raises:
        HttpError: 422, with the number of the item.
    """
    require_few(len(entries), max_texts)
    found = []
    for number, entry in enumerate(entries, start=1):
        if entry is None:
            raise http_errors.unfit(f"item {number} is null", form)
        try:
            found.append(base64.b64decode(entry, validate=True) if item == FILE else entry)
        except (ValueError, TypeError):
            raise http_errors.unfit(f"file {number} is not base64", form) from None
    return found


def parse(document: Any, *, pairs: bool, max_texts: int) -> PredictRequest:
    """Parse the JSON body of `/predict` for a model of `pairs` or of single texts.

    Raises:
        HttpError: 422, with the expected form.
    """
    form = _PAIR if pairs else _SINGLE
    if not isinstance(document, dict):
        raise http_errors.unfit("the body is not a JSON object", form)
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise http_errors.unfit(f"there is no key {unknown[0][:60]!r}", f"the keys are {', '.join(_KEYS)}")
    scores = document.get("scores", False)
    if not isinstance(scores, bool):
        raise http_errors.unfit("`scores` is true or false")
    several = "texts" in document
    if several == ("text" in document):
        raise http_errors.unfit("the body has either `text` or `texts`", form)
    if several and "text_pair" in document:
        raise http_errors.unfit("`text_pair` belongs to `text`", form)
    entries = document["texts"] if several else [_entry(document, pairs=pairs)]
    if not isinstance(entries, list) or not entries:
        raise http_errors.unfit("`texts` is a list with at least one item", form)
    return PredictRequest(checked(entries, pairs=pairs, max_texts=max_texts, form=form), several, scores)


def checked(entries: Sequence[Any], *, pairs: bool, max_texts: int, form: str) -> List[Item]:
    """Convert `entries` to items of the model; a pair is a list of two texts.

    Raises:
        HttpError: 422; it has the number of the text, and never the text.
    """
    require_few(len(entries), max_texts)
    return [_item(entry, number, pairs, form) for number, entry in enumerate(entries, start=1)]


def require_few(count: int, most: int) -> None:
    """Refuse more than `most` items in one request (422)."""
    if count > most:
        raise http_errors.unfit(f"{count} texts are more than {most}", "send them in several requests")


def _entry(document: Mapping[str, Any], *, pairs: bool) -> Any:
    if not pairs and "text_pair" in document:
        raise http_errors.unfit("this model takes single texts, not pairs", "leave out `text_pair`")
    return [document["text"], document.get("text_pair")] if pairs else document["text"]


def _item(entry: Any, number: int, pairs: bool, form: str) -> Item:
    if not pairs:
        return _text(entry, number, form)
    if not isinstance(entry, list) or len(entry) != 2:
        raise http_errors.unfit(f"text {number} is not a pair of texts", form)
    found: Tuple[str, str] = (_text(entry[0], number, form), _text(entry[1], number, form))
    return found


def _text(value: Any, number: int, form: Optional[str]) -> str:
    if not isinstance(value, str):
        raise http_errors.unfit(f"text {number} is not a text", form or "")
    if is_unseen(value):
        raise http_errors.unfit(f"text {number} is empty", "remove it, or give it a text")
    return value
