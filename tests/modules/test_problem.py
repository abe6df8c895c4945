"""What the modules learn from: who is left out, and clusters of labels as labels themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf.features import unit_values
from decaf.modules import problem as problem_module
from decaf.modules.problem import MetaLabels, Problem, label_sums, weights_of_test

from . import random_rows, truth_of


def tokens(*rows: list[float]) -> sparse.csr_array:
    return sparse.csr_array(np.array(rows, dtype=np.float32))


def test_labels_without_documents_and_documents_without_tokens_or_labels_are_left_out() -> None:
    documents = tokens([1, 0], [0, 0], [0, 2], [3, 3], [0, 5])
    labels = tokens([1, 1], [2, 2], [0, 0], [4, 4])
    # Label 1 is on the document without tokens alone; label 2 has no text; document 3 has no label.
    truth = truth_of([[3], [1], [3, 2], [], [2]], 4)
    problem = Problem.of(documents, labels, truth)
    assert problem.kept.tolist() == [2, 3]
    assert problem.documents.toarray().tolist() == [[1, 0], [0, 2], [0, 5]]
    assert problem.labels.toarray().tolist() == [[0, 0], [4, 4]]
    assert problem.truth.toarray().tolist() == [[0, 1], [1, 1], [1, 0]]


def test_weights_of_labels_become_ones() -> None:
    truth = truth_of([[0], [1]], 2) * 0.25
    assert Problem.of(tokens([1], [1]), tokens([1], [1]), sparse.csr_array(truth)).truth.data.tolist() == [1, 1]


def test_the_given_matrices_are_left_as_they_are() -> None:
    documents, labels = random_rows(5, 4, seed=1, least=0), random_rows(3, 4, seed=2)
    truth = truth_of([[0], [2], [0, 2], [], [2]], 3) * 0.5
    before = [matrix.toarray() for matrix in (documents, labels, truth)]
    Problem.of(documents, labels, sparse.csr_array(truth))
    assert all(np.array_equal(a, b.toarray()) for a, b in zip(before, (documents, labels, truth), strict=True))


@pytest.mark.parametrize(("documents", "truth"), [([[0.0]], [[0]]), ([[1.0]], [[]])])
def test_nothing_may_be_left(documents: list[list[float]], truth: list[list[int]]) -> None:
    assert not len(Problem.of(tokens(*documents), tokens([1]), truth_of(truth, 1)).kept)


def problem() -> Problem:
    return Problem.of(
        tokens([1, 0, 0], [0, 1, 0], [0, 0, 1]),
        tokens([3, 0, 0], [1, 4, 0], [0, 0, 2], [0, 0, 0], [0, 0, 5]),
        truth_of([[0, 1], [1, 2, 4], [3]], 5),
    )


def test_clusters_are_labels_themselves() -> None:
    meta = MetaLabels.of(problem(), np.array([2, 2, 0, 1, 0]), 4)
    size = np.hypot(4, 4)
    assert np.allclose(meta.texts.toarray(), [[0, 0, 1], [0, 0, 0], [4 / size, 4 / size, 0], [0, 0, 0]])
    assert meta.known.toarray().tolist() == [[0, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0]]
    assert meta.members.tolist() == [[2, 4], [3, -1], [0, 1], [-1, -1]]
    assert meta.cluster.tolist() == [2, 2, 0, 1, 0]


def test_a_cluster_is_true_by_one_label_and_otherwise_counts_for_nothing_by_one() -> None:
    documents, labels = tokens([1], [1], [1]), tokens([1], [1], [1], [1], [1])
    filters = np.array([[0, 1], [0, 3], [1, 2], [1, 3], [2, 4]])
    known = Problem.of(documents, labels, truth_of([[0], [4], [1, 2, 3, 4, 0]], 5), filters)
    meta = MetaLabels.of(known, np.array([0, 0, 1, 1, 2]), 4)
    assert meta.known.toarray().tolist() == [[1, -1, 0, 0], [0, -1, 1, 0], [1, 1, 1, 0]]


def test_texts_of_clusters_have_unit_length() -> None:
    many = Problem.of(
        random_rows(30, 9, seed=1), random_rows(20, 9, seed=2), truth_of([[i % 20] for i in range(30)], 20)
    )
    cluster = np.arange(20) % 4
    meta = MetaLabels.of(many, cluster, 4)
    assert np.allclose(np.linalg.norm(meta.texts.toarray(), axis=1), 1)
    sums = np.stack([many.labels.toarray()[cluster == m].sum(axis=0) for m in range(4)])
    assert np.allclose(meta.texts.toarray(), sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-6)


def test_label_sums_add_up_the_documents_of_each_label() -> None:
    expected = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    in_words = label_sums(problem(), problem().documents)
    assert isinstance(in_words, sparse.csr_array)
    assert in_words.toarray().tolist() == expected
    embedded = label_sums(problem(), np.eye(3, dtype=np.float32) * 2)
    assert isinstance(embedded, np.ndarray)
    assert embedded.dtype == np.float32
    assert embedded.tolist() == (2 * np.array(expected)).tolist()
    on_device = label_sums(problem(), torch.eye(3) * 2)
    assert isinstance(on_device, np.ndarray)
    assert on_device.dtype == np.float32
    assert on_device.tolist() == embedded.tolist()


def test_unit_rows_leave_empty_ones_empty() -> None:
    matrix = tokens([3, 4], [0, 0])
    matrix.data = unit_values(matrix, matrix.data)
    assert np.allclose(matrix.toarray(), [[0.6, 0.8], [0, 0]])


def many(
    rows: int, labels: int, *, seed: int, hold: float, draw: int = 0, filters: Sequence[Sequence[int]] = ()
) -> tuple[Problem, sparse.csr_array]:
    """Documents that are told apart by the weight of their first token, their number."""
    rng = np.random.default_rng(seed)
    truth = truth_of([rng.choice(labels, size=rng.integers(0, 4), replace=False).tolist() for _ in range(rows)], labels)
    documents = np.ones((rows, 2), dtype=np.float32)
    documents[:, 0] = np.arange(rows) + 1
    documents[rng.random(rows) < 0.1] = 0
    made = sparse.csr_array(documents)
    pairs = np.array(filters, dtype=np.int64).reshape(-1, 2)
    chances = np.arange(labels) + 2.0
    found = Problem.of(made, random_rows(labels, 2, seed=1, most=2), truth, pairs, chances, hold=hold, seed=draw)
    return found, truth


def numbers(documents: sparse.csr_array) -> list[int]:
    return (documents.toarray()[:, 0].astype(int) - 1).tolist()


Pairs = set[tuple[int, int]]


def pairs_of(documents: sparse.csr_array, truth: sparse.csr_array, kept: np.ndarray) -> Pairs:
    """(document, label) pairs by the numbers that they were given with."""
    rows, row_of = truth.tocoo(), numbers(documents)
    return {(row_of[row], int(kept[label])) for row, label in zip(rows.row, rows.col, strict=True)}


def filters_of(documents: sparse.csr_array, filters: np.ndarray, kept: np.ndarray) -> Pairs:
    row_of = numbers(documents)
    return {(row_of[row], int(kept[label])) for row, label in filters.tolist()}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    rows=st.integers(60, 400),
    labels=st.integers(3, 60),
    seed=st.integers(0, 99),
    hold=st.floats(0, 0.9),
    draw=st.integers(0, 3),
)
def test_pairs_are_held_out_or_trained_on_and_every_label_is_trained(
    rows: int, labels: int, seed: int, hold: float, draw: int
) -> None:
    rng = np.random.default_rng(seed)
    given_filters = {(int(row), int(label)) for row, label in rng.integers(0, (rows, labels), (30, 2))}
    found, truth = many(rows, labels, seed=seed, hold=hold, draw=draw, filters=sorted(given_filters))
    whole, _ = many(rows, labels, seed=seed, hold=0.0)
    everything = pairs_of(whole.documents, whole.truth, whole.kept)
    assert everything <= {(row, label) for row, label in zip(*(part.tolist() for part in truth.nonzero()), strict=True)}
    trained = pairs_of(found.documents, found.truth, found.kept)
    assert found.kept.tolist() == whole.kept.tolist()
    assert {label for _, label in trained} == set(whole.kept.tolist())
    assert found.inverse_propensity.tolist() == [label + 2 for label in found.kept]
    if found.held is None:
        assert trained == everything
        return
    held = found.held
    judged = pairs_of(held.documents, held.truth, found.kept)
    assert judged | trained == everything
    assert not judged & trained
    chosen = numbers(held.documents)
    assert 0 < len(chosen) <= round(hold * whole.documents.shape[0])
    assert {row for row, _ in judged} == set(chosen)
    assert {row for row, _ in trained} == set(numbers(found.documents))
    assert bool((held.truth.data == 1).all())
    # What is trained on is not judged, and the other way round: it counts for nothing.
    kept_filters = {(row, label) for row, label in given_filters if label in set(found.kept.tolist())}
    # So does a pair whose reverse is trained on, the filters' pairs being documents that are labels themselves.
    reverse = {
        (row, mine)
        for row, own in kept_filters
        for other, label in trained
        if label == own
        for again, mine in kept_filters
        if again == other
    }
    for documents, filters, others in (
        (held.documents, held.filters, trained | reverse),
        (found.documents, found.filters, judged),
    ):
        mine = set(numbers(documents))
        expected = {(row, label) for row, label in kept_filters | others if row in mine}
        assert filters_of(documents, filters, found.kept) == expected
    # A chosen document keeps those pairs alone whose labels have no others: of them none is judged.
    assert not {label for row, label in trained if row in chosen} & {label for _, label in judged}
    assert held.inverse_propensity.tolist() == found.inverse_propensity.tolist()
    again, _ = many(rows, labels, seed=seed, hold=hold, draw=draw)
    assert again.held is not None
    assert numbers(again.held.documents) == chosen


def test_another_seed_holds_out_other_documents() -> None:
    draws = [many(300, 10, seed=1, hold=0.3, draw=draw)[0].held for draw in (0, 0, 1)]
    first, again, other = (numbers(held.documents) for held in draws if held is not None)
    assert first == again != other


@pytest.mark.parametrize(("documents", "hold", "held"), [(1000, 0.05, 50), (1000, 0.049, 0), (980, 0.05, 0)])
def test_fewer_than_fifty_documents_are_too_few_to_hold_out(documents: int, hold: float, held: int) -> None:
    ones = sparse.csr_array(np.ones((documents, 1), dtype=np.float32))
    truth = truth_of([[row % 2] for row in range(documents)], 2)
    found = Problem.of(ones, tokens([1], [1]), truth, hold=hold)
    assert (0 if found.held is None else found.held.documents.shape[0]) == held
    assert found.documents.shape[0] == documents - held


@pytest.mark.parametrize("shared", [1, 10])
def test_where_hardly_a_document_can_be_spared_none_is_held_out(shared: int) -> None:
    """All labels but one have a document of their own; a handful of documents is too few to choose by."""
    ones = sparse.csr_array(np.ones((200, 1), dtype=np.float32))
    truth = truth_of([[max(0, row - shared + 1)] for row in range(200)], 200)
    found = Problem.of(ones, ones, truth, hold=0.5)
    assert found.held is None
    assert found.documents.shape[0] == 200


def test_a_few_thousand_documents_are_enough_to_hold_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_module, "_HELD", 60)
    found = many(400, 3, seed=1, hold=0.5)[0]
    assert found.held is not None
    assert found.held.documents.shape[0] == 60


def test_filters_outside_of_what_is_kept_are_left_out() -> None:
    # Document 1 has no label, document 2 no token; label 1 has no document.
    pairs = np.array([[0, 0], [0, 1], [1, 2], [2, 0], [3, 2], [3, 2]])
    found = Problem.of(tokens([1], [1], [0], [1]), tokens([1], [1], [1]), truth_of([[0], [], [1], [2]], 3), pairs)
    assert found.kept.tolist() == [0, 2]
    assert found.filters.tolist() == [[0, 0], [1, 1]]


def test_known_pairs_are_one_where_true_and_minus_one_where_they_count_for_nothing() -> None:
    pairs = np.array([[0, 0], [0, 1], [1, 2], [0, 1]])  # the first is true as well; one comes twice
    found = Problem.of(tokens([1], [1]), tokens([1], [1], [1]), truth_of([[0, 2], [1]], 3), pairs).known()
    assert found.toarray().tolist() == [[1, -1, 1], [0, 1, -1]]
    assert found.nnz == 5
    assert found.has_sorted_indices
    assert found.data.dtype == np.float32


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 99), pairs=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 7)), max_size=40))
def test_known_pairs_are_those_of_a_plain_loop(seed: int, pairs: list[tuple[int, int]]) -> None:
    found, _ = many(30, 8, seed=seed, hold=0.0, filters=pairs)
    truth, filters = found.truth.toarray(), {tuple(pair) for pair in found.filters.tolist()}
    expected = [
        [1 if truth[row, label] else -1 if (row, label) in filters else 0 for label in range(truth.shape[1])]
        for row in range(truth.shape[0])
    ]
    known = found.known()
    assert known.toarray().tolist() == expected
    assert known.nnz == int(np.count_nonzero(expected))
    assert np.array_equal(found.truth.toarray(), truth)


def test_rarity_is_the_logarithm_of_the_inverse_propensity_of_each_kept_label() -> None:
    found, _ = many(30, 8, seed=1, hold=0.0)
    assert found.inverse_propensity.tolist() == [label + 2 for label in found.kept]
    assert torch.allclose(found.rarity(torch.device("cpu")), torch.log(torch.as_tensor(found.kept + 2.0)).float())
    plain = Problem.of(tokens([1], [1]), tokens([1], [1]), truth_of([[0], [1]], 2))
    assert plain.rarity(torch.device("cpu")).tolist() == [0, 0]


def test_the_whole_has_the_documents_that_were_held_out_behind_the_others() -> None:
    rng = np.random.default_rng(1)
    truth = truth_of([rng.choice(9, 3, replace=False).tolist() for _ in range(300)], 9)
    filters = np.array([[row, row % 9] for row in range(300)])
    given = (random_rows(300, 12, seed=1), random_rows(9, 12, seed=2), truth, filters)
    problem = Problem.of(*given, hold=0.3)
    assert problem.held is not None
    whole, count = problem.whole(), problem.documents.shape[0]
    assert whole.held is None
    assert whole.whole() is whole
    for both, own, held in (
        (whole.documents, problem.documents, problem.held.documents),
        (whole.truth, problem.truth, problem.held.truth),
    ):
        assert np.array_equal(both.toarray(), np.concatenate([own.toarray(), held.toarray()]))
    # A pair is trained on, or was held out; each document is there with every one of its pairs, once.
    assert whole.truth.sum() == truth.sum()
    known = whole.known().toarray()
    assert np.array_equal(known[:count], problem.known().toarray())
    for row, label in problem.held.filters.tolist():
        assert known[count + row, label] == (1 if problem.held.truth[row, label] else -1)


def shares(truth: sparse.csr_array, trained: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """How often pairs are of labels with one and with four training documents."""
    row = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    of = trained[truth.indices]
    total = weights[row].sum()
    return float(weights[row][of == 1].sum() / total), float(weights[row][of == 4].sum() / total)


def test_held_out_documents_count_as_they_come_in_a_test_part() -> None:
    trained = np.array([1] * 30 + [4] * 20)
    rng = np.random.default_rng(0)
    frequent = [[30 + int(rng.integers(20))] for _ in range(60)]
    rare = [[int(rng.integers(30))] for _ in range(15)]
    both = [[int(rng.integers(30)), 30 + int(rng.integers(20))] for _ in range(20)]
    truth = truth_of(frequent + rare + both, 50)
    weights = weights_of_test(truth, trained)
    # A label of n training documents has, of 30 %, n 3/7 test documents in the mean, and never none of 0.7^n.
    single, four = 30 * (3 / 7) / 0.3, 20 * (12 / 7) / (1 - 0.7**4)
    expected = (single / (single + four), four / (single + four))
    assert shares(truth, trained, np.ones(95))[0] < expected[0] - 0.05
    assert shares(truth, trained, weights) == pytest.approx(expected, abs=0.01)
    assert weights.mean() == pytest.approx(1)
    assert len(set(weights[:60].round(6))) == len(set(weights[60:75].round(6))) == 1
    assert weights[60] > weights[-1] > weights[0]  # rare, both, frequent


def test_too_few_pairs_of_a_kind_say_nothing_and_no_document_counts_too_much() -> None:
    trained = np.array([1, 200, 200])
    few = truth_of([[0]] * 4 + [[1], [2]] * 50, 3)
    assert weights_of_test(few, trained).tolist() == pytest.approx([1.0] * 104, abs=0.05)
    scarce = truth_of([[0]] * 12 + [[1], [2]] * 5000, 1003)
    weights = weights_of_test(scarce, np.array([1, 200, 200] + [1] * 1000))
    assert weights.max() <= 5
    assert weights.min() >= 0.2
    assert weights_of_test(truth_of([], 3), trained).tolist() == []
