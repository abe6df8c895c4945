"""The server as a process: limits over the socket, models that are swapped, workers, and its end."""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from decaf.serving import server as server_module
from decaf.serving import worker as worker_module
from decaf.serving.engine import Engine, Served
from decaf.serving.service import Service
from decaf.serving.settings import ServeSettings
from decaf.stores.sqlite import SqliteStore
from serving import PATIENCE, Running, launch, problem, running, until


def test_every_answer_has_headers_that_protect(shared: Running) -> None:
    for path in ("/", "/static/app.js", "/healthz", "/v1/model", "/nothing"):
        headers = shared.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_the_address_is_told_and_is_loopback(shared: Running, model: Path) -> None:
    assert f"serving {model} at http://127.0.0.1:{shared.port}\n" in shared.log.read_text()
    assert shared.client.get("/healthz").json() == {"status": "ok"}
    assert shared.client.get("/readyz").json() == {"status": "ready"}


def test_the_predictions_are_those_of_many_clients_at_once(shared: Running) -> None:
    texts = [f"topic a{chr(97 + at % 24)}" for at in range(200)]
    alone = {text: shared.ids(text) for text in sorted(set(texts))}
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(shared.ids, texts)) == [alone[text] for text in texts]


def test_a_label_is_predicted_with_the_next_request(shared: Running) -> None:
    for number in range(5):
        path = f"/v1/labels/extra-{number}"
        assert shared.client.put(path, json={"text": "topic aa"}).status_code == 201
        assert f"extra-{number}" in shared.ids("topic aa", top=100)
        assert shared.client.delete(path).status_code == 204
        assert f"extra-{number}" not in shared.ids("topic aa", top=100)


@pytest.fixture(scope="module")
def bounded(model: Path) -> Iterator[Running]:
    """A server of small limits."""
    with running(model, body_bytes=100_000, queue=1, timeout=1.0, texts=1000) as server:
        yield server


