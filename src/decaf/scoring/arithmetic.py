"""Sums of products for compiled loops: of whole numbers where rows are of four or eight bits, else of floats.

Sums of whole numbers are the same in any order. So whatever the order of the loops is, every answer has the same bits;
and processors are quick at them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from decaf import packed
from decaf.compiled import drop_stale, in_any_order, unowned, unowned_in_any_order
from decaf.packed import MIDDLE, Floats
from decaf.scoring import lanes
from decaf.scoring.lanes import LINE, SHIFT, Four, bytes_by_lanes, cut, halves_by_lanes, in_hardware, planes_of

__all__ = [
    "TOGETHER",
    "Vectors",
    "blank",
    "finish",
    "fours",
    "largest_entry",
    "nothing",
    "products",
    "put",
    "squares",
    "times",
]

_LARGEST = (1 << 31) - 1  # that a sum may be
_CUT = 127 * 256 + 127  # the largest number that can be cut into two bytes with signs
_AT_ONCE = 64  # products that a loop takes at a time
TOGETHER = 4  # rows that are multiplied with a vector at once, see `Four`
_ROW = 127  # the largest entry of a row of eight bits
_BY_LANES = in_hardware()
drop_stale(__file__, [packed.__file__, lanes.__file__])


class Vectors(NamedTuple):
    """Vectors as whole numbers of so large steps; or as they are, in steps of one."""

    values: NDArray[Any]  # int16 or float32, [vectors, dim or more]; what is behind is 0
    steps: Floats
    sums: NDArray[np.int32]  # of whole numbers
    planes: NDArray[np.int8]  # their bytes, see `lanes.cut`; no vectors where they are of no use

    def floats(self, dim: int) -> Floats:
        """What they are worth."""
        worth: Floats = self.values[:, :dim] * self.steps[:, None]
        return worth


def blank(count: int, dim: int, *, whole: bool) -> Vectors:
    """Room for vectors. Whole numbers have room for a few more, all 0: loops by the dozen leave no rest."""
    wide = -(-dim // _AT_ONCE) * _AT_ONCE if whole else dim
    return Vectors(
        np.zeros((count, wide), dtype=np.int16 if whole else np.float32),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=np.int32),
        np.zeros((count if whole and _BY_LANES else 0, planes_of(dim)), dtype=np.int8),
    )


def largest_entry(dim: int) -> int:
    """How large the whole numbers of a vector may be, that no product with a row of eight bits is too large."""
    return min(_CUT, _LARGEST // (_ROW * dim))


def nothing(rows: NDArray[Any]) -> Any:  # noqa: ANN401 - a number of the kind that sums over these rows are
    """Zero."""
    return rows.dtype.type(0)


def times(of_row: Any, of_vector: Any) -> Any:  # noqa: ANN401 - numbers
    """The product of two entries."""
    return of_row * of_vector


def squares(values: NDArray[Any]) -> float:
    """The sum of the squares."""
    return float(np.square(values.astype(np.float64)).sum())


def products(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    """The sums of the products of four rows and a vector. To cut them out first would cost as much as the sums."""
    # Compiled code has quicker ways, below; tests compare them with this.
    worth = packed.whole(rows[list(four)], np.ones(len(four), dtype=np.float32))
    found[:] = worth.astype(np.float64) @ vectors.values[vector, : worth.shape[1]]


@overload(nothing, strict=False)
def _nothing(rows: Any) -> Any:  # noqa: ANN401 - types of numba, and what numba compiles
    kind = np.int32 if isinstance(rows.dtype, types.Integer) else np.float32
    return lambda rows: kind(0)


@overload(times, strict=False)
def _times(of_row: Any, of_vector: Any) -> Any:  # noqa: ANN401
    if isinstance(of_row, types.Integer):
        return lambda of_row, of_vector: np.int32(of_row) * np.int32(of_vector)
    return lambda of_row, of_vector: of_row * np.float32(of_vector)


@overload(squares, strict=False)
def _squares(values: Any) -> Any:  # noqa: ANN401
    kind = np.int64 if isinstance(values.dtype, types.Integer) else np.float64

    def added(values: NDArray[Any]) -> float:
        total = kind(0)
        for value in values:
            total += kind(value) * kind(value)
        return float(total)

    return added


@overload(products, strict=False, inline="always")  # to hand over all arrays of vectors costs as much as the sums
def _products(rows: Any, four: Any, vectors: Any, vector: Any, found: Any) -> Any:  # noqa: ANN401
    if isinstance(rows.dtype, types.Float):
        return _floats
    if rows.dtype.signed:
        return _bytes if _BY_LANES else _bytes_by_loop
    return _halves if _BY_LANES else _halves_by_loop


def _floats(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    of_floats(rows, four, vectors.values, vector, found)


def _bytes(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    if beyond(rows, max(four)):
        of_bytes(rows, four, vectors.values, vector, found)
    else:
        bytes_by_lanes(rows, four, vectors.planes, vector, _SHIFT * vectors.sums[vector], found)


def _halves(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    if beyond(rows, max(four)):
        of_halves(rows, four, vectors.values, vector, vectors.sums[vector], found)
    else:
        halves_by_lanes(rows, four, vectors.planes, vector, _MIDDLE * vectors.sums[vector], found)


def _bytes_by_loop(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    of_bytes(rows, four, vectors.values, vector, found)


def _halves_by_loop(rows: NDArray[Any], four: Four, vectors: Vectors, vector: int, found: Floats) -> None:
    of_halves(rows, four, vectors.values, vector, vectors.sums[vector], found)


@unowned
def beyond(rows: NDArray[Any], row: int) -> bool:
    """Whether the whole lines that hold a row go beyond the last."""
    return bool(row * rows.shape[1] + (rows.shape[1] + LINE - 1) // LINE * LINE > rows.size)


@unowned_in_any_order
def of_floats(rows: Floats, four: Four, values: Floats, vector: int, found: Floats) -> None:
    """The sums of the products of four rows and a vector, of floats."""
    for number in range(len(four)):
        row, total = four[number], np.float32(0)
        for at in range(values.shape[1]):
            total += rows[row, at] * values[vector, at]
        found[number] = total


@unowned
def of_bytes(rows: NDArray[np.int8], four: Four, values: NDArray[np.int16], vector: int, found: Floats) -> None:
    """The same of rows of bytes."""
    for number in range(len(four)):
        row, total = four[number], np.int32(0)
        # What is behind the row is another one, and the vector has 0 there; behind the last rows may be nothing.
        wide = row * rows.shape[1] + values.shape[1] <= rows.size
        for at in range(values.shape[1] if wide else rows.shape[1]):
            total += np.int32(rows[row, at]) * np.int32(values[vector, at])
        found[number] = np.float32(np.int32(total))


@unowned
def of_halves(
    rows: NDArray[np.uint8], four: Four, values: NDArray[np.int16], vector: int, sum_: np.int32, found: Floats
) -> None:
    """The same of rows of halves of bytes."""
    for number in range(len(four)):
        row, total = four[number], np.int32(0)
        for at in range(np.uint32(rows.shape[1])):
            both, there = rows[row, at], at + at
            total += np.int32(both & _LOWER) * np.int32(values[vector, there])
            total += np.int32(both >> _HALF) * np.int32(values[vector, there + _ONE])
        found[number] = np.float32(np.int32(total - _MIDDLE * sum_))


_SHIFT, _MIDDLE, _LOWER, _HALF, _ONE = np.int32(SHIFT), np.int32(MIDDLE), np.uint8(15), np.uint8(4), np.uint32(1)


@unowned
def fours(first: int, count: int) -> Four:
    """Four numbers from this one on; those that are too large are the last."""
    last = count - 1
    return first, min(first + 1, last), min(first + 2, last), min(first + 3, last)


@unowned
def finish(vectors: Vectors, vector: int) -> None:
    """Make ready what is known of the whole numbers of a vector beside themselves."""
    total = np.int32(0)
    for value in vectors.values[vector]:
        total += np.int32(value)
    vectors.sums[vector] = total
    if len(vectors.planes):
        cut(vectors.values[vector], vectors.planes[vector])


@in_any_order
def put(vector: Floats, most: int, to: NDArray[Any]) -> np.float32:
    """Round a vector to whole numbers up to `most`; how large their steps are. With `most` 0 it stays as it is."""
    if not most:
        for at in range(len(vector)):
            to[at] = vector[at]
        return np.float32(1)
    largest = np.float32(1e-30)
    for value in vector:
        largest = max(largest, abs(value))
    step = largest / np.float32(most)
    for at in range(len(vector)):
        to[at] = np.int16(np.rint(vector[at] / step))
    return step
