"""ASGI application with the HTTP endpoints of one model.

`create` configures it from environment variables, for ASGI servers: `uvicorn --factory
edgepack_runtime.serve.app:create`, or gunicorn with `edgepack_runtime.serve.app:create()`. The model is loaded at
application startup, so each gunicorn worker loads its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, List, Mapping, MutableMapping, NamedTuple, Optional

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from edgepack_runtime import __version__
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.install import locate, trust
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.serve import kserve, logs, model_info, openapi, page, requests
from edgepack_runtime.serve.http_errors import HttpError
from edgepack_runtime.serve.kserve import ServedModel
from edgepack_runtime.serve.metrics import CONTENT_TYPE, Metrics
from edgepack_runtime.serve.middleware import METRICS, Controls, Middleware
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.serve.service import Service, predictions, timing
from edgepack_runtime.serve.settings import Settings, from_environment, service_links

_READ = ["GET"]  # starlette adds HEAD


class LoadedModel(NamedTuple):
    """A loaded model and its properties."""

    predictor: Predictor
    facts: ModelInfo


def create() -> Middleware:
    """Create the application from `EDGEPACK_SERVE_*` in the environment (see `settings`).

    Raises:
        UsageError, EnvironmentUnfitError: as `from_environment`.
    """
    settings = from_environment(os.environ)
    logger = logs.configure(settings.log_level)
    links = service_links(os.environ)
    if links:
        logs.event(logger, logging.WARNING, "ignored", variables=links, why="Kubernetes sets them for a Service")
    return application(settings, logger)


def load(settings: Settings) -> LoadedModel:
    """Load the model of `settings`.

    Raises:
        EdgepackError: as `Predictor`; if `settings.model` names a folder, as `trust.require_no_trusted_keys`.
    """
    if settings.model is None:
        found = locate.locate_own_release()
    else:
        # Where keys are trusted, what is served is signed by one of them, and no other folder.
        own = Prefix.containing(locate.OWN_FOLDER)
        trust.require_no_trusted_keys(own.root if own else None)
        found = locate.locate(settings.model)
    name, version = model_info.name_and_version(found)
    predictor = Predictor(
        found.model, threads=settings.threads, long_texts=settings.long, max_windows=settings.max_windows
    )
    return LoadedModel(predictor, model_info.from_predictor(predictor, name, version))


def application(
    settings: Settings,
    logger: logging.Logger,
    model: Optional[LoadedModel] = None,
    heartbeat: Callable[[], object] = lambda: None,
) -> Middleware:
    """The ASGI application; at startup it loads the model of `settings`, unless `model` is given.

    Args:
        heartbeat: called once a second while the model does not hang.
    """
    metrics = Metrics()
    routes = Routes(metrics)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loaded = model
        if loaded is None:
            loaded = await asyncio.get_running_loop().run_in_executor(None, load, settings)
        routes.service = Service(loaded.predictor, loaded.facts, settings, metrics)
        known = loaded.facts
        logs.event(logger, logging.INFO, "ready", model=known.name, version=known.version, engine=known.engine)
        watch = asyncio.get_running_loop().create_task(routes.service.watch(logger, heartbeat))
        yield
        watch.cancel()
        routes.service.close(logger)

    handlers: Mapping[Any, Any] = {HTTPException: routes.routing_error, Exception: _pass_on}
    app = Starlette(routes=routes.table(), lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # an unknown path is 404, not a redirect
    controls = Controls(drain=routes.drain, draining=routes.draining, give_up=routes.give_up, busy=routes.busy)
    return Middleware(app, settings, metrics, logger, controls, routes.route_of)


class Routes:
    """The endpoints. `service` is set at application startup."""

    def __init__(self, metrics: Metrics) -> None:
        self.service: Optional[Service] = None
        self._metrics = metrics

    def table(self) -> List[Route]:
        """All routes. Their paths are also the values of the label `route` in the metrics."""
        of_model = "/v2/models/{name}"
        of_version = of_model + "/versions/{version}"
        reads: Dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self.page,
            "/docs": self.docs,
            "/healthz": self.alive,
            "/readyz": self.ready,
            METRICS: self.metrics,
            "/model": self.model,
            "/openapi.json": self.openapi,
            "/v2": self.v2_server,
            "/v2/health/live": self.v2_live,
            "/v2/health/ready": self.v2_ready,
            of_model: self.v2_model,
            of_version: self.v2_model,
            f"{of_model}/ready": self.v2_model_ready,
            f"{of_version}/ready": self.v2_model_ready,
        }
        asks = {"/predict": self.predict, f"{of_model}/infer": self.v2_infer, f"{of_version}/infer": self.v2_infer}
        # Routes are matched in this order, so the most frequent ones come first.
        table = [Route(path, _routed(path, endpoint), methods=["POST"]) for path, endpoint in asks.items()]
        table += [Route(path, _routed(path, endpoint), methods=_READ) for path, endpoint in reads.items()]
        self._table = table
        return table

    def route_of(self, scope: MutableMapping[str, Any]) -> Optional[str]:
        """The path of the route that a request gets, whatever its method; None without one."""
        return next((route.path for route in self._table if route.matches(scope)[0] != Match.NONE), None)

    async def routing_error(self, request: Request, error: HTTPException) -> Response:
        """Convert starlette's own errors: unknown path or method. OPTIONS is answered with the methods."""
        # `OPTIONS *` asks about the server as a whole (RFC 9110, 9.3.7).
        if request.method == "OPTIONS" and (error.status_code == 405 or request.scope["path"] == "*"):
            allowed = (error.headers or {}).get("Allow", "GET, HEAD, POST")
            return Response(status_code=204, headers={"Allow": f"{allowed}, OPTIONS"})
        if error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "")
            message = f"{request.method} is not a method of this path"
            raise HttpError(405, "no_such_method", message, fix=f"use {allowed}", headers={"Allow": allowed})
        tidied = re.sub("/+", "/", request.scope["path"]).rstrip("/")  # without doubled slashes, and one at the end
        exists = tidied and tidied != request.scope["path"] and self.route_of({**request.scope, "path": tidied})
        fix = f"ask for {tidied}" if exists else "GET /openapi.json lists what there is"
        raise HttpError(404, "no_such_path", "there is nothing at this path", fix=fix)

    @property
    def running(self) -> Service:
        """The service.

        Raises:
            HttpError: the application has not started yet (503).
        """
        if self.service is None:
            raise HttpError(503, "starting", "the model is being loaded", headers={"Retry-After": "1"})
        return self.service

    def drain(self) -> None:
        """Be no longer ready; requests are still answered."""
        if self.service is not None:
            self.service.draining = True

    def draining(self) -> bool:
        return self.service is not None and self.service.draining

    def give_up(self) -> None:
        """Refuse all texts that are not answered yet."""
        if self.service is not None:
            self.service.give_up()

    def busy(self) -> bool:
        """Whether a batch is running."""
        return self.service is not None and self.service.batcher.running > 0

    async def page(self, request: Request) -> Response:
        return Response(page.MODEL.html, media_type="text/html", headers=page.MODEL.headers)

    async def docs(self, request: Request) -> Response:
        return Response(page.DOCS.html, media_type="text/html", headers=page.DOCS.headers)

    async def alive(self, request: Request) -> Response:
        why = self.service.why_dying() if self.service is not None else ""
        return _json({"status": why or "alive"}, 503 if why else 200)

    async def ready(self, request: Request) -> Response:
        why = self.running.why_unready()
        return _json({"status": why or "ready"}, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def model(self, request: Request) -> Response:
        settings = self.running.settings
        limits = {
            "max_texts": settings.max_texts,
            "max_body_kib": settings.max_body_kib,
            "max_batch": settings.max_batch,
        }
        return _json({**self.running.facts.as_json(), "limits": limits})

    async def openapi(self, request: Request) -> Response:
        service = self.running
        return _json(openapi.document(service.facts, service.settings, tuple(service.models)))

    async def predict(self, request: Request) -> Response:
        service = self.running
        service.admit()
        raw = await requests.read_body(request, service.settings)
        kind = request.headers.get("content-type", "")
        asked = requests.read(raw, kind, service.facts.item, service.settings.max_texts)
        request.scope["reservation"].hold(requests.memory_bytes(raw, asked.items), service.settings)
        del raw  # many requests may wait: each keeps no more than its items
        found = await service.answer(asked.items, request.scope["log_fields"], requests.disconnection(request))
        answers = [prediction.as_json(with_scores=asked.scores) for prediction in predictions(found)]
        timed = {"Server-Timing": timing(found).header()}
        response = _json({"predictions": answers} if asked.several else answers[0], headers=timed)
        return _held(request, response, service.settings)

    async def v2_server(self, request: Request) -> Response:
        return _json({"name": "edgepack", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def v2_live(self, request: Request) -> Response:
        why = self.service.why_dying() if self.service is not None else ""
        return _json({"live": not why}, 503 if why else 200)

    async def v2_ready(self, request: Request) -> Response:
        why = self.running.why_unready()
        return _json({"ready": not why}, 503 if why else 200)

    async def v2_model(self, request: Request) -> Response:
        return _json(self._named(request).metadata())

    async def v2_model_ready(self, request: Request) -> Response:
        why = self.running.why_unready()
        return _json({"name": self._named(request).name, "ready": not why}, 503 if why else 200)

    async def v2_infer(self, request: Request) -> Response:
        service, model = self.running, self._named(request)
        service.admit()
        raw = await requests.read_body(request, service.settings)
        document, tail = requests.split_json(raw, request.headers.get(kserve.HEADER_LENGTH))
        inference = model.parse(document, tail)
        request.scope["reservation"].hold(requests.memory_bytes(raw, inference.items), service.settings)
        del raw, document, tail  # as in `predict`
        found = await service.answer(inference.items, request.scope["log_fields"], requests.disconnection(request))
        timed = {"Server-Timing": timing(found).header()}
        answer, binary = model.response(inference, predictions(found))
        if not binary:
            return _held(request, _json(answer, headers=timed), service.settings)
        head = _json_bytes(answer)
        timed[kserve.HEADER_LENGTH] = str(len(head))
        response = Response(head + binary, headers=timed, media_type="application/octet-stream")
        return _held(request, response, service.settings)

    def _named(self, request: Request) -> ServedModel:
        """The model in the path."""
        models = self.running.models
        model = models.get(request.path_params["name"])
        if model is None:
            raise HttpError(404, "no_such_model", f"unknown model; this server has {', '.join(models)}")
        if request.path_params.get("version", model.version) != model.version:
            raise HttpError(404, "no_such_version", f"{model.name} is here in version {model.version}")
        return model


def _routed(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap `endpoint` to record its route's path for the metrics."""

    async def routed(request: Request) -> Response:
        request.scope["route_path"] = path
        return await endpoint(request)

    return routed


async def _pass_on(request: Request, error: Exception) -> Response:
    """Leave unexpected errors to the middleware: it knows the request id, and starlette would log request data."""
    raise error


def _held(request: Request, response: Response, settings: Settings) -> Response:
    """The response, whose memory is counted in place of its request's. Raises as `Reservation.hold`."""
    request.scope["reservation"].hold(len(response.body), settings)
    return response


def _json(document: Any, status: int = 200, headers: Optional[Mapping[str, str]] = None) -> Response:
    return Response(_json_bytes(document), status, headers, media_type="application/json")


def _json_bytes(document: Any) -> bytes:
    # Lone surrogates, which JSON may contain, are written as JSON escapes.
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
