"""A served model without a socket, and tests that are coroutines."""

from __future__ import annotations

import asyncio
import inspect
import io
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.serve.asgi import Held, started
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.serve import app as application
from edgepack_runtime.serve import logs
from edgepack_runtime.serve.middleware import Middleware
from edgepack_runtime.serve.settings import Settings

MakeApp = Callable[..., Middleware]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine; the application of the fixture `app`, if it has it, serves meanwhile."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run() -> None:
        if "app" not in given:
            await pyfuncitem.obj(**given)
            return
        async with started(given["app"]):
            await pyfuncitem.obj(**given)

    asyncio.run(run())
    return True


@pytest.fixture
def log() -> io.StringIO:
    """What the server logs."""
    return io.StringIO()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Every prediction of a server waits."""
    made, answer = Held(threading.Event(), threading.Event()), Predictor.timed_batch

    def slow(self: Predictor, items: Any, wanted: Any) -> Any:
        made.entered.set()
        assert made.go_on.wait(20)
        return answer(self, items, wanted)

    monkeypatch.setattr(Predictor, "timed_batch", slow)
    return made


@pytest.fixture
def make_app(tmp_path: Path, log: io.StringIO) -> Iterator[MakeApp]:
    """A factory of applications that were not started: `make_app(settings..., model=fields of ModelConfig)`."""
    # `configure` is for a process that does nothing but serve: afterwards all loggers are as before.
    loggers = [
        logging.getLogger(n) for n in ("edgepack.serve", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
    ]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def make(*, model: dict[str, Any] | None = None, **changes: Any) -> Middleware:
        folder = write_model_folder(tmp_path / "hotel", **(model or {}))
        settings = Settings(model=folder, log_level="debug", **changes)
        return application.application(settings, logs.configure("debug", log))

    yield make
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate, logger.level = handlers, propagate, level


@pytest.fixture
def app(make_app: MakeApp) -> Middleware:
    """A classifier of single texts, with the settings that `serve` has by default."""
    return make_app()
