"""Changes of labels on the disk: what was acknowledged is there whatever happens, and everybody sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from decaf.errors import StoreError
from decaf.stores import Change, kept_changes, now, store_path, to_lines
from decaf.stores.sqlite import SqliteStore

ODD = ["a b", "ä/ß?#%", "日本", "'; drop table labels; --", '"', "\\", "0", "-", "🙂", "a" * 512]
AT = "2024-01-02T03:04:05.678+00:00"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.labels.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


def texts(store: SqliteStore) -> dict[str, str | None]:
    return {change.id: change.text for change in store.changes()}


def test_changes_come_back_in_the_order_of_ids_with_the_time_of_the_last(store: SqliteStore) -> None:
    before = now()
    assert store.changes() == []
    store.put("b", "first")
    store.put("a", "second")
    store.hide("c")
    store.put("b", "third")
    assert texts(store) == {"a": "second", "b": "third", "c": None}
    assert [change.id for change in store.changes()] == ["a", "b", "c"]
    for change in store.changes():
        at = datetime.fromisoformat(change.at)
        assert datetime.fromisoformat(before) <= at <= datetime.now(UTC)


def test_the_last_word_on_a_label_counts(store: SqliteStore) -> None:
    for expected in ("one", None, "two", None):
        if expected is None:
            store.hide("a")
        else:
            store.put("a", expected)
        assert texts(store) == {"a": expected}
    store.forget("a")
    assert texts(store) == {}
    store.forget("a")  # nothing to undo
    assert texts(store) == {}


def test_odd_ids_and_texts_are_kept_as_they_are(path: Path) -> None:
    first = SqliteStore(path)
    for label in ODD:
        first.put(label, f"text of {label}")
    first.close()
    again = SqliteStore(path)
    assert texts(again) == {label: f"text of {label}" for label in ODD}
    for label in ODD[::2]:
        again.forget(label)
    assert set(texts(again)) == set(ODD[1::2])
    again.close()


def test_several_changes_are_kept_together_or_not_at_all(store: SqliteStore, path: Path) -> None:
    store.apply([Change("a", "one", AT), Change("b", None, AT), Change("a", "two", AT)])
    assert store.changes() == [Change("a", "two", AT), Change("b", None, AT)]
    before = path.with_name(f"{path.name}-wal").read_bytes()
    no_time: str = None  # type: ignore[assignment]
    with pytest.raises(StoreError, match="NOT NULL"):
        store.apply([Change("c", "three", AT), Change("b", "four", AT), Change("d", "five", no_time)])
    assert store.changes() == [Change("a", "two", AT), Change("b", None, AT)]
    assert path.with_name(f"{path.name}-wal").read_bytes() == before
    store.apply([])
    store.put("c", "and on it goes")
    assert set(texts(store)) == {"a", "b", "c"}


def test_writers_in_many_threads_lose_nothing(path: Path) -> None:
    """Some share a connection, and some begin the file at the same moment."""
    shared, together = SqliteStore(path.with_name("shared")), threading.Barrier(6)

    def write(who: int) -> None:
        together.wait()
        own = SqliteStore(path)
        for number in range(5):
            own.put(f"{who}-{number}", "own")
            shared.put(f"{who}-{number}", "shared")
        own.close()

    threads = [threading.Thread(target=write, args=[who]) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [f"{who}-{number}" for who in range(6) for number in range(5)]
    assert [change.id for change in kept_changes("", path)] == [change.id for change in shared.changes()] == everything
    shared.close()


def test_the_stamp_changes_whenever_anybody_writes_and_only_then(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    seen = {store.stamp()}
    for writer in (store, other):
        for write in (lambda to=writer: to.put("a", "text"), lambda to=writer: to.forget("a"), writer.ask_reload):
            write()
            stamp = store.stamp()
            assert stamp not in seen
            assert stamp == store.stamp()
            seen.add(stamp)
    before = store.stamp()
    other.changes()
    SqliteStore(path).close()
    assert kept_changes("", path) == []
    assert store.stamp() == before
    other.close()


def test_reloads_are_counted_by_all(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    assert store.reloads() == other.reloads() == 0
    other.ask_reload()
    store.ask_reload()
    assert store.reloads() == other.reloads() == 2
    other.close()
    again = SqliteStore(path)
    assert again.reloads() == 2
    assert again.changes() == []
    again.close()


# Says what it has kept, line by line, and goes on until it is killed.
WRITER = """
import sys
from decaf.stores import Change, now
from decaf.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
for number in range(1_000_000):
    store.apply([Change(f"{number:06}-{half}", "text", now()) for half in "ab"])
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 37])
def test_a_process_that_is_killed_loses_nothing_it_has_acknowledged(path: Path, lines: int) -> None:
    reader = SqliteStore(path)
    before = reader.stamp()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(lines)]
        assert reader.stamp() != before  # while it writes
        assert {f"{number:06}-a" for number in acknowledged} <= set(texts(reader))
        os.kill(writer.pid, signal.SIGKILL)  # somewhere in the middle of the next
        acknowledged += [int(line) for line in writer.stdout]
    assert writer.returncode == -signal.SIGKILL
    found = [change.id for change in kept_changes("", path)]
    whole = [f"{number:06}-{half}" for number in range(len(found) // 2) for half in "ab"]
    assert found == whole  # no half of any
    assert len(acknowledged) <= len(found) // 2 <= len(acknowledged) + 1
    reader.put("after", "it goes on")
    assert set(texts(reader)) == {*whole, "after"}
    reader.close()


# Is killed between the beginning of a transaction and its end.
HALF = """
import os, signal, sys
from decaf.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
store.put("acknowledged", "text")
store._database.execute("begin immediate")
store._database.execute("delete from labels")
store._database.execute("insert into labels values ('half', 'text', 'now')")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_while_it_writes_leaves_the_file_as_it_was(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HALF, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [change.id for change in kept_changes("", path)] == ["acknowledged"]
    store = SqliteStore(path)
    store.put("next", "the lock went with the process")
    assert set(texts(store)) == {"acknowledged", "next"}
    store.close()


def test_what_is_acknowledged_is_on_the_disk(store: SqliteStore) -> None:
    pragmas = [store._database.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]  # full


def test_a_writer_that_takes_too_long_is_told_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decaf.stores.sqlite._WAIT", 0.05)
    busy, other = SqliteStore(path), SqliteStore(path)
    busy._database.execute("begin immediate")
    with pytest.raises(StoreError, match=r"database is locked\); make room, check who may write there, or name"):
        other.put("a", "text")
    assert other.changes() == []  # readers do not wait
    busy._database.execute("rollback")
    other.put("a", "text")
    assert texts(busy) == {"a": "text"}
    busy.close()
    other.close()


def test_a_file_of_a_newer_decaf_is_refused_and_left_alone(path: Path) -> None:
    SqliteStore(path).close()
    database = sqlite3.connect(path)
    database.execute("pragma user_version = 2")
    database.close()
    before = path.read_bytes()
    message = f"{re.escape(str(path))}: has format 2 and this decaf reads 1; install a newer decaf"
    for _ in range(2):
        with pytest.raises(StoreError, match=message):
            SqliteStore(path)
    with pytest.raises(StoreError, match=message):
        kept_changes("", path)
    assert path.read_bytes() == before


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def of_something_else(path: Path) -> Path:
    path.write_text("id,text\n" * 100)
    return path


@pytest.mark.parametrize("spoil", [folder, of_something_else, lambda path: path / "missing" / "folder.sqlite"])
def test_a_place_where_nothing_can_be_kept_says_what_to_do(path: Path, spoil: object) -> None:
    assert callable(spoil)
    place = spoil(path)
    advice = "make room, check who may write there, or name another file with --labels"
    message = f"^{re.escape(str(place))}: changes of labels cannot be read or kept \\(.+\\); {advice}$"
    with pytest.raises(StoreError, match=message):
        SqliteStore(place)


def test_a_full_disk_says_what_to_do_and_loses_nothing(store: SqliteStore) -> None:
    store.put("a", "text")
    (pages,) = store._database.execute("pragma page_count").fetchone()
    store._database.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"is full\); make room, "):
        store.put("b", "long " * 10_000)
    assert texts(store) == {"a": "text"}
    store.put("a", "other")
    assert texts(store) == {"a": "other"}


@pytest.mark.parametrize("less", [1, 100, 4095])
def test_a_file_whose_last_page_is_cut_short_is_refused(path: Path, less: int) -> None:
    with closing(SqliteStore(path)) as store:
        for number in range(40):
            store.put(f"label-{number}", "long " * 200)
    os.truncate(path, path.stat().st_size - less)
    with pytest.raises(StoreError, match="is cut short; restore it"):
        SqliteStore(path)


def test_a_last_page_that_is_in_the_log_is_not_missed(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        for number in range(40):
            store.put(f"label-{number}", "long " * 200)
        store._database.execute("pragma wal_checkpoint")  # all is in both
        os.truncate(path, path.stat().st_size - 100)
        with closing(SqliteStore(path)) as another:
            assert texts(another) == {f"label-{number}": "long " * 200 for number in range(40)}


def test_a_closed_store_is_an_error_of_ours(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.changes()


def test_changes_are_kept_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    expected = tmp_path / "model.labels.sqlite"
    assert store_path(tmp_path / "model") == store_path(f"{tmp_path}/model/") == expected
    monkeypatch.chdir(tmp_path / "model")
    (tmp_path / "model" / "inside").mkdir()
    assert store_path(".").resolve() == store_path("inside/..").resolve() == expected
    monkeypatch.chdir(tmp_path)
    assert store_path("model").resolve() == expected


def test_without_a_file_there_are_no_changes_and_none_is_made(tmp_path: Path) -> None:
    assert kept_changes(tmp_path / "model") == []
    assert list(tmp_path.iterdir()) == []
    for place in (store_path(tmp_path / "model"), tmp_path / "other.sqlite"):
        store = SqliteStore(place)
        store.put(place.name, "text")
        store.close()
    assert [change.id for change in kept_changes(tmp_path / "model")] == ["model.labels.sqlite"]
    assert [change.id for change in kept_changes(tmp_path / "model", tmp_path / "other.sqlite")] == ["other.sqlite"]


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.sqlite: there is no such file; decaf labels add begins one"):
        kept_changes(tmp_path / "model", tmp_path / "nowhere.sqlite")


def test_lines_are_one_object_each_and_make_the_same_changes_again(store: SqliteStore) -> None:
    changes = [Change("a", 'with "quotes"\nand 日本', AT), Change("b", None, AT)]
    lines = list(to_lines(changes))
    assert lines == [
        '{"id": "a", "text": "with \\"quotes\\"\\nand 日本", "at": "2024-01-02T03:04:05.678+00:00"}',
        '{"id": "b", "text": null, "at": "2024-01-02T03:04:05.678+00:00"}',
    ]
    store.apply([Change(**json.loads(line)) for line in lines])
    assert store.changes() == changes
    assert list(to_lines([])) == []
