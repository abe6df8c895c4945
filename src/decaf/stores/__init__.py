"""Where changes of labels are kept: in a file beside the model, or in a database that is named by its address."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from decaf.stores.changes import Change, LabelStore, now, to_lines
from decaf.stores.postgres import PostgresStore
from decaf.stores.sqlite import SqliteStore, store_path

__all__ = ["Change", "LabelStore", "kept_changes", "now", "open_store", "store_path", "to_lines"]

_POSTGRES = ("postgresql://", "postgres://")


def open_store(model: str | Path, labels: str | Path = "") -> LabelStore:
    """The store of a model's labels: the file or address that is named, or the file beside the model."""
    if str(labels).startswith(_POSTGRES):
        return PostgresStore(str(labels))
    return SqliteStore(labels or store_path(model))


def kept_changes(model: str | Path, labels: str | Path = "") -> list[Change]:
    """The changes that are kept there, if any; a file that is not there is not begun."""
    if not str(labels).startswith(_POSTGRES) and not Path(labels or store_path(model)).is_file():
        return []
    with closing(open_store(model, labels)) as store:
        return store.changes()
