"""Load and abuse of a real server: clear answers, bounded means, and ordinary clients that notice nothing."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from modules import topics
from serving import PATIENCE, Running, problem, running, until
from serving.conftest import TINY
from serving.test_app import called, predict, service_of

import decaf
from decaf.serving import ServeSettings, connections
from decaf.serving.connections import Connections, files_for
from decaf.serving.telemetry import Telemetry

sys.path.append(str(Path(__file__).parents[2]))

from tools.abuse import ABUSES, Abuse, Answer, connected, request

CROWD = 10_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    decaf.train(topics(), TINY, device="cpu", folder=folder)
    return folder


@pytest.fixture(scope="module")
def bounded(model: Path) -> Iterator[Running]:
    """A server that has little room and much time."""
    with running(model, connections=40, queue=3, unsent_bytes=300_000, idle=600, timeout=600) as server:
        server.client.close()  # its connection is counted too
        yield server


def asked(port: int, method: str, path: str, body: bytes = b"") -> Answer:
    """An answer, on a connection of its own."""

    async def ask() -> Answer | None:
        async with connected(port) as wire:
            await wire.send(request(method, path, body, "Connection: close"))
            return await wire.answer()

    answer = asyncio.run(ask())
    assert answer is not None
    return answer


def measure(port: int, name: str) -> float:
    """A measure of a server; 0 where it was never set."""
    lines = asked(port, "GET", "/metrics").body.decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


def cut(port: int, reason: str) -> float:
    return measure(port, f'decaf_connections_closed_total{{reason="{reason}"}}')


def fine(port: int) -> None:
    """A client that comes now is served."""
    answer = asked(port, "POST", "/v1/predict", b'{"texts": "topic aa", "top": 1}')
    assert answer.status == 200
    assert json.loads(answer.body)["predictions"][0]["labels"][0]["id"] == "L0"
    assert asked(port, "PUT", "/v1/labels/new", b'{"text": "topic aa"}').status == 201
    assert asked(port, "DELETE", "/v1/labels/new").status == 204


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, json.loads(answer.body)["code"]


def empty(port: int) -> None:
    """All connections are gone but the one that asks."""
    until(lambda: measure(port, "decaf_connections") <= 1, "an end of all connections")


async def ordinary(port: int, over: asyncio.Event) -> Counter[int]:
    """A client that asks all the time, on a new connection each time."""
    found = Counter[int]()
    while not over.is_set():
        async with connected(port) as wire:
            await wire.send(request("POST", "/v1/predict", b'{"texts": "topic aa"}', "Connection: close"))
            found[await wire.status()] += 1
        await asyncio.sleep(0.05)
    return found


async def endings(port: int, abuses: Sequence[Abuse]) -> tuple[dict[str, list[int]], Counter[int]]:
    """What becomes of each, several at a time, and of ordinary clients meanwhile."""
    room, over = asyncio.Semaphore(16), asyncio.Event()
    others = asyncio.create_task(ordinary(port, over))

    async def one(abuse: Abuse) -> list[int]:
        async with room, asyncio.timeout(PATIENCE):
            return await abuse.act(port)

    found = await asyncio.gather(*map(one, abuses))
    over.set()
    return {abuse.name: ending for abuse, ending in zip(abuses, found, strict=True)}, await others


def test_every_kind_of_abuse_has_its_answer_and_others_notice_nothing(model: Path) -> None:
    with running(model, timeout=3, idle=4) as server:
        server.client.close()
        found, others = asyncio.run(endings(server.port, ABUSES))
        expected = {abuse.name: abuse.endings for abuse in ABUSES}
        assert {name: ending for name, ending in found.items() if ending not in expected[name]} == {}
        assert set(others) <= {200, 429, 503}
        assert others[200] > 0
        empty(server.port)
        assert {reason for reason in ("idle", "large", "slow", "unread") if not cut(server.port, reason)} == set()
        assert measure(server.port, "decaf_queue_requests") == 0
        told = server.log.read_text()
        assert len(told.splitlines()) == 3, told  # where it serves, how it ends, and what: abuse does not fill the log
        fine(server.port)
        assert server.end() == 0


def test_ten_times_what_may_wait_is_refused_and_what_comes_next_is_answered(bounded: Running) -> None:
    heavy = json.dumps({"texts": ["topic aa " * 20] * 100, "top": 20}).encode()

    async def burst() -> list[Answer | None]:
        async def ask() -> Answer | None:
            async with connected(bounded.port) as wire:
                await wire.send(request("POST", "/v1/predict", heavy, "Connection: close"))
                return await wire.answer()

        return await asyncio.gather(*(ask() for _ in range(40)))

    for _ in range(2):
        answers = asyncio.run(burst())
        refused = [answer for answer in answers if answer is None or answer.status != 200]
        assert {answer and code_of(answer) for answer in refused} == {(429, "busy")}
        assert all(answer and answer.headers["retry-after"] == "1" for answer in refused)
        assert 0 < len(refused) < len(answers)
        fine(bounded.port)
        assert measure(bounded.port, "decaf_queue_requests") == 0


_ORDINARY = ("POST", "/v1/predict", json.dumps({"texts": ["topic aa"]}).encode())


@contextmanager
def files(wanted: int) -> Iterator[int]:
    """How many more files this process may open, raised as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + 500 if hard == resource.RLIM_INFINITY else min(wanted + 500, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    try:
        yield min(wanted, max(soft, most) - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(server: Running, count: int) -> Iterator[list[socket.socket]]:
    """Connections that do nothing."""
    with ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        yield [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(count)]


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_ten_thousand_idle_connections_do_no_harm(model: Path) -> None:
    with files(CROWD) as count, running(model, idle=600) as server:
        server.client.close()
        with crowd(server, count) as idle:
            until(lambda: measure(server.port, "decaf_connections") >= count, "the crowd")
            fine(server.port)
            assert all(map(is_open, idle))
        empty(server.port)
        assert count >= min(CROWD, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 500)
        fine(server.port)


def test_of_too_many_connections_those_go_that_rested_longest(bounded: Running) -> None:
    with crowd(bounded, 200) as idle:
        fine(bounded.port)
        until(lambda: not is_open(idle[0]), "the end of the first")
        still = [at for at, sock in enumerate(idle) if is_open(sock)]
        assert 20 < len(still) <= 40
        assert still == list(range(200 - len(still), 200))
        assert measure(bounded.port, "decaf_connections") <= 40
        assert cut(bounded.port, "full") >= 160
    empty(bounded.port)


def test_nobody_is_cut_off_in_the_middle_of_a_request(bounded: Running) -> None:
    with crowd(bounded, 40) as busy:
        for sock in busy:
            sock.sendall(request("POST", "/v1/predict", b"{", "Content-Length: 18"))
        until(lambda: asked(bounded.port, "GET", "/healthz").status == 429, "a refusal")
        assert code_of(asked(bounded.port, "GET", "/healthz")) == (429, "busy")
        for sock in busy:
            sock.sendall(b'"texts": "a b c"}')
            assert sock.recv(12) == b"HTTP/1.1 200"
    empty(bounded.port)
    fine(bounded.port)


def test_answers_that_nobody_takes_are_bounded_and_the_oldest_go(bounded: Running) -> None:
    rows = b"topic aa," + b"x" * 90 + b"\n"  # what is not text comes back as it is: more than sockets hold
    large = request("POST", "/v1/predict/csv?top=24", b"text,other\n" + rows * 9_000)

    async def go() -> None:
        async with AsyncExitStack() as stack:
            answered = 0
            while answered < 8:  # some are refused while others are scored
                wire = await stack.enter_async_context(connected(bounded.port, window=4_096))
                await wire.send(large)
                answered += b" 200 " in await wire.reader.readline()
                await asyncio.sleep(0.1)
            await asyncio.to_thread(until, lambda: cut(bounded.port, "unread") >= 2, "the first to be cut")
            await asyncio.to_thread(until, lambda: asked(bounded.port, *_ORDINARY).status == 200, "an answer")

    asyncio.run(go())
    assert cut(bounded.port, "unread") < 8  # as many stay as there is room for
    empty(bounded.port)
    log = bounded.log.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") :]


def test_a_workers_files_bound_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, tuple[int, int]] = {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.update(now=wanted))
    spare, endless = connections._SPARE, resource.RLIM_INFINITY
    for before, wanted, most, after in (
        ((1_024, 4_096), 1_000, 1_000, (1_000 + spare, 4_096)),
        ((1_024, 4_096), 9_999, 4_096 - spare, (4_096, 4_096)),
        ((1_024, endless), 9_999, 9_999, (9_999 + spare, endless)),
        ((endless, endless), 9_999, 9_999, (endless, endless)),
        ((4_096, 4_096), 100, 100, (4_096, 4_096)),
        ((100, 100), 9_999, 1, (100, 100)),
    ):
        limits["now"] = before
        assert (files_for(wanted), limits["now"]) == (most, after)


def test_time_in_which_a_server_could_not_read_is_not_held_against_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(connections.time, "monotonic", lambda: now)
    all_of_them = Connections(ServeSettings(), Telemetry())
    for step, passed in ((1.0, 1.0), (0.5, 1.5), (3_600.0, 3.5), (1.0, 4.5)):
        now += step
        all_of_them.sweep()
        assert all_of_them.now == passed


async def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whatever waits for a time within so many seconds finds that it has come; nobody really waits."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + seconds)
    for _ in range(10):  # turns of the loop: what is due is called, and what was waiting for that goes on
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("part", "method", "path", "body"),
    [
        ("batcher.ask", "POST", "/v1/predict", b'{"texts": "a"}'),
        ("batcher.ask", "POST", "/v1/predict/csv", b"text\na\n"),
        ("lane.run", "GET", "/v1/labels", b""),
        ("writing.run", "PUT", "/v1/labels/x", b'{"text": "topic aa"}'),
        ("explaining.run", "POST", "/v1/predict", b'{"texts": "topic aa", "explain": true}'),
    ],
)
def test_no_answer_begins_after_its_time(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, method: str, path: str, body: bytes
) -> None:
    async def never(*_: object, **__: object) -> Any:  # noqa: ANN401
        await pass_time(monkeypatch, 61)
        raise AssertionError("nobody gave up")

    with service_of(model, tmp_path / "labels.sqlite", timeout=60) as service, called(service) as call:
        owner, _, name = part.partition(".")
        monkeypatch.setattr(getattr(service, owner), name, never)
        answer = call(method, path, content=body)
        assert problem(answer) == (503, "timeout")
        assert answer.headers["retry-after"] == "1"
        monkeypatch.undo()
        assert call("GET", "/v1/model").status_code == 200


