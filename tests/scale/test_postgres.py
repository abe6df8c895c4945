"""Live labels in a real PostgreSQL: the same as beside the model, shared by processes, through restarts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from serving import problem, running
from typer.testing import CliRunner

from decaf.cli import app
from decaf.errors import ConfigError, StoreError
from decaf.stores import Change, kept_changes, now, open_store
from decaf.stores.postgres import PostgresStore
from scale.conftest import Postgres

PATIENCE = 60.0  # seconds


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def store(address: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(address)
    yield opened
    opened.close()


def test_changes_come_back_in_the_order_of_ids_and_the_last_word_counts(store: PostgresStore) -> None:
    for label, text in (("b", "two"), ("ä", "three"), ("B", "one"), ("b", "two and a half")):
        store.put(label, text)
    store.hide("c")
    store.put("d", "gone")
    store.forget("d")
    store.forget("never there")
    assert [(change.id, change.text) for change in store.changes()] == [
        ("B", "one"),
        ("b", "two and a half"),
        ("c", None),
        ("ä", "three"),
    ]


def test_several_changes_are_kept_together_or_not_at_all(store: PostgresStore) -> None:
    store.apply([Change("a", "one", now()), Change("b", None, now())], ["c"])
    before, stamp = store.changes(), store.stamp()
    with pytest.raises(StoreError):
        store.apply([Change("c", "three", now()), Change("bad\0", "four", now())], ["a"])
    assert store.changes() == before
    assert store.stamp() == stamp


def test_what_others_write_is_seen_soon_and_what_this_process_writes_at_once(
    store: PostgresStore, address: str
) -> None:
    beside = PostgresStore(address)
    first = store.stamp()
    beside.put("a", "one")
    assert store.stamp() != first  # the same process
    second, reloads = store.stamp(), store.reloads()
    code = "import sys; from decaf.stores.postgres import PostgresStore as S; s = S(sys.argv[1]); s.put('b', 'two')"
    subprocess.run([sys.executable, "-c", f"{code}; s.ask_reload(); s.close()", address], check=True)
    until(lambda: store.stamp() != second and store.reloads() == reloads + 1)
    assert [change.id for change in store.changes()] == ["a", "b"]
    third = store.stamp()
    time.sleep(0.5)
    assert store.stamp() == third
    beside.close()


def test_processes_that_begin_and_write_at_once_lose_nothing(address: str) -> None:
    code = """
import sys
from decaf.stores.postgres import PostgresStore
store = PostgresStore(sys.argv[1])
for number in range(50):
    store.put(f"{sys.argv[2]}-{number:02}", "a text")
    store.put("shared", f"{sys.argv[2]} {number}")
store.close()
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, address, name]) for name in "abc"]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    found = [change.id for change in kept_changes("", address)]
    assert found == [*(f"{name}-{number:02}" for name in "abc" for number in range(50)), "shared"]


