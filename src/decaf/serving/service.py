"""What all routes share: the model, the queue before it, threads for other work, and the measures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from decaf.errors import DecafError
from decaf.serving.batching import Batcher, Lane
from decaf.serving.engine import Engine, Served
from decaf.serving.problems import ProblemError, late
from decaf.serving.settings import ServeSettings
from decaf.serving.telemetry import Telemetry

__all__ = ["Service", "json_response", "read_body"]

log = logging.getLogger(__name__)

_THREADS = 4  # for searches and tables
_LOADS = 4  # of a model, that may wait


class Service:
    """One worker's means to answer."""

    def __init__(self, engine: Engine, settings: ServeSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.telemetry = Telemetry()
        self.batcher = Batcher(engine, self.telemetry, queue=settings.queue, timeout=settings.timeout)
        self.lane = Lane(_THREADS, queue=settings.queue, timeout=settings.timeout)
        self.explaining = Lane(1, queue=settings.queue, timeout=settings.timeout)
        self.writing = Lane(1, queue=settings.queue, timeout=settings.timeout)  # a label is looked up, then changed
        self.loading = Lane(1, queue=_LOADS, timeout=None)
        self.draining = False

    @staticmethod
    def of(request: Request) -> Service:
        """The service of the app that a request came to."""
        service: Service = request.app.state.service
        return service

    async def load(self, *, tell: bool = False) -> Served:
        """Load the model anew; raises DecafError, and the old one stays, if the folder is bad."""
        try:
            served = await self.loading.run(self.engine.load, tell=tell)
        except DecafError:
            self.telemetry.refused()
            raise
        self.telemetry.loaded(served.version)
        return served

    async def follow(self) -> None:
        """Load the model anew if another one is there; a bad one is told once and left alone."""
        try:
            if await self.lane.run(self.engine.outdated):
                await self.load()
        except DecafError as error:
            log.error("the model that is served stays: %s", error)
        except ProblemError as problem:
            log.warning("could not look for another model: %s", problem)

    def measures(self) -> bytes:
        """All measures as Prometheus reads them."""
        try:
            labels = self.engine.current().predictor.labels
            self.telemetry.labels(labels.added + labels.hidden_count)
        except ProblemError:
            pass  # no model yet
        return self.telemetry.text()

    def close(self) -> None:
        """End all threads, and let go of all files."""
        for part in (self.batcher, self.lane, self.explaining, self.writing, self.loading):
            part.close()
        self.engine.close()


async def read_body(request: Request) -> bytes:
    """The body, no longer than it may be and no slower than a request may take."""
    settings = Service.of(request).settings
    if request.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise ProblemError("unsupported", "send the body as it is, not compressed", {"Accept-Encoding": "identity"})
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > settings.body_bytes:
        raise _too_large(settings.body_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.timeout):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > settings.body_bytes:
                    raise _too_large(settings.body_bytes)
    except TimeoutError:
        raise late() from None
    return b"".join(chunks)


def json_response(content: Mapping[str, Any], status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(to_json(content), status, media_type="application/json")


def _too_large(limit: int) -> ProblemError:
    return ProblemError("too_large", f"a body may have {limit} bytes; send less at once", {"Connection": "close"})