def test_a_model_may_take_longer_to_load_and_a_table_longer_to_send(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service_of(model, tmp_path / "labels.sqlite", timeout=60) as service, called(service) as call:
        ask, load, asked = service.batcher.ask, service.load, 0

        async def slow_load(**wishes: Any) -> Any:  # noqa: ANN401
            await pass_time(monkeypatch, 61)
            return await load(**wishes)

        async def slow_part(*wanted: Any, **wishes: Any) -> Any:  # noqa: ANN401
            nonlocal asked
            asked += 1
            await pass_time(monkeypatch, 61 if asked > 1 else 0)
            return await ask(*wanted, **wishes)

        monkeypatch.setattr(service, "load", slow_load)
        monkeypatch.setattr(service.batcher, "ask", slow_part)
        assert call("POST", "/v1/model/reload").status_code == 200
        answer = call("POST", "/v1/predict/csv?top=1", content="text\n" + "topic aa\n" * 600)
        assert (answer.status_code, answer.text.count("topic aa")) == (200, 1_200)
        assert asked == 3


def test_what_is_told_of_a_giant_mistake_is_short(model: Path, tmp_path: Path) -> None:
    with service_of(model, tmp_path / "labels.sqlite") as service, called(service) as call:
        answer = predict(call, **{"a" * 500_000: 1})
        assert problem(answer) == (422, "invalid")
        assert len(answer.content) < 2_000
        table = call("POST", "/v1/predict/csv", content=b"a" * 100_000 + b"\n1\n")
        assert problem(table) == (422, "invalid")
        assert len(table.content) < 2_000


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "br", "identity, gzip"])
def test_a_compressed_body_is_refused_in_so_many_words(model: Path, tmp_path: Path, coding: str) -> None:
    with service_of(model, tmp_path / "labels.sqlite") as service, called(service) as call:
        for method, path in (("POST", "/v1/predict"), ("POST", "/v1/predict/csv"), ("PUT", "/v1/labels/x")):
            answer = call(method, path, content=b"x", headers={"Content-Encoding": coding})
            assert problem(answer) == (415, "unsupported")
            assert answer.headers["accept-encoding"] == "identity"
        plain = call("POST", "/v1/predict", content=b'{"texts": "a"}', headers={"Content-Encoding": "identity"})
        assert plain.status_code == 200


@pytest.mark.parametrize("name", ["idle", "connections", "head_bytes", "unsent_bytes"])
def test_limits_are_above_nothing(name: str) -> None:
    with pytest.raises(decaf.ConfigError, match=f"{name} must be above 0"):
        ServeSettings(**{name: 0})  # type: ignore[arg-type]