def test_a_writer_that_is_killed_loses_nothing_that_was_acknowledged(address: str) -> None:
    code = """
import sys
from decaf.stores.postgres import PostgresStore
store, number = PostgresStore(sys.argv[1]), 0
while True:
    store.put(str(number), "a text")
    print(number, flush=True)
    number += 1
"""
    with subprocess.Popen([sys.executable, "-c", code, address], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.read().split()
    assert set(acknowledged) <= {change.id for change in kept_changes("", address)}


def test_while_the_database_is_away_what_is_known_stays_and_it_comes_back(
    store: PostgresStore, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("a", "one")
    stamp = store.stamp()
    postgres.stop()
    try:
        with pytest.raises(StoreError, match="see that the database is there"):
            store.put("b", "two")
        assert store.stamp() == stamp
        assert store.reloads() == 0
        until(lambda: "labels stay as they were" in caplog.text)
    finally:
        postgres.start()
    until(lambda: "is there again" in caplog.text)
    store.put("b", "two")
    assert [change.id for change in store.changes()] == ["a", "b"]
    assert "secret" not in caplog.text


def test_threads_may_share_a_store(store: PostgresStore) -> None:
    def write(name: str) -> None:
        for number in range(20):
            store.put(f"{name}{number}", "a text")
            store.changes()

    threads = [threading.Thread(target=write, args=[name]) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.changes()) == 80


def test_a_newer_format_is_refused(store: PostgresStore, address: str) -> None:
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute("update decaf_counters set value = 2 where name = 'format'")
    with pytest.raises(StoreError, match="has format 2 and this decaf reads 1; install a newer decaf"):
        PostgresStore(address)


def test_a_database_that_is_not_there_is_told_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"^postgresql://me@127.0.0.1:1/x: changes of labels cannot be read") as told:
        PostgresStore("postgresql://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "secret", ["postgresql://me@127.0.0.1:1/x?password=secret", "postgresql://me:100%secret@127.0.0.1:1/x"]
)
def test_a_password_is_not_shown_however_it_is_written(secret: str) -> None:
    with pytest.raises(StoreError) as told:
        PostgresStore(secret)
    assert "secret" not in str(told.value)


def test_another_kind_of_database_is_refused_without_its_password() -> None:
    for use in (open_store, kept_changes):
        with pytest.raises(ConfigError, match=r"^labels cannot be kept at mysql://\.\.\.; name a file, or postgresql:"):
            use("model", "mysql://me:secret@db/x")


def test_who_may_only_read_reads(store: PostgresStore, address: str) -> None:
    import psycopg

    store.put("a", "one")
    with psycopg.connect(address) as connection:
        connection.execute("drop role if exists reader")
        connection.execute("create role reader login")
        connection.execute("grant select on decaf_labels, decaf_counters to reader")
    reader = address.replace("decaf:secret@", "reader@")
    assert [change.id for change in kept_changes("", reader)] == ["a"]
    with closing(open_store("", reader)) as opened, pytest.raises(StoreError, match="permission denied"):
        opened.put("b", "two")
    with psycopg.connect(address) as connection:
        connection.execute("drop owned by reader")
        connection.execute("drop role reader")


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'decaf\[scale\]'"):
        open_store("model", "postgres://localhost/x")


def test_replicas_share_their_labels(model: Path, address: str, tmp_path: Path) -> None:
    text = "topic aa"
    with running(model, labels=address) as first, running(model, labels=address) as second:

        def found(client: object) -> list[str]:
            answer = client.post("/v1/predict", json={"texts": [text], "top": 20})  # type: ignore[attr-defined]
            return [label["id"] for label in answer.json()["predictions"][0]["labels"]]

        assert first.client.put("/v1/labels/new", json={"text": text}).status_code == 201
        assert "new" in found(first.client)
        until(lambda: "new" in found(second.client))
        assert second.client.delete("/v1/labels/new").status_code < 300
        assert "new" not in found(second.client)
        until(lambda: "new" not in found(first.client))
    assert list(tmp_path.iterdir()) == []


def test_a_service_answers_while_the_database_is_away(model: Path, address: str, postgres: Postgres) -> None:
    with running(model, labels=address) as server:
        question = {"texts": ["topic aa"], "top": 20}
        assert server.client.put("/v1/labels/new", json={"text": "topic aa"}).status_code == 201
        postgres.stop()
        try:
            assert "new" in server.client.post("/v1/predict", json=question).raise_for_status().text
            assert problem(server.client.put("/v1/labels/more", json={"text": "topic aa"})) == (
                503,
                "labels_unavailable",
            )
        finally:
            postgres.start()
        until(lambda: server.client.put("/v1/labels/more", json={"text": "topic aa"}).status_code == 201)
        assert '"more"' in server.client.post("/v1/predict", json=question).text


def test_the_command_line_reads_and_writes_them(model: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    call("labels", "add", str(model), "new", "topic aa", "--labels", address)
    monkeypatch.setenv("DECAF_LABELS", address)
    lines = call("labels", "list", str(model), "--json").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["new"]
    answer = json.loads(call("predict", str(model), "topic aa", "--top", "20", "--json"))
    assert "new" in [label["id"] for label in answer["labels"]]
    assert list(model.parent.iterdir()) == [model]  # nothing beside it
