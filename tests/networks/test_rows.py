"""Some rows one after another, as many entries as needed or in a room of fixed size, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import random_rows
from scipy import sparse

from decaf.networks import Rows

CPU = torch.device("cpu")


def rows_of(count: int, *, seed: int = 1) -> tuple[sparse.csr_array, Rows]:
    matrix = random_rows(count, 9, seed=seed, least=0)
    return matrix, Rows.of(matrix, CPU)


def one_by_one(matrix: sparse.csr_array, chosen: list[int]) -> tuple[list[int], list[int], list[float]]:
    """Columns, starts and values of these rows."""
    columns: list[int] = []
    starts: list[int] = []
    values: list[float] = []
    for row in chosen:
        starts.append(len(columns))
        span = slice(matrix.indptr[row], matrix.indptr[row + 1])
        columns += matrix.indices[span].tolist()
        values += matrix.data[span].tolist()
    return columns, starts, values


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    count=st.integers(2, 12), seed=st.integers(0, 50), draws=st.lists(st.integers(0, 11), max_size=10), extra=st.data()
)
def test_some_rows_are_taken_one_by_one(count: int, seed: int, draws: list[int], extra: st.DataObject) -> None:
    matrix, rows = rows_of(count, seed=seed)
    filled = int(np.diff(matrix.indptr).argmax())
    chosen = [filled, *(draw % count for draw in draws)]
    columns, starts, values = one_by_one(matrix, chosen)
    found = rows.padded(torch.tensor(chosen), None)
    assert [part.tolist() for part in found] == [columns, starts, values]
    room = extra.draw(st.integers(1, len(columns) + 5))
    found = rows.padded(torch.tensor(chosen), room)
    gap = room - len(columns)
    assert found[0].tolist() == columns[:room] + [0] * gap
    assert found[1].tolist() == [min(start, room) for start in starts]
    assert found[2].tolist() == values[:room] + [0] * gap


def test_the_order_and_repetition_of_rows_is_kept() -> None:
    matrix, rows = rows_of(6)
    for room in (None, 40):
        columns, starts, values = rows.padded(torch.tensor([5, 2, 5]), room)
        expected = one_by_one(matrix, [5, 2, 5])
        assert columns.tolist()[: len(expected[0])] == expected[0]
        assert starts.tolist() == expected[1]
        assert values.tolist()[: len(expected[2])] == expected[2]
        assert not values[len(expected[2]) :].any()


@pytest.mark.parametrize("room", [None, 3])
def test_empty_rows_among_others_have_no_entries(room: int | None) -> None:
    rows = Rows.of(sparse.csr_array(np.array([[0, 0], [1, 2], [0, 0]], dtype=np.float32)), CPU)
    columns, starts, values = rows.padded(torch.tensor([2, 0, 2]), room)
    assert starts.tolist() == [0, 0, 0]
    assert not values.any()
    columns, starts, values = rows.padded(torch.tensor([0, 1, 2]), room)
    assert (columns.tolist()[:2], starts.tolist(), values.tolist()[:2]) == ([0, 1], [0, 0, 2], [1, 2])


@pytest.mark.parametrize("room", [None, 3])
def test_rows_of_a_matrix_without_entries_are_empty(room: int | None) -> None:
    rows = Rows.of(sparse.csr_array((4, 5), dtype=np.float32), CPU)
    columns, starts, values = rows.padded(torch.tensor([1, 3]), room)
    assert starts.tolist() == [0, 0]
    assert columns.tolist() == [0] * (room or 0)
    assert values.tolist() == [0] * (room or 0)


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_the_room_holds_nearly_all_choices_and_is_never_larger_than_the_longest_rows(count: int) -> None:
    matrix, rows = rows_of(100)
    lengths = np.diff(matrix.indptr)
    room = rows.room(count)
    longest = int(np.sort(lengths)[::-1][:count].sum())
    rng = np.random.default_rng(2)
    drawn = [int(lengths[rng.permutation(100)[:count]].sum()) for _ in range(500)]
    assert max(drawn) <= room <= longest
    assert rows.room(1000) == matrix.nnz


def test_there_is_always_room_for_one_entry() -> None:
    assert Rows.of(sparse.csr_array((4, 5), dtype=np.float32), CPU).room(2) == 1
