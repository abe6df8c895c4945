"""Linear classifiers: by hand, against the minimum of what they minimise, who teaches whom, and odd data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from decaf.modules import linear as linear_module
from decaf.modules.linear import Linear, all_meet, learn_linear
from decaf.modules.problem import Problem
from decaf.modules.words import label_words
from decaf.networks import Rows

from . import random_rows, truth_of

Numbers = NDArray[np.float64]
Given = tuple[Problem, NDArray[np.int64], NDArray[np.int64]]  # the problem, labels' clusters, documents' shortlists


def problem_of(
    documents: Sequence[Sequence[float]] | NDArray[np.float32],
    texts: Sequence[Sequence[float]] | NDArray[np.float32],
    truth: Sequence[Sequence[int]],
    filters: Sequence[tuple[int, int]] = (),
) -> Problem:
    """What documents and labels weigh in each token, and the labels of each document."""
    rows, own = (sparse.csr_array(np.array(matrix, dtype=np.float32)) for matrix in (documents, texts))
    pairs, labels = np.array(filters, dtype=np.int64).reshape(-1, 2), own.shape[0]
    return Problem(rows, own, truth_of(truth, labels), np.arange(labels), pairs, np.ones(labels))


def drawn(
    *, documents: int = 40, labels: int = 9, tokens: int = 20, clusters: int = 4, most: int = 6, seed: int = 0
) -> Given:
    """Documents of a label or two; half the clusters are looked into; some pairs count for nothing."""
    rng = np.random.default_rng(seed)
    truth = [rng.choice(labels, size=rng.integers(1, min(2, labels) + 1), replace=False) for _ in range(documents)]
    filters = [(row, int(rng.integers(labels))) for row in range(0, documents, 3)]
    rows, texts = (random_rows(n, tokens, seed=seed + n, most=most).toarray() for n in (documents, labels))
    problem = problem_of(rows, texts, [row.tolist() for row in truth], filters)
    shortlists = np.stack([rng.permutation(clusters)[: -(-clusters // 2)] for _ in range(documents)])
    return problem, rng.integers(clusters, size=labels), shortlists


def examples(given: Given, label: int) -> tuple[Numbers, Numbers]:
    """The rows that a label learns from, with a one for the bias behind the tokens, and 1 or -1 for each."""
    problem, cluster, shortlists = given
    documents, texts, truth = (m.toarray() for m in (problem.documents, problem.labels, problem.truth))
    rows, signs = [], []
    for at, row in enumerate(documents):
        of_truth = {int(cluster[other]) for other in np.flatnonzero(truth[at])}
        if cluster[label] not in {*shortlists[at, :30].tolist(), *of_truth}:
            continue
        if truth[at, label] or [at, label] not in problem.filters.tolist():
            rows.append(row)
            signs.append(1 if truth[at, label] else -1)
    for other, row in enumerate(texts):
        if cluster[other] == cluster[label] and row.any():  # no text is no document
            rows.append(row)
            signs.append(1 if other == label else -1)
    dense = np.array(rows, dtype=np.float64)
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-30)
    return np.column_stack([dense, np.ones(len(dense))]), np.array(signs, dtype=np.float64)


def cost(values: Numbers, rows: Numbers, signs: Numbers, each: float) -> tuple[float, Numbers]:
    """Half the squared length of the weights, bias among them, plus what squared hinge losses cost; and its slope."""
    short = np.maximum(0, 1 - signs * (rows @ values))
    return float(values @ values / 2 + each * short @ short), values - 2 * each * (short * signs) @ rows


def best(given: Given, label: int, each: float = 1.0) -> Numbers:
    """The weights that cost the least, the bias behind them."""
    about = (*examples(given, label), each)
    start = np.zeros(about[0].shape[1])
    found = minimize(cost, start, args=about, jac=True, method="L-BFGS-B", options={"gtol": 1e-9, "ftol": 0})
    return found.x


def whole(made: Linear, tokens: int) -> Numbers:
    """What every token weighs for each label, and the bias behind -> [labels, tokens + 1]."""
    found = np.zeros((len(made.bias), tokens + 1))
    for label, (names, weights) in enumerate(zip(made.tokens, made.weights, strict=True)):
        for token, weight in zip(names, weights, strict=True):
            found[label, token] += weight
    found[:, -1] = made.bias
    return found


def learned(given: Given) -> Numbers:
    return whole(learn_linear(*given), given[0].documents.shape[1])


def interpret(monkeypatch: pytest.MonkeyPatch, passes: int) -> None:
    """Run the loops as they are written, this often: compiled ones do not see that the number is another."""
    for name in ("_learn", "_signs", "_descend", "_keep"):
        monkeypatch.setattr(linear_module, name, getattr(linear_module, name).py_func)
    monkeypatch.setattr(linear_module, "_PASSES", passes)


def same(one: Linear, other: Linear) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


def test_two_labels_that_mirror_each_other_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of([[2, 0], [0, 3]], [[1, 0], [0, 1]], [[0], [1]])
    given = problem, np.array([0, 0]), np.array([[0], [0]])
    # Two rows of token 0 for label 0 and two of token 1 against it: t^2 + 4 (1 - t)^2 is least at 0.8, without a bias.
    expected = np.array([[0.8, -0.8, 0], [-0.8, 0.8, 0]])
    assert learned(given) == pytest.approx(expected, abs=0.03)
    interpret(monkeypatch, 100)
    assert learned(given) == pytest.approx(expected, abs=1e-5)


def test_a_label_that_is_always_right_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem_of([[0, 5]], [[0, 1]], [[0]]), np.array([0]), np.array([[0]])
    # Twice the same row, token and bias alike: t^2 + 2 (1 - 2 t)^2 is least at 4 / 9.
    assert learned(given) == pytest.approx(np.array([[0, 4 / 9, 4 / 9]]), abs=0.01)
    interpret(monkeypatch, 100)
    assert learned(given) == pytest.approx(np.array([[0, 4 / 9, 4 / 9]]), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_many_passes_end_where_the_cost_is_least(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    given = drawn(seed=seed)
    interpret(monkeypatch, 60)
    found = learned(given)
    for label in range(9):
        assert found[label] == pytest.approx(best(given, label), abs=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_labels_of_many_documents_learn_from_all_of_them(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    problem, cluster, shortlists = drawn(seed=seed)
    monkeypatch.setattr(linear_module, "_MANY", 1)
    interpret(monkeypatch, 60)
    found = learned((problem, cluster, shortlists))
    everybody = (problem, np.arange(9), np.tile(np.arange(9), (problem.documents.shape[0], 1)))
    for label in range(9):
        assert found[label] == pytest.approx(best(everybody, label, 0.3), abs=1e-3)


def test_all_labels_meet_all_documents_where_each_has_many_and_few_labels_are_soon_done() -> None:
    def truth(documents: int, labels: int, each: int) -> sparse.csr_array:
        columns = np.arange(documents * each) % labels
        bounds = np.arange(0, documents * each + 1, each)
        return sparse.csr_array((np.ones(len(columns), np.float32), columns, bounds), shape=(documents, labels))

    assert all_meet(truth(1000, 20, 1))  # 50 documents a label
    assert not all_meet(truth(999, 20, 1))
    assert all_meet(truth(60_000, 5000, 5))
    assert not all_meet(truth(60_001, 5000, 5))  # more than 300 million


def apart(*, labels: int = 6, documents: int = 5, seed: int = 0) -> Given:
    """Labels in two clusters, so many documents each, whose tokens tell them apart but for noise."""
    rng = np.random.default_rng(seed)
    rows = np.kron(np.eye(labels), np.ones((documents, 4))) * rng.random((labels * documents, 4 * labels))
    rows += 0.05 * rng.random(rows.shape)
    truth = [[row // documents] for row in range(len(rows))]
    problem = problem_of(rows, np.kron(np.eye(labels), [1, 0, 0, 0]), truth)
    return problem, np.arange(labels) % 2, np.tile([0, 1], (len(rows), 1))


@pytest.mark.parametrize("seed", range(3))
def test_the_few_passes_that_are_made_come_near(seed: int) -> None:
    given = apart(seed=seed)
    found = learned(given)
    for label in range(6):
        about = (*examples(given, label), 1.0)
        assert cost(found[label], *about)[0] < 1.05 * cost(best(given, label), *about)[0]


def test_compiled_loops_do_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn()
    compiled = learned(given)
    interpret(monkeypatch, linear_module._PASSES)
    assert compiled == pytest.approx(learned(given), abs=1e-5)


def test_a_document_scores_highest_for_its_own_label() -> None:
    """What is learned here and compared there fits together."""
    problem, cluster, shortlists = apart()
    words = label_words(problem, learn_linear(problem, cluster, shortlists), torch.device("cpu"))
    rows = Rows.of(problem.documents, torch.device("cpu"))
    *_, scores, _ = words.compare(rows.columns, rows.starts, rows.values, torch.arange(6).repeat(30, 1), 24)
    assert scores.argmax(dim=1).tolist() == [row // 5 for row in range(30)]
    assert torch.equal(scores > 0, torch.as_tensor(problem.truth.toarray() > 0))
    unit = problem.documents.toarray() / np.linalg.norm(problem.documents.toarray(), axis=1, keepdims=True)
    expected = np.column_stack([unit, np.ones(30)]) @ learned((problem, cluster, shortlists)).T
    assert scores.numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 7, None])
@pytest.mark.parametrize("parts", [1, 3, 64, 1000])
def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch, threads: int | None, parts: int) -> None:
    given = drawn(documents=120, labels=50, clusters=16)
    before = learn_linear(*given)
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    monkeypatch.setattr(linear_module, "_PARTS", parts)
    assert same(learn_linear(*given), before)


def test_what_is_given_stays_as_it_was_and_lengths_of_documents_do_not_count() -> None:
    problem, *rest = drawn()
    before = problem.documents.data.copy()
    made = learn_linear(problem, *rest)
    assert np.array_equal(problem.documents.data, before)
    longer = replace(problem, documents=problem.documents * np.float32(4), labels=problem.labels * np.float32(8))
    assert same(learn_linear(longer, *rest), made)


def of_own_tokens(
    truth: Sequence[Sequence[int]], labels: int, filters: Sequence[tuple[int, int]] = ()
) -> tuple[Problem, int]:
    """Every document has a token of its own, and every label text behind them; how many are documents'."""
    count = len(truth)
    every = np.eye(count + labels)
    return problem_of(every[:count], every[count:], truth, filters), count


