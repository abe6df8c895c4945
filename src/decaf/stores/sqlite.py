"""Changes of labels in SQLite, beside the model: nothing that was acknowledged is lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from decaf.errors import StoreError
from decaf.stores.changes import Change, now

__all__ = ["SqliteStore", "store_path"]

_FORMAT = 1
_WAIT = 10.0  # seconds for another process to finish its writing
_TABLES = (
    "create table if not exists labels (id text primary key, text text, at text not null) without rowid",
    "create table if not exists counters (name text primary key, value integer not null) without rowid",
    "insert or ignore into counters values ('reloads', 0)",
)
_SCHEMA = "select type, name, sql from sqlite_master"
_ADVICE = "restore the file, remove it to begin anew, or name another one with --labels"


@cache
def _own_schema() -> frozenset[tuple[str, str, str]]:
    """What a file of changes holds."""
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in _TABLES:
            database.execute(statement)
        return frozenset(database.execute(_SCHEMA))


def store_path(model: str | Path) -> Path:
    """Where the changes of a model's labels are kept: beside its folder, so that they outlive the model."""
    model = Path(model)
    model = model.resolve() if model.name in ("", "..") else model
    return model.with_name(f"{model.name}.labels.sqlite")


class SqliteStore:
    """Changes of labels in SQLite; several threads and processes may use one file at once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._told():
            size = _size(self.path)
            self._database = sqlite3.connect(self.path, timeout=_WAIT, check_same_thread=False, isolation_level=None)
            try:
                self._check()
                self._use_wal()
                self._check_end(size)
                self._database.execute("pragma synchronous = full")  # what is acknowledged survives a power cut
                self._begin()
            except BaseException:
                self._database.close()
                raise
        self._written = 0  # by this connection, which data_version does not count

    def put(self, label: str, text: str) -> None:
        """Add a label, or give one another text."""
        self.apply([Change(label, text, now())])

    def hide(self, label: str) -> None:
        """Hide a label that was trained."""
        self.apply([Change(label, None, now())])

    def apply(self, changes: Sequence[Change], forgotten: Sequence[str] = ()) -> None:
        """Keep all these changes and forget those of other labels; all of it, or nothing."""
        with self._told(), self._lock, self._database:
            self._database.execute("begin immediate")
            self._database.executemany("insert or replace into labels values (?, ?, ?)", changes)
            self._database.executemany("delete from labels where id = ?", [[label] for label in forgotten])
            self._written += 1

    def forget(self, label: str) -> None:
        """Undo what was changed of a label."""
        self.apply([], [label])

    def changes(self) -> list[Change]:
        """All changes, in the order of ids."""
        with self._told(), self._lock:
            rows = self._database.execute("select id, text, at from labels order by id").fetchall()
        for label, text, at in rows:
            if type(label) is not str or type(at) is not str or not isinstance(text, str | None):
                raise StoreError(f"{self.path}: holds a label that is no text ({label!r}); {_ADVICE}")
        return [Change(*row) for row in rows]

    def stamp(self) -> tuple[int, int]:
        """Another value whenever anybody has written."""
        with self._told(), self._lock:
            (elsewhere,) = self._database.execute("pragma data_version").fetchone()
            return elsewhere, self._written

    def ask_reload(self) -> None:
        """Ask all that use this file to load their model anew."""
        with self._told(), self._lock, self._database:
            self._database.execute("update counters set value = value + 1 where name = 'reloads'")
            self._written += 1

    def reloads(self) -> int:
        """How often that was asked."""
        with self._told(), self._lock:
            found = self._database.execute("select value from counters where name = 'reloads'").fetchone()
        if found is None or type(found[0]) is not int:
            raise StoreError(f"{self.path}: is damaged (counters); {_ADVICE}")
        count: int = found[0]
        return count

    def close(self) -> None:
        """Let go of the file."""
        with self._told(), self._lock:
            self._database.close()

    def _check(self) -> None:
        """Refuse a file of something else, before it is written to or more is read.

        A view, a trigger or a computed column could take all time and memory there is. Tables that a tool for backups
        has added are left alone.
        """
        self._database.execute("pragma trusted_schema = off")
        (version,) = self._database.execute("pragma user_version").fetchone()
        if version > _FORMAT:
            raise StoreError(f"{self.path}: has format {version} and this decaf reads {_FORMAT}; install a newer decaf")
        found = set(self._database.execute(_SCHEMA))
        others = found - _own_schema()
        begun = version == _FORMAT and found >= _own_schema() and all(kind == "table" for kind, *_ in others)
        if not begun and (others or version == _FORMAT):
            raise StoreError(f"{self.path}: holds something else than changes of labels; {_ADVICE}")

    def _check_end(self, size: int) -> None:
        """Refuse a file whose last page is not whole: SQLite takes what is missing for zeros, and says nothing."""
        (page,) = self._database.execute("pragma page_size").fetchone()
        if size % page:
            raise StoreError(f"{self.path}: is cut short; restore it, or name another file with --labels")

    def _use_wal(self) -> None:
        """Readers and writers do not wait for each other; of those that begin a file at once, all but one try again."""
        until = time.monotonic() + _WAIT
        while True:
            try:
                self._database.execute("pragma journal_mode = wal")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def _begin(self) -> None:
        (version,) = self._database.execute("pragma user_version").fetchone()
        if version == _FORMAT:
            return  # whoever opens the file to read it has written nothing
        with self._database:
            self._database.execute("begin immediate")
            for statement in _TABLES:
                self._database.execute(statement)
            self._database.execute(f"pragma user_version = {_FORMAT}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            advice = "make room, check who may write there, or name another file with --labels"
            raise StoreError(f"{self.path}: changes of labels cannot be read or kept ({error}); {advice}") from error


def _size(path: Path) -> int:
    """How long the file is; 0 while there is a log beside it, which may hold its end."""
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size if path.is_file() and not (log.is_file() and log.stat().st_size) else 0