@contextmanager
def connected(server: Running, head: str) -> Iterator[socket.socket]:
    """A connection on which the head of a request was sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as sock:
        sock.sendall(f"{head}\r\nHost: here\r\n".encode())
        yield sock


def answer_of(sock: socket.socket) -> tuple[int, dict[str, object]]:
    """The status and the JSON body of an answer, after which the connection is closed."""
    received = b""
    while chunk := sock.recv(1 << 16):
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_an_announced_body_that_is_too_large_is_not_read(bounded: Running) -> None:
    with connected(bounded, "POST /v1/predict HTTP/1.1") as sock:
        sock.sendall(b"Content-Length: 100001\r\n\r\n{")
        sock.shutdown(socket.SHUT_WR)
        status, told = answer_of(sock)
    assert (status, told["code"]) == (413, "too_large")


def test_a_body_without_an_end_is_cut_off(bounded: Running) -> None:
    chunk = b"%x\r\n%s\r\n" % (10_000, b" " * 10_000)
    with connected(bounded, "POST /v1/predict HTTP/1.1") as sock:
        sock.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(11):
            sock.sendall(chunk)
        status, told = answer_of(sock)  # no end was ever sent
    assert (status, told["code"]) == (413, "too_large")


def test_a_client_that_goes_on_sending_still_sees_the_answer(bounded: Running) -> None:
    answer = bounded.client.post("/v1/predict", content=b" " * 3_000_000)
    assert problem(answer) == (413, "too_large")


def test_a_body_that_does_not_come_is_not_waited_for(bounded: Running) -> None:
    with connected(bounded, "POST /v1/predict HTTP/1.1") as sock:
        sock.sendall(b"Connection: close\r\nContent-Length: 50\r\n\r\n{")
        status, told = answer_of(sock)
    assert (status, told["code"]) == (503, "timeout")


def test_a_client_that_goes_away_does_no_harm(bounded: Running) -> None:
    with connected(bounded, "POST /v1/predict HTTP/1.1") as sock:
        sock.sendall(b"Content-Length: 50\r\n\r\n{")
    assert bounded.ids("topic aa")


def test_what_is_no_http_is_refused(bounded: Running) -> None:
    for wrong in (b"Content-Length: -1\r\n\r\n", b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with connected(bounded, "POST /v1/predict HTTP/1.1") as sock:
            sock.sendall(wrong)
            assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
    assert bounded.ids("topic aa")


def test_a_full_queue_is_busy_and_soon_free_again(bounded: Running) -> None:
    heavy = {"texts": ["topic aa " * 10] * 1000, "top": 5}

    def ask(_: int) -> httpx.Response:
        return bounded.client.post("/v1/predict", json=heavy)

    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, range(96)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(refused) < len(answers)
    assert {problem(answer) for answer in refused} >= {(429, "busy")}
    assert {problem(answer) for answer in refused} <= {(429, "busy"), (503, "timeout")}
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert bounded.ids("topic aa")


class Clients:
    """Some clients that ask all the time; what they are answered is counted."""

    def __init__(self, server: Running, count: int) -> None:
        self._server = server
        self._stop = threading.Event()
        self.versions: list[str] = []
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=self._server.client.base_url, timeout=PATIENCE) as client:
            while not self._stop.is_set():
                try:
                    answer = client.post("/v1/predict", json={"texts": ["topic aa"], "top": 2})
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                    return
                if answer.status_code == 200:
                    self.versions.append(answer.json()["model"])
                else:
                    self.failures.append(answer.text)

    def until(self, version: str) -> None:
        """Wait until that version answers."""
        until(lambda: self.versions and self.versions[-1] == version, version)


def point(link: Path, target: Path) -> None:
    """Have a link lead elsewhere, at once."""
    aside = link.with_name("aside")
    aside.symlink_to(target)
    aside.replace(link)


def test_models_are_swapped_while_requests_run_and_bad_ones_refused(model: Path, other: Path, tmp_path: Path) -> None:
    link, damaged = tmp_path / "link", tmp_path / "damaged"
    link.symlink_to(model)
    shutil.copytree(other, damaged)
    with (damaged / "labels.arrow").open("ab") as stream:
        stream.write(b"more")
    with running(link, watch=False) as server, Clients(server, 3) as clients:
        first = server.version()
        clients.until(first)
        point(link, other)
        second = server.client.post("/v1/model/reload").json()["version"]
        assert second != first
        clients.until(second)
        point(link, damaged)
        answer = server.client.post("/v1/model/reload")
        assert problem(answer) == (409, "model_refused")
        assert "is damaged (checksum)" in answer.json()["detail"]
        assert server.version() == second
        point(link, model)
        assert server.client.post("/v1/model/reload").json()["version"] == first
        clients.until(first)
    assert clients.failures == []
    changes = [
        version for before, version in zip(["", *clients.versions], clients.versions, strict=False) if version != before
    ]
    assert set(changes) == {first, second}


def test_another_model_behind_a_watched_link_is_loaded(model: Path, other: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(model)
    with running(link) as server, Clients(server, 2) as clients:
        first = server.version()
        server.client.put("/v1/labels/mine", json={"text": "topic aa"})
        point(link, tmp_path)  # where there is no model.json, it is waited for
        (tmp_path / "model.json").write_text("{}")
        until(lambda: "the model that is served stays" in server.log.read_text(), "the refusal")
        assert server.version() == first
        point(link, other)
        until(lambda: server.version() != first, "the other model")
        assert "mine" in server.ids("topic aa", top=100)
        assert server.log.read_text().count("the model that is served stays") == 1
    assert clients.failures == []


def test_a_server_without_a_model_does_not_begin(tmp_path: Path) -> None:
    process = launch(tmp_path / "nothing", tmp_path / "log")
    assert process.wait(PATIENCE) == 1
    assert "decaf: " in (tmp_path / "log").read_text()
    assert "holds no model" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_with_a_damaged_model_ends(model: Path, tmp_path: Path, workers: int) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    (damaged / "labels.arrow").write_bytes(b"nothing")
    process = launch(damaged, tmp_path / "log", workers=workers)
    assert process.wait(PATIENCE) == 1
    assert "is damaged (checksum)" in (tmp_path / "log").read_text()


def test_an_unfinished_run_is_told_from_no_model(tmp_path: Path) -> None:
    (tmp_path / "begun" / "checkpoint").mkdir(parents=True)
    process = launch(tmp_path / "begun", tmp_path / "log")
    assert process.wait(PATIENCE) == 1
    assert "holds an unfinished run; run the same decaf train command again" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("name", ["DECAF_READ_KEY", "DECAF_WRITE_KEY"])
def test_an_empty_key_opens_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    process = launch(model, tmp_path / "log")
    assert process.wait(PATIENCE) == 1
    assert (tmp_path / "log").read_text() == f"decaf: {name} is empty; set a key, or unset the variable\n"


def test_an_end_while_workers_begin_is_quiet(model: Path, tmp_path: Path) -> None:
    for number, moment in enumerate((0.1, 0.4, 0.9)):
        log = tmp_path / f"log{number}"
        process = launch(model, log, workers=2, labels=tmp_path / "labels.sqlite")
        until(lambda log=log: b"serving " in log.read_bytes(), "the address")  # type: ignore[misc]
        time.sleep(moment)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in log.read_text()


def test_an_address_in_use_is_told(shared: Running, model: Path, tmp_path: Path) -> None:
    process = launch(model, tmp_path / "log", port=shared.port)
    assert process.wait(PATIENCE) == 1
    assert "cannot listen there" in (tmp_path / "log").read_text()


# Keeps room for its measures as a worker does, then counts.
COUNTING = """
import sys
from pathlib import Path
from decaf.serving.server import _keep_room
_keep_room(Path(sys.argv[1]))
from decaf.serving.telemetry import Telemetry
one = Telemetry()
one.request("/v1/predict", 200, 0.1), one.batch(3), one.queue(1), one.labels(2), one.loaded("a")
print(one.text().decode())
"""


def test_room_for_measures_is_kept_before_a_disk_is_full(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNTING, str(tmp_path)]
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert 'decaf_requests_total{route="/v1/predict",status="200"} 1.0' in told
    assert "decaf_texts_total 3.0" in told
    files = list(tmp_path.iterdir())
    assert len(files) == 5  # none but those for which room was kept
    assert all(file.stat().st_blocks * 512 >= file.stat().st_size == 1 << 16 for file in files)


def test_a_worker_without_room_for_measures_counts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))

    def full(self: Path, _: bytes) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    server_module._keep_room(tmp_path)
    assert "this one counts alone" in caplog.text
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ
    assert list(tmp_path.iterdir()) == []


def workers_of(server: Running) -> list[int]:
    """The processes that answer; empty where there is no /proc to find them in."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    found = children.read_text().split() if children.exists() else []
    return [int(pid) for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_workers_see_each_others_labels_and_models_and_are_replaced(model: Path, other: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(model)
    with running(link, workers=2, watch=False) as server:
        clients = [httpx.Client(base_url=server.client.base_url, timeout=PATIENCE) for _ in range(12)]
        try:
            until(lambda: all(one.get("/readyz").status_code == 200 for one in clients), "both workers")
            for number, writer in enumerate(clients[:6]):
                assert writer.put(f"/v1/labels/w{number}", json={"text": "topic aa"}).status_code == 201
                for reader in clients:
                    found = reader.post("/v1/predict", json={"texts": "topic aa", "top": 100}).json()
                    assert f"w{number}" in [label["id"] for label in found["predictions"][0]["labels"]]
            point(link, other)
            version = clients[0].post("/v1/model/reload").json()["version"]
            until(lambda: {one.get("/v1/model").json()["version"] for one in clients} == {version}, "all workers")
            lines = clients[0].get("/metrics").text.splitlines()
            assert 'decaf_requests_total{route="/v1/predict",status="200"} 72.0' in lines
            assert "decaf_live_labels 6.0" in lines
        finally:
            for one in clients:
                one.close()
        for pid in workers_of(server)[:1]:
            os.kill(pid, signal.SIGKILL)
            until(lambda: b"starting another" in server.log.read_bytes(), "the notice")
            until(lambda: len(workers_of(server)) == 2, "the other one")  # told of before it is there
        assert server.end() == 0
        assert workers_of(server) == []


def test_one_of_several_workers_takes_no_connection_before_it_has_loaded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    load = Engine.load

    def slow(engine: Engine, *, tell: bool = False) -> Served:
        begun.set()
        assert go_on.wait(PATIENCE)
        return load(engine, tell=tell)

    monkeypatch.setattr(Engine, "load", slow)
    service = Service(Engine(model, tmp_path / "labels.sqlite"), ServeSettings(workers=2))
    server = worker_module._Server(service)
    with closing(service), socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        working = pool.submit(server.run, [listener])
        with socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            assert begun.wait(PATIENCE)
            early, _, _ = select.select([client], [], [], 0.5)
            go_on.set()
            told = answer_of(client)
        server.should_exit = True
        working.result(PATIENCE)
    assert told == (200, {"status": "ready"})
    assert not early  # it waited, for this worker or another one


def test_a_worker_that_is_replaced_turns_nobody_away(model: Path) -> None:
    with running(model, workers=2) as server:

        def loaded() -> int:
            return server.log.read_bytes().count(b" is in use")

        def answered() -> bool:
            body = {"texts": "topic aa"}
            answer = httpx.post(f"http://127.0.0.1:{server.port}/v1/predict", json=body, timeout=PATIENCE)
            assert answer.status_code == 200, answer.text
            return loaded() == 3

        until(lambda: loaded() == 2, "both workers")
        for pid in workers_of(server)[:1]:
            os.kill(pid, signal.SIGKILL)
            until(answered, "the other one")


def test_a_worker_that_dies_while_a_damaged_model_stands_there_is_not_the_end(model: Path, tmp_path: Path) -> None:
    link, damaged = tmp_path / "link", tmp_path / "damaged"
    shutil.copytree(model, damaged)
    os.truncate(damaged / "instance-0.safetensors", 100)
    link.symlink_to(model)
    with running(link, workers=2, watch=False) as server:

        def said(words: bytes) -> int:
            return server.log.read_bytes().count(words)

        until(lambda: said(b" is in use") == 2, "both workers")
        point(link, damaged)
        for pid in workers_of(server)[:1]:
            os.kill(pid, signal.SIGKILL)
            until(lambda: said(b"starting another") == 2, "the one that cannot begin")
            assert said(b"instance-0.safetensors") == 1
            assert httpx.get(f"http://127.0.0.1:{server.port}/readyz", timeout=PATIENCE).status_code == 200
            point(link, model)
            until(lambda: said(b" is in use") == 3, "the one that can")
        assert server.end() == 0


def test_the_end_loses_no_request(model: Path) -> None:
    with running(model) as server, Clients(server, 4) as clients:
        until(lambda: len(clients.versions) > 50, "some answers")
        assert server.end() == 0
    refused = [failure for failure in clients.failures if "ConnectError" not in failure]  # those came too late
    assert refused == []


def test_the_end_waits_for_what_runs(model: Path) -> None:
    rows = "text\n" + "topic aa and so on\n" * 5000
    with running(model) as server:
        with connected(server, "POST /v1/predict/csv HTTP/1.1") as sock:
            sock.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(rows), rows.encode()))
            begun = sock.recv(100)
            os.kill(server.process.pid, signal.SIGTERM)
            received = begun
            while chunk := sock.recv(1 << 16):
                received += chunk
        assert received.endswith(b"0\r\n\r\n")
        assert received.count(b"topic aa and so on") == 5000
        assert server.process.wait(PATIENCE) == 0


