"""Changes of labels in PostgreSQL, shared by all that are told its address."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from decaf.errors import ConfigError, StoreError
from decaf.stores.changes import Change, now

__all__ = ["PostgresStore"]

log = logging.getLogger(__name__)

_FORMAT = 1
_POLL = 0.2  # seconds between two looks for what others have written
_WAIT = 10  # seconds for a connection
# Who does not answer for so long is gone, however quietly: seconds, seconds, times, milliseconds.
_ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 10_000}
_LOCK = 0x6465636166  # of those that begin the tables at once
_TABLES = """
create table if not exists decaf_labels (id text primary key, text text, at text not null);
create table if not exists decaf_counters (name text primary key, value bigint not null);
insert into decaf_counters values ('format', 1), ('writes', 0), ('reloads', 0) on conflict do nothing;
"""
_PUT = """
insert into decaf_labels values (%s, %s, %s)
on conflict (id) do update set text = excluded.text, at = excluded.at
"""
_COUNT = "update decaf_counters set value = value + 1 where name = %s returning value"


class PostgresStore:
    """Changes of labels in tables of a PostgreSQL database; any number of processes and machines may use them at once.

    What this process writes it sees at once; what others write, within a fraction of a second. While the database
    cannot be reached, what is known stays as it is and nothing can be written.
    """

    def __init__(self, url: str) -> None:
        self._database = _Database(url)
        self.path = self._database.name
        try:
            self._begin()
            self._watch = _Watch.of(url)
        except BaseException:
            self._database.close()
            raise

    def _begin(self) -> None:
        with self._database.transaction() as cursor:
            (begun,) = cursor.execute("select to_regclass('decaf_counters')").fetchone()
            if begun is None:  # who may only read begins nothing
                cursor.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
                cursor.execute(_TABLES)
        version = _counters(self._database)["format"]
        if version > _FORMAT:
            raise StoreError(f"{self.path}: has format {version} and this decaf reads {_FORMAT}; install a newer decaf")

    def put(self, label: str, text: str) -> None:
        """Add a label, or give one another text."""
        self.apply([Change(label, text, now())])

    def hide(self, label: str) -> None:
        """Hide a label that was trained."""
        self.apply([Change(label, None, now())])

    def forget(self, label: str) -> None:
        """Undo what was changed of a label."""
        self.apply([], [label])

    def apply(self, changes: Sequence[Change], forgotten: Sequence[str] = ()) -> None:
        """Keep all these changes and forget those of other labels; all of it, or nothing."""
        with self._database.transaction() as cursor:
            (writes,) = cursor.execute(_COUNT, ["writes"]).fetchone()  # who writes next waits for the end of this
            cursor.executemany(_PUT, changes)
            cursor.executemany("delete from decaf_labels where id = %s", [[label] for label in forgotten])
        self._watch.wrote("writes", writes)

    def changes(self) -> list[Change]:
        """All changes, in the order of ids."""
        with self._database.transaction() as cursor:
            rows = cursor.execute('select id, text, at from decaf_labels order by id collate "C"').fetchall()
        return [Change(*row) for row in rows]

    def stamp(self) -> int:
        """Another value whenever anybody has written, as far as is known here."""
        return self._watch.counters["writes"]

    def ask_reload(self) -> None:
        """Ask all that use these tables to load their model anew."""
        with self._database.transaction() as cursor:
            (reloads,) = cursor.execute(_COUNT, ["reloads"]).fetchone()
        self._watch.wrote("reloads", reloads)

    def reloads(self) -> int:
        """How often that was asked, as far as is known here."""
        return self._watch.counters["reloads"]

    def close(self) -> None:
        """Let go of the connection."""
        self._watch.leave()
        self._database.close()


class _Database:
    """A connection for one transaction at a time; one that was lost is made anew."""

    def __init__(self, url: str) -> None:
        self.name = _without_password(url)
        self._url, self._lock = url, threading.Lock()
        self._connection: Any = None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor; what is done with it is kept as a whole, or not at all."""
        try:
            import psycopg
        except ImportError as error:
            raise ConfigError("PostgreSQL needs psycopg; pip install 'decaf[scale]'") from error
        with self._lock:
            try:
                with self._connected(psycopg).transaction(), self._connection.cursor() as cursor:
                    yield cursor
            except (psycopg.Error, OSError) as error:
                said = _scrubbed(" ".join(str(error).split()), self._url) or type(error).__name__
                advice = "see that the database is there and may be written, or name another with --labels"
                raise StoreError(f"{self.name}: changes of labels cannot be read or kept ({said}); {advice}") from error

    def _connected(self, psycopg: Any) -> Any:  # noqa: ANN401 - a package that may not be there
        """The connection, which is made anew where it does not answer any more."""
        if self._connection is not None and not self._connection.closed:
            with suppress(psycopg.Error, OSError):
                self._connection.execute("select 1")
                return self._connection
            self._connection.close()
        self._connection = psycopg.connect(self._url, connect_timeout=_WAIT, autocommit=True, **_ALIVE)
        return self._connection

    def close(self) -> None:
        """Let go of it."""
        with self._lock, suppress(Exception):
            if self._connection is not None:
                self._connection.close()


class _Watch:
    """What is known of a database in this process; a thread looks for what others have written."""

    _known: dict[str, _Watch] = {}  # noqa: RUF012 - by address, one for all stores of the process
    _guard = threading.Lock()

    @classmethod
    def of(cls, url: str) -> _Watch:
        """The one of an address, begun if there is none."""
        with cls._guard:
            watch = cls._known.get(url) or cls(url)
            cls._known[url] = watch
            watch._users += 1
            return watch

    def __init__(self, url: str) -> None:
        self._database, self._url, self._users = _Database(url), url, 0
        self._over = threading.Event()
        self._own = 0  # writes of this process
        self.counters = _counters(self._database)
        threading.Thread(target=self._look, daemon=True, name="decaf-labels").start()

    def wrote(self, name: str, value: int) -> None:
        """Note what this process has written."""
        with self._guard:
            self._own += 1
            self.counters |= {name: value}

    def _saw(self) -> None:
        """Note what the database says; what was read before this process last wrote says nothing."""
        own = self._own
        counters = _counters(self._database)
        with self._guard:
            if own == self._own:
                self.counters = counters

    def leave(self) -> None:
        """One user less; with the last one, the thread ends."""
        with self._guard:
            self._users -= 1
            if not self._users:
                self._known.pop(self._url)
                self._over.set()

    def _look(self) -> None:
        there = True
        while not self._over.wait(_POLL):
            try:
                self._saw()
            except StoreError as error:
                if there:
                    log.warning("%s; labels stay as they were until it is there again", error)
                there = False
                continue
            if not there:
                log.warning("%s: is there again", self._database.name)
            there = True
        self._database.close()


def _counters(database: _Database) -> dict[str, int]:
    """The version of the tables, how often was written, and how often a load was asked for."""
    with database.transaction() as cursor:
        return dict(cursor.execute("select name, value from decaf_counters").fetchall())


def _without_password(url: str) -> str:
    """An address that may be shown: server and database, no account's secrets and no options."""
    parts = urlsplit(url)
    account = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{account}{parts.netloc.rpartition('@')[2]}{parts.path}"


def _scrubbed(said: str, url: str) -> str:
    """A message without what stands in the address as a password, written so or so."""
    parts = urlsplit(url)
    options = [value for name, value in parse_qsl(parts.query) if "password" in name]
    secrets = [parts.password or "", *options]
    for form in (*secrets, *map(unquote, secrets)):
        said = said.replace(form, "...") if form else said
    return said
