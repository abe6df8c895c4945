"""Compiled loops that are kept from run to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled", "drop_stale", "in_any_order", "inlined"]

_ANY_ORDER = {"reassoc", "contract", "arcp", "nsz"}
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """The function compiled when first called; it does not hold the interpreter's lock."""
    return cast("_Function", njit(nogil=True, cache=True)(function))


def in_any_order(function: _Function) -> _Function:
    """The same, where sums may be taken in any order."""
    return cast("_Function", njit(nogil=True, fastmath=_ANY_ORDER, cache=True)(function))


def inlined(function: _Function) -> _Function:
    """The same as a part of the loops that call it: handing over many arrays has a price."""
    return cast("_Function", njit(nogil=True, fastmath=_ANY_ORDER, cache=True, inline="always")(function))


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
