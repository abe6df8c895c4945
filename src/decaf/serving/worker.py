"""A worker: answers requests in its process, keeps its model up to date, and ends without losing any."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from pathlib import Path

import torch
import uvicorn

from decaf.devices import few_heaps, hand_back
from decaf.errors import DecafError
from decaf.serving.app import create_app
from decaf.serving.connections import SWEEP, Connections
from decaf.serving.engine import Engine
from decaf.serving.service import Service
from decaf.serving.settings import ServeSettings

__all__ = ["work"]

_GRACE = 1.0  # seconds for kept-alive connections to ask once more before they are closed
_LOOK = 1.0  # seconds between two looks for another model
_TIDY = 30.0  # seconds between two times that freed memory is handed back
_SWITCH = 0.0005  # seconds until another thread has its turn: the one that scores works in short steps
_NEVER = 86_400  # seconds until uvicorn would close what is idle; that is done by sweeps
_HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]


def work(model: Path, settings: ServeSettings, listener: socket.socket) -> None:
    """Answer requests in this process until told to end."""
    few_heaps()
    sys.setswitchinterval(_SWITCH)
    torch.set_num_threads(settings.threads)
    chosen = {"watch": settings.watch, "verify": settings.verify}
    service = Service(Engine(model, settings.labels, threads=settings.threads, **chosen), settings)
    server = _Server(service)
    try:
        server.run(sockets=[listener])
    finally:
        service.close()
    if server.failure is not None:
        raise server.failure


class _Server(uvicorn.Server):
    """Loads the model, looks for another, and drains before it ends.

    A worker that is alone answers while it loads: that it is alive, and not ready yet. One of several takes no
    connection before it has loaded, as another one may be ready, and the server has said so.
    """

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._connections = Connections(settings, service.telemetry)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # clients that speak no HTTP are told, not logged
        super().__init__(
            uvicorn.Config(
                create_app(service),
                http=self._connections.protocol(),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # nothing here asks who the client is
                server_header=False,
                headers=_HEADERS,
                timeout_keep_alive=_NEVER,
                timeout_graceful_shutdown=round(settings.drain) or 1,
            )
        )
        self.failure: DecafError | None = None  # why no model could be loaded
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections."""
        if self._service.settings.workers > 1:
            await self._load()
        if not self.should_exit:
            await super().startup(sockets)

    async def main_loop(self) -> None:
        """Keep the model up to date until told to end."""
        keeping = [asyncio.create_task(task) for task in (self._keep(), self._sweep(), self._tidy())]
        try:
            await super().main_loop()
        finally:
            for task in keeping:
                task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, tell clients with their next answer, and finish what runs."""
        self._service.draining = True
        for server in self.servers:
            server.close()
        end = asyncio.get_running_loop().time() + _GRACE
        while self.server_state.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self._connections.sweep()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDY)
            await asyncio.to_thread(hand_back)

    async def _load(self) -> None:
        """Load the first model; without one, it is the end."""
        try:
            await self._service.load()
        except DecafError as error:
            self.failure, self.should_exit = error, True

    async def _keep(self) -> None:
        if self._service.settings.workers == 1:
            await self._load()
        while not self.should_exit:
            await asyncio.sleep(_LOOK)
            await self._service.follow()
