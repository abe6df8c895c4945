"""What became of labels since the model was trained, and what a store of it must do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

__all__ = ["Change", "LabelStore", "now", "to_lines"]


class Change(NamedTuple):
    """What became of a label."""

    id: str
    text: str | None  # None: it is hidden
    at: str  # when, ISO 8601


class LabelStore(Protocol):
    """Changes of labels, kept; all methods may be called from any thread, and raise StoreError."""

    def put(self, label: str, text: str) -> None:
        """Add a label, or give one another text."""

    def hide(self, label: str) -> None:
        """Hide a label that was trained."""

    def forget(self, label: str) -> None:
        """Undo what was changed of a label."""

    def apply(self, changes: Sequence[Change], forgotten: Sequence[str] = ()) -> None:
        """Keep all these changes and forget those of other labels; all of it, or nothing."""

    def changes(self) -> list[Change]:
        """All changes, in the order of ids."""
        ...

    def stamp(self) -> object:
        """Another value whenever anybody has written."""
        ...

    def ask_reload(self) -> None:
        """Ask all that use this store to load their model anew."""

    def reloads(self) -> int:
        """How often that was asked."""
        ...

    def close(self) -> None:
        """Let go of it."""


def to_lines(changes: Sequence[Change]) -> Iterator[str]:
    """One JSON object a change."""
    return (json.dumps(change._asdict(), ensure_ascii=False) for change in changes)


def now() -> str:
    """This moment, as changes note it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