def test_an_interrupt_ends_the_server_too(model: Path) -> None:
    with running(model, ready=False) as server:
        until(lambda: server.client.get("/healthz").status_code == 200, "an answer")
        assert server.end(signal.SIGINT) == 0


def test_a_kill_loses_no_acknowledged_label(model: Path, tmp_path: Path) -> None:
    store = tmp_path / "labels.sqlite"
    acknowledged: dict[str, str | None] = {}
    for kill in range(3):
        with running(model, ready=False, labels=str(store)) as server:
            until(lambda: server.client.get("/readyz").status_code == 200, "the model")
            found = {
                line["id"]: line["text"] for line in map(json.loads, server.client.get("/v1/changes").iter_lines())
            }
            assert acknowledged.items() <= found.items()
            enough = threading.Event()

            def write(of: int, kill: int = kill, server: Running = server, enough: threading.Event = enough) -> None:
                with httpx.Client(base_url=server.client.base_url, timeout=PATIENCE) as client:
                    for number in range(10_000):
                        label, text = f"{kill}-{of}-{number % 20}", f"topic {number}"
                        try:
                            answer = client.put(f"/v1/labels/{label}", json={"text": text})
                        except httpx.HTTPError:
                            acknowledged.pop(label, None)  # it may have the old text or the new one
                            return
                        assert answer.status_code in (200, 201)
                        acknowledged[label] = text
                        if number == 10 * (kill + 1):
                            enough.set()

            with ThreadPoolExecutor(2) as pool:
                writers = [pool.submit(write, of) for of in range(2)]
                assert enough.wait(PATIENCE)
                server.process.kill()
                for writer in writers:
                    writer.result()
    kept = SqliteStore(store)
    assert acknowledged.items() <= {change.id: change.text for change in kept.changes()}.items()
    assert len(acknowledged) > 30
    kept.close()
