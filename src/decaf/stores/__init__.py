"""Where changes of labels are kept: in a file beside the model, or in a database that is named by its address."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from decaf.errors import ConfigError, StoreError
from decaf.stores.changes import Change, LabelStore, now, to_lines
from decaf.stores.postgres import PostgresStore
from decaf.stores.sqlite import SqliteStore, store_path

__all__ = ["Change", "LabelStore", "kept_changes", "now", "open_store", "store_path", "to_lines"]

_POSTGRES = ("postgresql://", "postgres://")


def open_store(model: str | Path, labels: str | Path = "") -> LabelStore:
    """The store of a model's labels: the file or address that is named, or the file beside the model."""
    if _is_address(labels):
        return PostgresStore(str(labels))
    return SqliteStore(labels or store_path(model))


def kept_changes(model: str | Path, labels: str | Path = "", *, begun: bool = True) -> list[Change]:
    """The changes that are kept there; beside a model there may be none, but a file that is named must be `begun`."""
    if not _is_address(labels) and not Path(labels or store_path(model)).is_file():
        if labels and begun:
            raise StoreError(f"{labels}: there is no such file; decaf labels add begins one, or leave --labels out")
        return []
    with closing(open_store(model, labels)) as store:
        return store.changes()


def _is_address(labels: str | Path) -> bool:
    """Whether labels are in a database, not in a file."""
    scheme, found, _ = str(labels).partition("://")
    if found and f"{scheme}://" not in _POSTGRES:
        raise ConfigError(f"labels cannot be kept at {scheme}://...; name a file, or postgresql://USER@HOST/DATABASE")
    return bool(found)
