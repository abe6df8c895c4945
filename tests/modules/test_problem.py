"""What the modules learn from: who is left out, and clusters of labels as labels themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from decaf.features import unit_values
from decaf.modules.problem import MetaLabels, Problem, label_sums

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
    assert meta.truth.toarray().tolist() == [[0, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0]]
    assert meta.members.tolist() == [[2, 4], [3, -1], [0, 1], [-1, -1]]
    assert meta.cluster.tolist() == [2, 2, 0, 1, 0]


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


def test_unit_rows_leave_empty_ones_empty() -> None:
    matrix = tokens([3, 4], [0, 0])
    matrix.data = unit_values(matrix, matrix.data)
    assert np.allclose(matrix.toarray(), [[0.6, 0.8], [0, 0]])
