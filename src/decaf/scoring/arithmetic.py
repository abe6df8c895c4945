"""Sums of products for compiled loops: of whole numbers where rows are of eight bits, else of floats.

Sums of whole numbers are the same in any order. So whatever the order of the loops is, every answer has the same bits;
and processors are quick at them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from decaf.compiled import ANY_ORDER, in_any_order
from decaf.packed import Floats

__all__ = ["Vectors", "blank", "largest_entry", "nothing", "product", "put", "times"]

_LARGEST = (1 << 31) - 1  # that a sum may be
_AT_ONCE = 64  # products that a loop takes at a time
_ROW = 127  # the largest entry of a row of eight bits


class Vectors(NamedTuple):
    """Vectors as whole numbers of so large steps; or as they are, in steps of one."""

    values: NDArray[Any]  # int16 or float32, [vectors, dim or more]; what is behind is 0
    steps: Floats

    def floats(self, dim: int) -> Floats:
        """What they are worth."""
        worth: Floats = self.values[:, :dim] * self.steps[:, None]
        return worth


def blank(count: int, dim: int, *, whole: bool) -> Vectors:
    """Room for vectors. Whole numbers have room for a few more, all 0: loops by the dozen leave no rest."""
    shape = (count, -(-dim // _AT_ONCE) * _AT_ONCE if whole else dim)
    values = np.zeros(shape, dtype=np.int16) if whole else np.empty(shape, dtype=np.float32)
    return Vectors(values, np.ones(count, dtype=np.float32))


def largest_entry(dim: int) -> int:
    """How large the whole numbers of a vector may be, that no product with a row of eight bits is too large."""
    return min(np.iinfo(np.int16).max, _LARGEST // (_ROW * dim))


def nothing(rows: NDArray[Any]) -> Any:  # noqa: ANN401 - a number of the kind that sums over these rows are
    """Zero."""
    return rows.dtype.type(0)


def times(of_row: Any, of_vector: Any) -> Any:  # noqa: ANN401 - numbers
    """The product of two entries."""
    return of_row * of_vector


def product(rows: NDArray[Any], row: int, vectors: NDArray[Any], vector: int) -> np.float32:
    """The sum of the products of a row and a vector. To cut them out first would cost as much as the sum."""
    return np.float32(np.dot(rows[row].astype(np.float64), vectors[vector]))


@overload(nothing, strict=False)
def _nothing(rows: Any) -> Any:  # noqa: ANN401 - types of numba, and what numba compiles
    kind = np.int32 if isinstance(rows.dtype, types.Integer) else np.float32
    return lambda rows: kind(0)


@overload(times, strict=False)
def _times(of_row: Any, of_vector: Any) -> Any:  # noqa: ANN401
    if isinstance(of_row, types.Integer):
        return lambda of_row, of_vector: np.int32(of_row) * np.int32(of_vector)
    return lambda of_row, of_vector: of_row * np.float32(of_vector)


@overload(product, strict=False, jit_options={"fastmath": ANY_ORDER})
def _product(rows: Any, row: Any, vectors: Any, vector: Any) -> Any:  # noqa: ANN401
    if isinstance(rows.dtype, types.Integer):
        return _whole
    return _floats


def _whole(rows: NDArray[Any], row: int, vectors: NDArray[Any], vector: int) -> np.float32:
    total = np.int32(0)
    # What is behind the row is another one, and the vector has 0 there; behind the last rows may be nothing.
    wide = row * rows.shape[1] + vectors.shape[1] <= rows.size
    for at in range(vectors.shape[1] if wide else rows.shape[1]):
        total += np.int32(rows[row, at]) * np.int32(vectors[vector, at])
    return np.float32(np.int32(total))


def _floats(rows: NDArray[Any], row: int, vectors: NDArray[Any], vector: int) -> np.float32:
    total = np.float32(0)
    for at in range(vectors.shape[1]):
        total += rows[row, at] * vectors[vector, at]
    return total


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
