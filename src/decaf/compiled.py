"""Compiled loops that are kept from run to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["ANY_ORDER", "compiled", "drop_stale", "in_any_order", "inlined", "unowned", "unowned_in_any_order"]

ANY_ORDER = {"reassoc", "contract", "arcp", "nsz"}  # what sums may be taken in any order for
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """The function compiled when first called, and kept; it does not hold the interpreter's lock."""
    return _made(function)


def in_any_order(function: _Function) -> _Function:
    """The same, where sums may be taken in any order."""
    return _made(function, fastmath=ANY_ORDER)


def unowned(function: _Function) -> _Function:
    """The same for loops that make no arrays: without the count of who uses one, which costs more than many a sum."""
    return _made(function, _nrt=False)


def unowned_in_any_order(function: _Function) -> _Function:
    """Both."""
    return _made(function, _nrt=False, fastmath=ANY_ORDER)


def inlined(function: _Function) -> _Function:
    """The same as a part of the loops that call it: handing over many arrays has a price."""
    return _made(function, inline="always")


def _made(function: _Function, **options: Any) -> _Function:  # noqa: ANN401 - what numba knows
    return cast("_Function", njit(nogil=True, cache=True, **options)(function))


def drop_stale(source: str, others: Sequence[str] = ()) -> None:
    """Forget what was compiled of a file before it, or others it takes types from, changed.

    It may name types that are gone, and numba trips over it.
    """
    file = Path(source)
    with suppress(OSError):
        newest = max(Path(one).stat().st_mtime for one in (source, *others))
        for kept in (file.parent / "__pycache__").glob(f"{file.stem}.*.nbi"):
            if kept.stat().st_mtime < newest:
                kept.unlink(missing_ok=True)
