"""How far long work has come: the library reports, whoever runs it decides what to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

__all__ = ["Advance", "Display", "progress", "showing"]

Advance = Callable[[int], None]
Display = Callable[[str, int], AbstractContextManager[Advance]]  # (title, total) -> a bar to advance

_display: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def showing(display: Display) -> Iterator[None]:
    """Within this block, show the progress of long work on `display`."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


def progress(title: str, total: int) -> AbstractContextManager[Advance]:
    """A bar for one piece of work of `total` units; silent unless somebody is showing."""
    display = _display.get()
    return nullcontext(_ignore) if display is None else display(title, total)


def _ignore(_: int) -> None:
    pass