def teachers(given: Given) -> list[tuple[list[int], list[int]]]:
    """The rows whose tokens speak for each label, and those whose tokens speak against it."""
    found = learned(given)[:, :-1]
    return [(np.flatnonzero(row > 0).tolist(), np.flatnonzero(row < 0).tolist()) for row in found]


def test_labels_of_a_cluster_learn_from_those_who_look_into_it_and_from_its_texts() -> None:
    problem, texts = of_own_tokens([[0], [1], [2], [2, 0], [1]], 3)
    assert texts == 5
    # Labels 0 and 1 are in cluster 1, label 2 in cluster 0; document 4 looks into neither and has a label of 1.
    shortlists = np.array([[1, 0], [1, 2], [0, 2], [0, 2], [2, 3]])
    assert teachers((problem, np.array([1, 1, 0]), shortlists)) == [
        ([0, 3, 5], [1, 4, 6]),
        ([1, 4, 6], [0, 3, 5]),
        ([2, 3, 7], [0]),
    ]


def test_pairs_that_count_for_nothing_teach_nothing() -> None:
    truth, cluster, shortlists = [[0], [1], [2]], np.array([0, 0, 0]), np.zeros((3, 1), dtype=np.int64)
    before, _ = of_own_tokens(truth, 3)
    assert teachers((before, cluster, shortlists))[0] == ([0, 3], [1, 2, 4, 5])
    problem, _ = of_own_tokens(truth, 3, [(1, 0), (2, 1)])
    assert teachers((problem, cluster, shortlists)) == [
        ([0, 3], [2, 4, 5]),
        ([1, 4], [0, 3, 5]),
        ([2, 5], [0, 1, 3, 4]),
    ]
    true_all_the_same, _ = of_own_tokens(truth, 3, [(0, 0)])
    assert same(learn_linear(true_all_the_same, cluster, shortlists), learn_linear(before, cluster, shortlists))


