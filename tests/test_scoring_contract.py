"""What every scorer promises. To put a scorer under the contract, add it to SCORERS."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse

from decaf import Config, LabelTextScorer, Match, Model, Predictions, Scorer
from decaf.datasets import Items
from decaf.networks import FrozenEncoder, Instance, Ranker, Shortlister
from decaf.packed import Packed
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer

Dense = NDArray[np.float64]


class Case(NamedTuple):
    """A scorer, and the obvious way to the same scores."""

    name: str
    make: Callable[[sparse.csr_array], Scorer]  # from label features
    scores: Callable[[Dense, Dense], Dense]  # documents, labels -> [documents, labels]; -inf: not to be predicted
    tolerance: float = 0.0  # how far scores may be from the obvious ones, and from those in other company


def shared_weight(documents: Dense, labels: Dense) -> Dense:
    product = documents @ labels.T
    return np.where(product > 0, product, -np.inf)


def model_of(labels: sparse.csr_array) -> Model:
    """A model whose classifiers are the labels' features, in two instances with other clusters."""
    count, tokens = labels.shape
    weights = torch.as_tensor(labels.toarray().astype(np.float32))
    encoder = FrozenEncoder(torch.eye(tokens), torch.ones(tokens), torch.zeros(tokens, tokens), torch.zeros(tokens))
    instances = []
    for order in (np.arange(count), np.arange(count)[::-1]):
        members = torch.full((4, -(-count // 4)), -1)
        for at, label in enumerate(order.tolist()):
            members[at % 4, at // 4] = label
        shortlister = Shortlister(encoder, torch.zeros(4, tokens), torch.zeros(4), members)
        instances.append(Instance(shortlister, Ranker(encoder, weights, torch.zeros(count)), beam=4))
    packed = tuple(Packed.of(instance, "float32") for instance in instances)
    return Model(Config(), None, Items(count), np.arange(count), packed, {})


def exact_scorer(labels: sparse.csr_array) -> Scorer:
    return ExactScorer(model_of(labels), torch.device("cpu"))


def exact_scorer_on_a_gpu(labels: sparse.csr_array) -> Scorer:
    return ExactScorer(model_of(labels), torch.device("cuda"))


def fast_scorer(labels: sparse.csr_array) -> Scorer:
    return FastScorer(model_of(labels), threads=2)


def fast_scorer_of_one_instance(labels: sparse.csr_array) -> Scorer:
    model = model_of(labels)
    return FastScorer(replace(model, packed=model.packed[:1]))


def chance(documents: Dense, labels: Dense) -> Dense:
    """sigmoid(w.x) sigmoid(h.x), where h is zero."""
    scores = 0.5 / (1 + np.exp(-documents @ labels.T))
    return np.where(documents.any(axis=1, keepdims=True), scores, -np.inf)


SCORERS = [
    Case("label text", LabelTextScorer, shared_weight),
    Case("exact", exact_scorer, chance, 1e-6),
    *([Case("exact on a GPU", exact_scorer_on_a_gpu, chance, 1e-6)] if torch.cuda.is_available() else []),
    Case("fast", fast_scorer, chance, 1e-6),
    Case("fast, one instance", fast_scorer_of_one_instance, chance, 1e-6),
]


@pytest.fixture(params=SCORERS, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def rows(count: int, tokens: int, *, seed: int, density: float = 0.3) -> sparse.csr_array:
    """Weights of a few eighths: sums of products are exact, so equal scores are equal in any order of adding up."""
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 8, size=(count, tokens)) / 8 * (rng.random((count, tokens)) < density)
    return sparse.csr_array(dense.astype(np.float32))


def obvious(case: Case, documents: sparse.csr_array, labels: sparse.csr_array, top: int) -> list[list[Match]]:
    scores = case.scores(documents.toarray().astype(np.float64), labels.toarray().astype(np.float64))
    ranked = [sorted(((score, label) for label, score in enumerate(row)), reverse=True) for row in scores.tolist()]
    return [[Match(label, score) for score, label in row if score != -np.inf][:top] for row in ranked]


def same(found: Predictions, expected: Predictions, tolerance: float = 0.0) -> bool:
    close = np.allclose(found.scores, expected.scores, rtol=0, atol=tolerance)
    return np.array_equal(found.ids, expected.ids) and close


def agree(found: Predictions, expected: list[list[Match]], tolerance: float) -> bool:
    """The same labels in the same order, with scores that are the same to within the tolerance."""
    labels, wanted = ([[match.label for match in row] for row in rows] for rows in (found, expected))
    pairs = zip(chain.from_iterable(found), chain.from_iterable(expected), strict=True)
    return labels == wanted and all(abs(one.score - other.score) <= tolerance for one, other in pairs)


@pytest.mark.parametrize(("documents", "labels", "tokens"), [(40, 30, 12), (300, 7, 5), (20, 500, 30), (600, 60, 9)])
@pytest.mark.parametrize("top", [1, 5, 50])
def test_answers_are_the_obvious_ones(case: Case, documents: int, labels: int, tokens: int, top: int) -> None:
    given, known = rows(documents, tokens, seed=1), rows(labels, tokens, seed=2)
    scorer = case.make(known)
    found = scorer.top(given, top)
    assert agree(found, obvious(case, given, known, top), case.tolerance)
    assert found.ids.shape == (documents, top)
    assert found.scores.dtype == np.float32
    assert scorer.labels == labels


def test_an_empty_row_has_no_labels(case: Case) -> None:
    given = sparse.vstack([rows(3, 8, seed=1), sparse.csr_array((2, 8), dtype=np.float32)], format="csr")
    found = case.make(rows(5, 8, seed=2)).top(given, 4)
    assert found.ids[3:].tolist() == [[-1] * 4] * 2
    assert np.all(np.isneginf(found.scores[3:]))


def test_a_row_of_tokens_that_no_label_has_answers_as_the_obvious_way_does(case: Case) -> None:
    known = sparse.csr_array(np.array([[1, 0, 0], [1, 1, 0]], dtype=np.float32))
    given = sparse.csr_array(np.array([[0, 0, 1], [0, 1, 1]], dtype=np.float32))
    assert agree(case.make(known).top(given, 3), obvious(case, given, known, 3), case.tolerance)


def test_no_rows_have_no_answers(case: Case) -> None:
    found = case.make(rows(5, 8, seed=2)).top(sparse.csr_array((0, 8), dtype=np.float32), 4)
    assert found.ids.shape == (0, 4)


def test_one_label_is_enough(case: Case) -> None:
    known = sparse.csr_array(np.ones((1, 4), np.float32))
    assert agree(case.make(known).top(known, 3), obvious(case, known, known, 3), case.tolerance)
    assert case.make(known).labels == 1


def test_fewer_labels_than_asked_for_leave_gaps_behind(case: Case) -> None:
    known = sparse.csr_array(np.ones((2, 4), np.float32))
    found = case.make(known).top(known, 5)
    assert found.ids.tolist() == [[1, 0, -1, -1, -1]] * 2
    assert np.all(np.isneginf(found.scores[:, 2:]))


@pytest.mark.parametrize("top", [1, 3, 6, 10])
def test_of_labels_with_equal_scores_the_higher_number_goes_first(case: Case, top: int) -> None:
    known = sparse.csr_array(np.array([[1, 1], [2, 2], [1, 1], [2, 2], [1, 1], [2, 2]], dtype=np.float32))
    found = case.make(known).top(sparse.csr_array(np.ones((1, 2), np.float32)), top)
    assert [match.label for match in found[0]] == [5, 3, 1, 4, 2, 0][:top]


def test_the_best_one_is_the_first_of_the_best_many(case: Case) -> None:
    given, scorer = rows(200, 12, seed=1), case.make(rows(30, 12, seed=2))
    assert scorer.top(given, 1).ids.tolist() == scorer.top(given, 30).ids[:, :1].tolist()


def uneven(count: int, tokens: int, *, seed: int) -> sparse.csr_array:
    """Weights whose sums round: only the same sum in the same order gives the same bits."""
    matrix = rows(count, tokens, seed=seed)
    matrix.data = np.random.default_rng(seed).random(matrix.nnz, dtype=np.float32)
    return matrix


def test_a_batch_answers_as_its_rows_do_one_by_one(case: Case) -> None:
    given, scorer = uneven(300, 20, seed=1), case.make(uneven(80, 20, seed=2))
    together = scorer.top(given, 10)
    for at in range(0, 300, 7):
        assert same(scorer.top(given[at : at + 1], 10), together.take([at], 10), case.tolerance)


def test_a_large_batch_answers_as_its_pieces_do(case: Case) -> None:
    given, scorer = uneven(10_000, 20, seed=1), case.make(uneven(40, 20, seed=2))
    together = scorer.top(given, 5)
    assert len(together) == 10_000
    for start in (0, 100, 255, 256, 5_000, 9_900):
        piece = scorer.top(given[start : start + 100], 5)
        assert same(piece, together.take(range(start, start + 100), 5), case.tolerance)


def test_sliced_and_picked_rows_answer_as_before(case: Case) -> None:
    given, scorer = uneven(50, 20, seed=1), case.make(uneven(30, 20, seed=2))
    all_rows = scorer.top(given, 5)
    assert same(scorer.top(given[10:40:3], 5), all_rows.take(range(10, 40, 3), 5), case.tolerance)
    assert same(scorer.top(given[[7, 7, 0, 49]], 5), all_rows.take([7, 7, 0, 49], 5), case.tolerance)


def test_columns_of_a_wider_matrix_answer_as_on_their_own(case: Case) -> None:
    wide, scorer = rows(50, 30, seed=1), case.make(rows(30, 20, seed=2))
    narrow = wide[:, 5:25]
    assert same(scorer.top(narrow, 5), scorer.top(sparse.csr_array(narrow.toarray()), 5))


def test_arrays_that_are_not_contiguous_answer_the_same(case: Case) -> None:
    given, scorer = rows(50, 20, seed=1), case.make(rows(30, 20, seed=2))
    data, indices = np.repeat(given.data, 2)[::2], np.repeat(given.indices, 2)[::2]
    apart = sparse.csr_array((data, indices, given.indptr), shape=given.shape)
    assert same(scorer.top(apart, 5), scorer.top(given, 5))


def test_tokens_in_any_order_answer_the_same_and_stay_in_that_order(case: Case) -> None:
    given, known = rows(50, 20, seed=1), rows(30, 20, seed=2)
    scorer = case.make(known)
    backwards = given.copy()
    for start, end in zip(given.indptr[:-1], given.indptr[1:], strict=True):
        backwards.data[start:end] = given.data[start:end][::-1]
        backwards.indices[start:end] = given.indices[start:end][::-1]
    backwards.has_sorted_indices = False
    before = backwards.indices.copy()
    assert same(scorer.top(backwards, 5), scorer.top(given, 5))
    assert np.array_equal(backwards.indices, before)
    labels_backwards = known[:, ::-1][:, ::-1]
    assert same(case.make(labels_backwards).top(given, 5), scorer.top(given, 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_any_width_of_numbers_answers_the_same(case: Case, dtype: type, index: type) -> None:
    given, scorer = rows(50, 20, seed=1), case.make(rows(30, 20, seed=2))
    arrays = (given.data.astype(dtype), given.indices.astype(index), given.indptr.astype(index))
    found = scorer.top(sparse.csr_array(arrays, shape=given.shape), 5)
    assert found.scores.dtype == np.float32
    assert same(found, scorer.top(given, 5))


def test_read_only_rows_are_scored(case: Case) -> None:
    given, scorer = rows(20, 20, seed=1), case.make(rows(30, 20, seed=2))
    expected = scorer.top(given, 5)
    for array in (given.data, given.indices, given.indptr):
        array.flags.writeable = False
    assert same(scorer.top(given, 5), expected)


def test_eight_threads_at_once_get_the_same_answers(case: Case) -> None:
    given, scorer = uneven(600, 20, seed=1), case.make(uneven(50, 20, seed=2))
    expected = scorer.top(given, 5)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: scorer.top(given, 5), range(24)))
    assert all(same(answer, expected) for answer in answers)


def test_rows_of_other_tokens_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="dimension"):
        case.make(rows(5, 8, seed=2)).top(rows(3, 9, seed=1), 2)
