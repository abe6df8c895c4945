"""Before and after every request: keys, how many there are at once, problems as answers, and measures."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from decaf.errors import StoreError
from decaf.serving.problems import ProblemError, busy, head_too_large, late
from decaf.serving.service import Service
from decaf.serving.settings import ServeSettings

__all__ = ["Guard"]

log = logging.getLogger(__name__)

_PATIENCE = 2.0  # seconds for a client to stop sending what is too large, so that it sees the answer
_WRITING = ("PUT", "DELETE", "PATCH")
_LOAD = "/v1/model/reload"


def _opens(settings: ServeSettings, key: bytes, *, write: bool) -> bool:
    """Whether this key opens; compared in constant time."""
    keys = [settings.write_key] if write and settings.write_key else [settings.read_key, settings.write_key]
    if not keys[0]:
        return True
    return sum(hmac.compare_digest(key, wanted.encode()) for wanted in keys if wanted) > 0


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0
        # A model takes the time that it takes to load; all other answers begin in time, or say that they do not.
        limit = asyncio.timeout(None if scope["path"] == _LOAD else self._service.settings.timeout)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.draining:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        async def begun(message: Message) -> None:
            if not status:
                limit.reschedule(None)
            await sent(message)

        self._running += 1
        try:
            self._admit(scope)
            async with limit:
                await self._app(scope, receive, begun)
        except ClientDisconnect:
            status = status or 499  # nobody is there to answer
        except Exception as error:
            if status:
                raise  # too late for another answer
            problem = late() if isinstance(error, TimeoutError) and limit.expired() else _problem(scope, error)
            await _answer(problem, scope, receive, sent)
        finally:
            self._running -= 1
            self._service.telemetry.request(_route(scope), status, time.perf_counter() - started)

    def _admit(self, scope: Scope) -> None:
        """Raise a problem if the request may not come in."""
        path: str = scope["path"]
        settings = self._service.settings
        if _head_bytes(scope) > settings.head_bytes:
            raise head_too_large(settings.head_bytes)
        if not path.startswith("/v1/") and path != "/metrics":
            return
        write = scope["method"] in _WRITING or path == _LOAD
        if not _opens(settings, _key(scope), write=write):
            detail = "send the key for this as Authorization: Bearer KEY"
            raise ProblemError("unauthorized", detail, {"WWW-Authenticate": "Bearer"})
        if self._running > settings.concurrency:
            raise busy()


def _head_bytes(scope: Scope) -> int:
    """How long the head of a request is, about."""
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    return address + sum(len(name) + len(value) for name, value in scope["headers"])


def _key(scope: Scope) -> bytes:
    """The key that came with a request; empty if none did."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, key = value.partition(b" ")
            return key.strip() if kind.lower() == b"bearer" else b""
    return b""


def _route(scope: Scope) -> str:
    """The route's pattern: there are only so many."""
    route = scope.get("route")
    return getattr(route, "path_format", None) or "other"


def _problem(scope: Scope, error: Exception) -> ProblemError:
    """What the client is told; what it need not know is in the log."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, StoreError):
        log.error("%s %s failed: %s", scope["method"], scope["path"], error)
        return ProblemError("labels_unavailable", "changes of labels cannot be read or kept now; try again in a moment")
    told = "".join(traceback.format_exception(error))
    log.error("%s %s failed:\n%s", scope["method"], scope["path"], told)
    return ProblemError("internal", "the server failed; its log says why")


async def _answer(problem: ProblemError, scope: Scope, receive: Receive, send: Send) -> None:
    response = problem.response()
    if problem.code != "too_large":
        await response(scope, receive, send)
        return
    # A connection that is closed while the client still sends is reset, and the answer lost.
    await send({"type": "http.response.start", "status": problem.status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    try:
        async with asyncio.timeout(_PATIENCE):
            while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b""})