@pytest.mark.parametrize("place", [0, 29, 30, 35])
def test_only_the_first_thirty_clusters_of_a_shortlist_count(place: int) -> None:
    problem, _ = of_own_tokens([[0], [1]], 2)
    shortlists = np.tile(np.arange(2, 42), (2, 1))
    shortlists[1, place] = 0
    cluster = np.array([0, 1])
    assert teachers((problem, cluster, shortlists)) == [([0, 2], [1] if place < 30 else []), ([1, 3], [])]


def test_a_cluster_that_is_listed_twice_teaches_once() -> None:
    problem, cluster, shortlists = drawn()
    again = np.concatenate([shortlists, shortlists], axis=1)
    assert same(learn_linear(problem, cluster, again), learn_linear(problem, cluster, shortlists))


@pytest.mark.parametrize("cues", [1, 5, 32])
def test_the_heaviest_tokens_are_kept_in_order(cues: int) -> None:
    given = drawn(tokens=150, most=20)
    everything = whole(learn_linear(*given, cues=150), 150)
    assert np.count_nonzero(everything[:, :-1], axis=1).min() > 32
    made = learn_linear(*given, cues=cues)
    for label, row in enumerate(everything[:, :-1]):
        heaviest = sorted(range(150), key=lambda token: -abs(row[token]))[:cues]
        assert made.tokens[label].tolist() == heaviest
        assert made.weights[label].tolist() == row[heaviest].tolist()
        assert made.bias[label] == everything[label, -1]
    assert cues == 1 or (made.weights.min() < 0 < made.weights.max())


