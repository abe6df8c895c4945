"""Clients that behave badly, one function each: what they send, and which answers a good server has for them.

Used by `python -m tools.soak` and by the tests. Short `--timeout` and `--idle` end them sooner.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

__all__ = ["ABUSES", "Abuse", "Answer", "Wire", "connected", "request"]

HOST = "127.0.0.1"
PAUSE = 0.1  # seconds between two bytes of a slow client
GONE = 0  # instead of a status: the connection was closed without an answer


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """A connection on which anything may be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    async def send(self, data: bytes) -> bool:
        """Whether the server still takes it."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            return False
        return not self._writer.is_closing() and not self.reader.at_eof()

    async def answer(self) -> Answer | None:
        """The next answer; None if the connection ends before it."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
            }
            status = int(first.split()[1])
            if headers.get("transfer-encoding") == "chunked":
                return Answer(status, headers, await self._chunks())
            return Answer(status, headers, await self.reader.readexactly(int(headers.get("content-length", "0"))))
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return body

    async def status(self) -> int:
        """The status of the next answer, or GONE."""
        answer = await self.answer()
        return answer.status if answer else GONE

    async def statuses(self) -> list[int]:
        """The status of every answer until the server closes the connection."""
        found = []
        while status := await self.status():
            found.append(status)
        return found

    def reset(self) -> None:
        """Go without a word: the server's next packet is refused."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def close(self) -> None:
        """Go."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def connected(port: int, *, window: int | None = None) -> AsyncIterator[Wire]:
    """A connection; a small window leaves little room for what is not read."""
    sock = socket.socket()
    sock.setblocking(False)
    if window is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    except BaseException:
        sock.close()
        raise
    limit = 1 << 16 if window is None else window
    wire = Wire(*await asyncio.open_connection(sock=sock, limit=limit))
    try:
        yield wire
    finally:
        await wire.close()


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """A request; its length is right unless a header says it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: here", *headers]
    if not any(header.lower().startswith(("content-length", "transfer-encoding")) for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _predict(body: bytes, *headers: str) -> bytes:
    return request("POST", "/v1/predict", body, *headers)


GOOD = _predict(b'{"texts": "topic"}')
HEALTH = request("GET", "/healthz")
CHUNKED = "Transfer-Encoding: chunked"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"

Act = Callable[[int], Awaitable[list[int]]]


class Abuse(NamedTuple):
    """A client that behaves badly, and what it may be answered; each list is one way in which it may end."""

    name: str
    act: Act
    endings: tuple[list[int], ...]


ABUSES: list[Abuse] = []


def _abuse(*endings: list[int]) -> Callable[[Act], Act]:
    def kept(act: Act) -> Act:
        ABUSES.append(Abuse(act.__name__, act, endings))
        return act

    return kept


def _sent(name: str, data: bytes, *endings: list[int]) -> None:
    """A client that sends this and waits for the end."""

    async def act(port: int) -> list[int]:
        async with connected(port) as wire:
            await wire.send(data)
            return await wire.statuses()

    ABUSES.append(Abuse(name, act, endings))


async def _endless(port: int, first: bytes, piece: bytes) -> list[int]:
    """Send a piece again and again until the server has enough."""
    async with connected(port) as wire:
        found = asyncio.create_task(wire.statuses())
        going = await wire.send(first)
        while going and not found.done():
            going = await wire.send(piece)
            await asyncio.sleep(0)
        return await found


async def _dripped(port: int, first: bytes, rest: bytes) -> list[int]:
    """Send the rest so slowly that it never ends."""
    async with connected(port) as wire:
        found = asyncio.create_task(wire.statuses())
        going = await wire.send(first)
        while going and not found.done():
            going = await wire.send(rest)
            await asyncio.wait([found], timeout=PAUSE)
        return await found


@_abuse([408])
async def slow_head(port: int) -> list[int]:
    return await _dripped(port, HEAD, b"X")


@_abuse([408])
async def slow_headers(port: int) -> list[int]:
    return await _dripped(port, HEAD, b"X: y\r\n")


@_abuse([408])
async def half_a_head(port: int) -> list[int]:
    return await _dripped(port, HEAD, b"")


@_abuse([503])
async def slow_body(port: int) -> list[int]:
    return await _dripped(port, _predict(b"", "Content-Length: 100000"), b" ")


@_abuse([503])
async def slow_chunks(port: int) -> list[int]:
    return await _dripped(port, _predict(b"", CHUNKED), b"1\r\n \r\n")


@_abuse([])
async def nothing_sent(port: int) -> list[int]:
    return await _dripped(port, b"", b"")


@_abuse([200])
async def nothing_more_sent(port: int) -> list[int]:
    return await _dripped(port, HEALTH, b"")


@_abuse([], [408])
async def slow_line_ends(port: int) -> list[int]:
    return await _dripped(port, b"", b"\r\n")


@_abuse([])
async def gone_in_mid_head(port: int) -> list[int]:
    async with connected(port) as wire:
        await wire.send(HEAD)
    return []


@_abuse([])
async def gone_in_mid_body(port: int) -> list[int]:
    async with connected(port) as wire:
        await wire.send(_predict(b"{", "Content-Length: 50"))
    return []


@_abuse([])
async def reset_in_mid_body(port: int) -> list[int]:
    async with connected(port) as wire:
        await wire.send(_predict(b"{", "Content-Length: 50"))
        wire.reset()
    return []


@_abuse([])
async def reset_before_the_answer(port: int) -> list[int]:
    async with connected(port) as wire:
        await wire.send(GOOD * 3)
        wire.reset()
    return []


def _large() -> bytes:
    """A small request for a large answer."""
    rows = b"text\n" + b"topic\n" * 9_000
    return request("POST", "/v1/predict/csv?top=100", rows)


@_abuse([])
async def reset_in_mid_answer(port: int) -> list[int]:
    async with connected(port) as wire:
        await wire.send(_large())
        await wire.reader.read(100)
        wire.reset()
    return []


@_abuse([])
async def answer_left_unread(port: int) -> list[int]:
    async with connected(port, window=4_096) as wire:
        for _ in range(3):
            if not await wire.send(_large()):
                break
        while not wire.reader.at_eof():  # a reset ends it too
            try:
                await asyncio.sleep(10 * PAUSE)
                if not await wire.send(b" "):
                    break
            except OSError:
                break
    return []


_sent("nested_arrays", _predict(b"[" * 100_000, "Connection: close"), [400])
_sent("nested_whole", _predict(b"[" * 100_000 + b"]" * 100_000, "Connection: close"), [400])
_sent("nested_objects", _predict(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "Connection: close"), [400])
_sent("nested_texts", _predict(b'{"texts":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "Connection: close"), [400])
_sent("giant_json", _predict(b'{"texts": "' + b"a" * 3_000_000 + b'"}'), [413])
_sent("giant_list", _predict(b'{"texts": [' + b'"",' * 300_000 + b'""]}', "Connection: close"), [422])
_sent("giant_number", _predict(b'{"texts": "a", "top": ' + b"9" * 900_000 + b"}", "Connection: close"), [400], [422])
_sent("giant_field", _predict(b'{"' + b"a" * 900_000 + b'": 1}', "Connection: close"), [422])
_sent("many_fields", _predict(json.dumps(dict.fromkeys(map(str, range(60_000)))).encode(), "Connection: close"), [422])
_sent("no_utf8", _predict(b'{"texts": "\xff\xfe"}', "Connection: close"), [400])
_sent("overlong_utf8", _predict(b'{"texts": "\xc0\xaf"}', "Connection: close"), [400])
_sent("utf16", _predict('{"texts": "a"}'.encode("utf-16"), "Connection: close"), [400])
_sent("lone_surrogate", _predict(b'{"texts": "\\ud800"}', "Connection: close"), [400])
_sent("raw_surrogate", _predict(b'{"texts": "\xed\xa0\x80"}', "Connection: close"), [400])
_sent("surrogate_in_the_address", request("GET", "/v1/labels/%ED%A0%80", b"", "Connection: close"), [404])
_sent("surrogate_in_a_query", request("GET", "/v1/labels?q=%ED%A0%80", b"", "Connection: close"), [200])
_sent("no_utf8_in_a_table", request("POST", "/v1/predict/csv", b"text\n\xff\n", "Connection: close"), [400])
_sent("nulls_in_a_label", request("PUT", "/v1/labels/a%00b", b'{"text": "topic"}', "Connection: close"), [422])

_BOMB = gzip.compress(b" " * 50_000_000)
for _kind in ("gzip", "deflate", "br", "gzip, gzip"):
    _sent(f"bomb_{_kind}", _predict(_BOMB, f"Content-Encoding: {_kind}", "Connection: close"), [415])
_sent("unnamed_bomb", _predict(_BOMB, "Connection: close"), [400])


@_abuse([431])
async def endless_headers(port: int) -> list[int]:
    return await _endless(port, HEAD, b"X: y\r\n" * 1_000)


@_abuse([431])
async def endless_header(port: int) -> list[int]:
    return await _endless(port, HEAD + b"X: ", b"y" * 10_000)


@_abuse([431])
async def endless_address(port: int) -> list[int]:
    return await _endless(port, b"GET /", b"y" * 10_000)


@_abuse([431], [])
async def endless_line_ends(port: int) -> list[int]:
    return await _endless(port, b"", b"\r\n" * 5_000)


@_abuse([413])
async def endless_body(port: int) -> list[int]:
    return await _endless(port, _predict(b"", CHUNKED), b"2710\r\n" + b" " * 10_000 + b"\r\n")


@_abuse([431])
async def endless_trailers(port: int) -> list[int]:
    return await _endless(port, _predict(b"1\r\n{\r\n0\r\n", CHUNKED), b"X: y\r\n" * 1_000)


@_abuse([431])
async def endless_trailer(port: int) -> list[int]:
    return await _endless(port, _predict(b"1\r\n{\r\n0\r\nX: ", CHUNKED), b"y" * 10_000)


@_abuse([431])
async def endless_chunk_extension(port: int) -> list[int]:
    return await _endless(port, _predict(b"1;a=", CHUNKED), b"y" * 10_000)


@_abuse([404])
async def endless_body_that_nobody_reads(port: int) -> list[int]:
    return await _endless(port, request("POST", "/nothing", b"", CHUNKED), b"2710\r\n" + b" " * 10_000 + b"\r\n")


@_abuse([404])
async def slow_body_that_nobody_reads(port: int) -> list[int]:
    return await _dripped(port, request("POST", "/nothing", b"", "Content-Length: 100000"), b" ")


_sent("many_headers", request("GET", "/healthz", b"", *["X: y"] * 20_000), [431])
_sent("long_header", request("GET", "/healthz", b"", "X: " + "y" * 60_000), [431])
_sent("long_address", request("GET", "/" + "y" * 60_000), [431])
_sent("longer_address", request("GET", "/" + "y" * 200_000), [400], [431])
_sent("long_query", request("GET", "/v1/labels?q=" + "y" * 30_000, b"", "Connection: close"), [422])

_sent("negative_length", _predict(b"{}", "Content-Length: -1"), [400])
_sent("no_length", _predict(b"{}", "Content-Length: x"), [400])
_sent("endless_length", _predict(b"{}", "Content-Length: " + "9" * 5_000), [400])
_sent("large_length", _predict(b"{}", f"Content-Length: {1 << 40}"), [413])
_sent("two_lengths", _predict(b"{}", "Content-Length: 2", "Content-Length: 3"), [400])
_sent("length_too_long", _predict(b"{}", "Content-Length: 20"), [503])
_sent("length_too_short", _predict(b'{"texts": "topic"}', "Content-Length: 2"), [422, 400], [400])
_SMUGGLED = request("DELETE", "/v1/labels/L0")
_sent("length_and_chunks", _predict(b"0\r\n\r\n" + _SMUGGLED, "Content-Length: 5", CHUNKED), [400])
_sent("chunks_and_length", _predict(b"0\r\n\r\n" + _SMUGGLED, CHUNKED, "Content-Length: 5"), [400])
_sent("odd_chunks", _predict(b"0\r\n\r\n" + _SMUGGLED, "Transfer-Encoding: xchunked"), [400])
_sent("chunks_not_last", _predict(b"0\r\n\r\n" + _SMUGGLED, "Transfer-Encoding: chunked, identity"), [400])
_sent("space_before_the_colon", _predict(b"0\r\n\r\n" + _SMUGGLED, "Transfer-Encoding : chunked"), [400])
_sent("chunk_of_no_size", _predict(b"zz\r\n", CHUNKED), [400])
_sent("chunk_of_endless_size", _predict(b"f" * 40 + b"\r\n", CHUNKED), [400])
_sent("request_behind_the_last", request("GET", "/healthz", b"", "Connection: close") + _SMUGGLED, [200])
_sent("bare_line_feeds", b"GET /healthz HTTP/1.1\nHost: here\nConnection: close\n\n", [200], [400])
_sent("folded_header", b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: a\r\n b\r\nConnection: close\r\n\r\n", [200], [400])
_sent("null_in_a_header", b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: a\x00b\r\n\r\n", [400])
_sent("another_protocol", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, [400])
_sent("http2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400])
_sent("unknown_method", b"NONSENSE / HTTP/1.1\r\nHost: here\r\n\r\n", [400])
_sent("tunnel", b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\n\r\n" + b"\x16\x03" * 50, [404], [405], [400])
_UPGRADE = ("Connection: Upgrade", "Sec-WebSocket-Key: aaaaaaaaaaaaaaaaaaaaaa==", "Sec-WebSocket-Version: 13")
_sent("websocket", request("GET", "/healthz", b"", "Upgrade: websocket", *_UPGRADE) + b"\x81\x85" * 50, [200])
_sent("pipelined", GOOD * 30 + request("GET", "/healthz", b"", "Connection: close"), [200] * 31)
_sent("pipelined_flood", HEALTH * 3_000 + request("GET", "/healthz", b"", "Connection: close"), [200] * 3_001)
_sent("pipelined_nonsense", GOOD * 3 + b"nonsense\r\n\r\n", [200] * 3 + [400], [200] * 3)
