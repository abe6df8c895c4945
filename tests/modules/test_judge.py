"""Judging held-out documents: the same figures as the ruler's, and which labels are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decaf import Predictions, evaluate
from decaf.modules.judge import Figures, Judge
from decaf.modules.problem import Held

from . import random_rows, truth_of

CPU = torch.device("cpu")


def case(rows: int, labels: int, *, seed: int, filtered: float = 0.1) -> tuple[Held, np.random.Generator]:
    rng = np.random.default_rng(seed)
    truth = truth_of(
        [rng.choice(labels, size=rng.integers(0, min(8, labels) + 1), replace=False).tolist() for _ in range(rows)],
        labels,
    )
    filters = np.argwhere(rng.random((rows, labels)) < filtered).astype(np.int64)
    return Held(random_rows(rows, 3, seed=1), truth, filters, 1 + 9 * rng.random(labels), np.ones(rows)), rng


def figures(held: Held, labels: np.ndarray, scores: np.ndarray) -> Figures:
    """P and PSP at 1 and 5 by the ruler."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ids, best = np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1)
    predictions = Predictions(ids, np.where(ids < 0, -np.inf, best).astype(np.float32))
    found = evaluate(predictions, held.truth, held.inverse_propensity, held.filters)
    return Figures(found["P@1"], found["P@5"], found["PSP@1"], found["PSP@5"])


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    rows=st.integers(1, 30),
    labels=st.integers(1, 12),
    seed=st.integers(0, 200),
    filtered=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    gaps=st.booleans(),
)
def test_figures_are_those_of_the_ruler(rows: int, labels: int, seed: int, filtered: float, gaps: bool) -> None:
    held, rng = case(rows, labels, seed=seed, filtered=filtered)
    width = int(rng.integers(1, labels + 1))
    listed = np.stack([rng.permutation(labels)[:width] for _ in range(rows)]).astype(np.int64)
    if gaps:
        listed[rng.random(listed.shape) < 0.3] = -1
    scores = rng.permuted(np.tile(np.linspace(-3, 3, width), (rows, 1)), axis=1)
    # Places without a label come last for the ruler, whatever their score.
    expected = figures(held, listed, np.where(listed < 0, -100 + scores, scores))
    judge, tensors = Judge(held, CPU), (torch.as_tensor(scores).float(), torch.as_tensor(listed))
    assert judge.precision(*tensors) == pytest.approx(expected.p1, abs=1e-4)
    assert judge.figures(*tensors) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_a_document_that_counts_three_times_is_three_documents(seed: int) -> None:
    held, rng = case(14, 9, seed=seed)
    times = rng.integers(0, 4, 14)
    held = replace(held, weights=times.astype(np.float64))
    listed = np.stack([rng.permutation(9)[:7] for _ in range(14)]).astype(np.int64)
    scores = rng.permuted(np.tile(np.linspace(-3, 3, 7), (14, 1)), axis=1)
    rows = np.repeat(np.arange(14), times)
    filters = [(at, label) for at, row in enumerate(rows) for of, label in held.filters.tolist() if of == row]
    repeated = replace(held, truth=held.truth[rows], filters=np.array(filters).reshape(-1, 2))
    expected = figures(repeated, listed[rows], scores[rows])
    judge, tensors = Judge(held, CPU), (torch.as_tensor(scores).float(), torch.as_tensor(listed))
    assert judge.precision(*tensors) == pytest.approx(expected.p1, abs=1e-4)
    assert judge.figures(*tensors) == pytest.approx(expected, abs=1e-4)


def test_figures_by_hand_with_fewer_than_five_labels_listed() -> None:
    gains = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
    held = Held(
        random_rows(2, 3, seed=1), truth_of([[0, 2], [1, 2, 3, 4, 5, 6]], 7), np.array([[1, 6]]), gains, np.ones(2)
    )
    # Nothing and label 6, which counts for nothing, are passed over, however high their scores.
    listed, scores = torch.tensor([[0, -1, 5], [6, 4, 2]]), torch.tensor([[1.0, 9.0, 0.5], [3.0, 2.0, 1.0]])
    found = Judge(held, CPU).figures(scores, listed)
    first, second = 1 + 4, 32 + 16 + 8 + 4 + 2  # the most that five labels could gain
    assert found == pytest.approx((100, 100 * 3 / 10, 100 * 17 / (4 + 32), 100 * 21 / (first + second)), abs=1e-4)


def test_right_and_ignored_labels_are_told_one_by_one() -> None:
    held, _ = case(12, 7, seed=3, filtered=0.3)
    judge = Judge(held, CPU)
    listed = torch.arange(-1, 7).repeat(12, 1)
    truth, filters = held.truth.toarray(), {tuple(pair) for pair in held.filters.tolist()}
    right, ignored = judge.right(listed), judge.ignored(listed)
    for row in range(12):
        assert not right[row, 0]
        assert ignored[row, 0]
        for label in range(7):
            filtered = (row, label) in filters
            assert bool(ignored[row, label + 1]) == filtered
            assert bool(right[row, label + 1]) == (truth[row, label] > 0 and not filtered)


def test_nothing_right_at_all_is_no_precision() -> None:
    nothing = np.argwhere(np.ones((3, 2)))
    held = Held(random_rows(3, 2, seed=1, most=2), truth_of([[0], [1], [0]], 2), nothing, np.ones(2), np.ones(3))
    judge = Judge(held, CPU)
    scores, listed = torch.zeros(3, 2), torch.arange(2).repeat(3, 1)
    assert judge.precision(scores, listed) == 0
    assert judge.figures(scores, listed) == (0, 0, 0, 0)