def test_thirty_two_are_kept_and_a_label_of_fewer_has_zeros_behind_them() -> None:
    wide, few = learn_linear(*drawn(tokens=150, most=20)), learn_linear(*drawn(tokens=5))
    assert [array.dtype for array in wide] == [np.int32, np.float32, np.float32]
    assert [array.shape for array in wide] == [array.shape for array in few] == [(9, 32), (9, 32), (9,)]
    assert wide.weights.all()
    assert not few.weights[:, 5:].any()
    assert not few.tokens[:, 5:].any()
    assert all(sorted(row[:5]) == [0, 1, 2, 3, 4] for row in few.tokens.tolist())


def without_texts(given: Given, labels: Sequence[int]) -> Given:
    texts = given[0].labels.toarray()
    texts[list(labels)] = 0
    return replace(given[0], labels=sparse.csr_array(texts)), *given[1:]


def with_shortlists(given: Given, shortlists: NDArray[np.int64]) -> Given:
    return *given[:2], shortlists


ODD = {
    "one label": drawn(labels=1),
    "one document": drawn(documents=1),
    "one label and one document": drawn(labels=1, documents=1),
    "one cluster": drawn(clusters=1),
    "one token": drawn(tokens=1),
    "a label without a text": without_texts(drawn(), [0]),
    "no label has a text": without_texts(drawn(), range(9)),
    "nobody looks anywhere": with_shortlists(drawn(), np.full((40, 3), -1)),
    "shortlists of no width": with_shortlists(drawn(), np.zeros((40, 0), dtype=np.int64)),
    "gaps in shortlists": with_shortlists(drawn(), np.where(np.eye(40, 3, dtype=bool), -1, [[3, 1, 0]])),
    "clusters without a label": with_shortlists(drawn(), np.tile([7, 90], (40, 1))),
    "more clusters than labels": drawn(clusters=64),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_data_end_well(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    problem, cluster, _ = given = ODD[name]
    made = learn_linear(*given)
    assert all(np.isfinite(array).all() for array in made)
    assert 0 <= made.tokens.min() <= made.tokens.max() < problem.documents.shape[1]
    interpret(monkeypatch, 60)
    found = learned(given)
    for label in range(len(cluster)):
        assert found[label] == pytest.approx(best(given, label), abs=1e-3)
