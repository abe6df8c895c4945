"""Batches: every document once an epoch, with its own tokens, weights and labels, and nothing in the padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf.modules.batches import Batch, Batches
from decaf.networks import Rows

from . import random_rows, truth_of

CPU = torch.device("cpu")
Entries = list[tuple[int, float]]


def rows_of(matrix: sparse.csr_array) -> Rows:
    return Rows.of(matrix, CPU)


def dense(rows: Rows, columns: int) -> np.ndarray:
    arrays = (rows.values.numpy(), rows.columns.numpy(), rows.bounds.numpy())
    return sparse.csr_array(arrays, shape=(len(rows), columns)).toarray()


def some_truth(rows: int, labels: int, *, seed: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    return truth_of([rng.choice(labels, size=rng.integers(1, 4), replace=False).tolist() for _ in range(rows)], labels)


def check_batch(batch: Batch, documents: sparse.csr_array, truth: sparse.csr_array, numbers: list[int]) -> None:
    """The batch holds these documents, in this order."""
    count = len(numbers)
    assert batch.numbers[:count].tolist() == numbers
    assert batch.there.tolist() == [1] * count + [0] * (len(batch.there) - count)
    assert float(batch.count) == count
    ends = [*batch.starts[1:].tolist(), len(batch.tokens)]
    for row, (start, end) in enumerate(zip(batch.starts.tolist(), ends, strict=True)):
        found = np.zeros(documents.shape[1], dtype=np.float32)
        np.add.at(found, batch.tokens[start:end].numpy(), batch.weights[start:end].numpy())
        expected = documents[[numbers[row]]].toarray()[0] if row < count else np.zeros_like(found)
        assert np.array_equal(found, expected)
    pairs = np.zeros((len(batch.there), truth.shape[1]), dtype=np.float32)
    np.add.at(pairs, (batch.rows.numpy(), batch.columns.numpy()), batch.true.numpy())
    assert np.array_equal(pairs[:count], truth[numbers].toarray())
    assert not pairs[count:].any()


def check_epoch(batches: Batches, documents: sparse.csr_array, truth: sparse.csr_array, order: list[int]) -> None:
    size = len(batches.batch(torch.tensor([0])).numbers)
    for step in range(batches.steps):
        check_batch(batches.batch(torch.tensor([step])), documents, truth, order[step * size : (step + 1) * size])


def test_rows_keep_the_matrix() -> None:
    matrix = random_rows(6, 9, seed=1, least=0)
    rows = rows_of(matrix)
    assert len(rows) == 6
    assert np.array_equal(dense(rows, 9), matrix.toarray())
    assert rows.starts.tolist() == matrix.indptr[:-1].tolist()


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(count=st.integers(1, 20), seed=st.integers(0, 100))
def test_shuffled_rows_are_the_slices_in_that_order(count: int, seed: int) -> None:
    matrix = random_rows(count, 7, seed=seed, least=0)
    order = np.random.default_rng(seed).permutation(count)
    shuffled = rows_of(matrix).shuffled(torch.as_tensor(order))
    assert np.array_equal(dense(shuffled, 7), matrix[order].toarray())


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(count=st.integers(1, 30), size=st.integers(1, 12), seed=st.integers(0, 100))
def test_every_document_comes_once_with_what_is_its_own(count: int, size: int, seed: int) -> None:
    documents, truth = random_rows(count, 9, seed=seed), some_truth(count, 5, seed=seed)
    batches = Batches(rows_of(documents), rows_of(truth), size)
    assert len(batches) == count
    assert batches.steps == -(-count // min(size, count))
    for epoch in range(3):
        order = np.random.default_rng(seed + epoch).permutation(count).tolist()
        batches.shuffle(torch.tensor(order))
        check_epoch(batches, documents, truth, order)


def test_a_batch_that_is_longer_than_the_room_makes_more_room() -> None:
    # Two documents are very long: together in a batch they are far above what the spread of lengths foresees.
    lengths = [60] * 2 + [1] * 1998
    documents = sparse.csr_array(
        (np.ones(sum(lengths), np.float32), np.concatenate([np.arange(n) for n in lengths]), np.cumsum([0, *lengths])),
        shape=(2000, 60),
    )
    truth = truth_of([[row % 3] for row in range(2000)], 3)
    batches = Batches(rows_of(documents), rows_of(truth), 2)
    apart = [0, *range(2, 2000), 1]
    assert batches.shuffle(torch.tensor(apart))  # one alone is too long already
    before = len(batches.batch(torch.tensor([0])).tokens)
    assert batches.shuffle(torch.arange(2000))
    assert len(batches.batch(torch.tensor([0])).tokens) == 120 > before
    for step in (0, 1, 999):
        check_batch(batches.batch(torch.tensor([step])), documents, truth, [2 * step, 2 * step + 1])
    assert not batches.shuffle(torch.tensor(apart))  # what was made stays
    check_batch(batches.batch(torch.tensor([0])), documents, truth, [0, 2])
    check_batch(batches.batch(torch.tensor([999])), documents, truth, [1999, 1])


def test_many_labels_in_one_batch_make_more_room_too() -> None:
    truth = truth_of([list(range(40))] * 2 + [[0]] * 1998, 40)
    documents = random_rows(2000, 5, seed=1, most=2)
    batches = Batches(rows_of(documents), rows_of(truth), 2)
    assert batches.shuffle(torch.arange(2000))
    check_batch(batches.batch(torch.tensor([0])), documents, truth, [0, 1])
    check_batch(batches.batch(torch.tensor([7])), documents, truth, [14, 15])


@pytest.mark.parametrize("size", [1, 5, 100])
def test_documents_of_one_length_never_outgrow_the_room(size: int) -> None:
    documents = random_rows(20, 9, seed=1, least=4, most=4)
    batches = Batches(rows_of(documents), rows_of(truth_of([[0]] * 20, 1)), size)
    assert not batches.shuffle(torch.randperm(20, generator=torch.Generator().manual_seed(0)))
