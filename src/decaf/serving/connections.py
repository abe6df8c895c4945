"""Connections: how many there may be, how long they may do nothing, and how much they may send or leave unread."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from decaf.serving.problems import ProblemError, busy, head_too_large
from decaf.serving.settings import ServeSettings
from decaf.serving.telemetry import Telemetry

__all__ = ["SWEEP", "Connection", "Connections", "files_for"]

_SPARE = 256  # files that a worker needs besides connections
_SHARE = 16  # one in so many connections makes room for others when there are too many
_PATIENCE = 2.0  # seconds for a client to see why it was refused
SWEEP = 1.0  # seconds between two looks for connections that are overdue
_FRAMES = 8  # bytes on the wire for each byte of a body, if it comes in the smallest chunks
_IDLE, _HEAD, _BODY = range(3)  # what is being received


def files_for(connections: int) -> int:
    """How many connections there may be: as many as wanted, or as the system lets this process open files."""
    try:
        import resource
    except ImportError:  # no such limit here
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _SPARE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else max(min(connections, soft - _SPARE), 1)


class Connections:
    """All connections of a worker."""

    def __init__(self, settings: ServeSettings, telemetry: Telemetry) -> None:
        self.settings = settings
        self._telemetry = telemetry
        self._most = files_for(settings.connections)
        self._open: dict[Connection, None] = {}  # in the order in which they came
        self.now = 0.0  # seconds, but for those in which this process had no time to read what clients sent
        self._swept = time.monotonic()
        self._unread: dict[Connection, None] = {}  # those whose clients do not take what is sent, in that order

    def protocol(self) -> type[Connection]:
        """A connection of these, as a class."""

        class Member(Connection):
            family = self

        return Member

    def enter(self, connection: Connection) -> None:
        """One more; where there are too many, those that have done nothing for the longest time go."""
        if len(self._open) >= self._most:
            resting = sorted((one for one in self._open if one.resting), key=lambda one: one.since)
            for one in resting[: len(resting) // _SHARE + 1]:
                self.cut(one, "full")
        self._open[connection] = None
        if len(self._open) > self._most:
            self.counted("full")
            connection.refuse(busy())

    def leave(self, connection: Connection) -> None:
        """One less."""
        self._open.pop(connection, None)
        self._unread.pop(connection, None)

    def stalled(self, connection: Connection) -> None:
        """A client does not take its answer; where too much is left unread, those that began to do so first go."""
        self._unread[connection] = None
        sizes = {one: one.unsent for one in self._unread}
        total = sum(sizes.values())
        for one, size in sizes.items():
            if total <= self.settings.unsent_bytes:
                break
            total -= size
            self.cut(one, "unread")

    def moving(self, connection: Connection) -> None:
        """It takes it again."""
        self._unread.pop(connection, None)

    def cut(self, connection: Connection, reason: str) -> None:
        """Close a connection now, whatever is still to be sent."""
        self.counted(reason)
        self.leave(connection)
        connection.transport.abort()

    def counted(self, reason: str) -> None:
        """A connection was closed for a reason of ours."""
        self._telemetry.cut(reason)

    def sweep(self) -> None:
        """Close those that are too slow or have been idle for too long."""
        before, self._swept = self._swept, time.monotonic()
        self.now += min(self._swept - before, 2 * SWEEP)
        for connection in list(self._open):
            connection.look(self.now)
        self._telemetry.connections(len(self._open))


class _Calm:
    """uvloop's transport, which does nothing where it would raise since the client is gone: so do those of asyncio."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        if not self._transport.is_closing():
            self._transport.write_eof()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


class Connection(HttpToolsProtocol):
    """One connection: HTTP as uvicorn speaks it, within limits."""

    family: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self._receiving = _IDLE
        self._extra = 0  # bytes that are no body
        self._over = False  # nothing more is read
        self._mark: tuple[float, int] | None = None  # when so many bytes were unsent
        self.since = self.family.now  # when what it does now began
        super().connection_made(cast(asyncio.Transport, _Calm(transport)))
        self.family.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn forgets to if the connection was reset
        self.family.leave(self)

    @property
    def running(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def resting(self) -> bool:
        """Whether nobody would miss an answer if it were closed."""
        return not self.running and not self._over

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken."""
        return self.transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        """Read on, as far as a request may go."""
        if self._over:
            return
        self._extra += len(data)
        super().data_received(data)
        settings, answered = self.family.settings, self._receiving == _BODY and not self.running
        limit = settings.body_bytes if answered else settings.head_bytes
        if self._extra > limit and not self._over and not self.transport.is_closing():
            self.family.counted("large")
            self.refuse(head_too_large(settings.head_bytes))

    def pause_writing(self) -> None:
        """Much is unsent."""
        super().pause_writing()
        self._mark = None
        self.family.stalled(self)

    def resume_writing(self) -> None:
        """It was sent."""
        super().resume_writing()
        self._mark = None
        self.family.moving(self)

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        super().on_message_begin()
        self._receiving, self._extra, self.since = _HEAD, 0, self.family.now

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; those behind a body say nothing here."""
        if self._receiving == _HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        super().on_headers_complete()
        self._receiving, self._extra = _BODY, 0
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # what would come next is no HTTP

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if self.running:
            self._extra -= _FRAMES * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        super().on_message_complete()
        self._receiving, self._extra = _IDLE, 0

    def on_response_complete(self) -> None:
        """It is answered."""
        self.since = self.family.now
        if self._receiving == _BODY:
            self._extra = 0
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.refuse(ProblemError("bad_request", f"{msg.rstrip('.')}; this server speaks HTTP/1.1"))

    def refuse(self, problem: ProblemError) -> None:
        """Read no more; say why, unless an answer is under way, and close."""
        self._over = True
        waiting = self.running and self._receiving == _BODY and not self.pipeline and not self.cycle.response_started
        if waiting:  # for a body that will never be whole
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        elif self.running:
            self.cycle.keep_alive = False
            return
        self.since = self.family.now
        if waiting or self._receiving != _BODY:  # else it has its answer
            self.transport.write(self._told(problem))
        self.transport.write_eof()  # a connection that is closed while the client still sends would be reset

    def _told(self, problem: ProblemError) -> bytes:
        response = problem.response()
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        head = f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\n".encode()
        return head + b"".join(b"%s: %s\r\n" % header for header in headers) + b"\r\n" + bytes(response.body)

    def look(self, now: float) -> None:
        """Close it if it is overdue."""
        settings, waited = self.family.settings, now - self.since
        unsent = self.unsent
        if not unsent:
            self._mark = None
        elif self._mark is None or unsent < self._mark[1]:
            self._mark = now, unsent
        elif now - self._mark[0] > settings.idle:
            self.family.cut(self, "unread")
            return
        if self.transport.is_closing() or (self.running and self._receiving != _HEAD):
            return  # all that runs has limits of its own
        if self._over:
            if waited > _PATIENCE and not self.running:
                self.family.cut(self, "refused")
        elif self._receiving == _HEAD:
            if self.running or self.flow.read_paused:
                self.since = now  # it is not the client that is slow
            elif waited > settings.timeout:
                self.family.counted("slow")
                self.refuse(ProblemError("slow", "the head of the request did not come in time; send it at once"))
        elif self._receiving == _BODY:
            if waited > settings.timeout:
                self.family.cut(self, "slow")
        elif waited > settings.idle:
            self.family.counted("idle")
            self.transport.close()
