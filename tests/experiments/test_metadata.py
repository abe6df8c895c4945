"""A peer's scores with label text: against all labels scored one by one, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import random_rows, truth_of
from scipy import sparse

from decaf import Dataset, Predictions
from decaf.datasets import Items, Part
from decaf.datasets.parts import Pairs, no_pairs
from decaf.experiments.metadata import WEIGHTS, best_weight, combined
from decaf.scoring import LabelTextScorer

Named = Sequence[dict[int, float]]  # of each document, the labels that the peer names and their scores

LABELS, TOKENS = 6, 4


def dataset_of(
    documents: sparse.csr_array, labels: sparse.csr_array, truth: Sequence[Sequence[int]], filters: Pairs | None = None
) -> Dataset:
    """The documents to be judged are those to train on."""
    rows = Items(documents.shape[0], features=documents)
    part = Part(rows, truth_of(truth, labels.shape[0]), no_pairs() if filters is None else filters)
    return Dataset("own", part, part, Items(labels.shape[0], features=labels))


def predicted(named: Named, top: int) -> Predictions:
    ids = np.full((len(named), top), -1, dtype=np.int64)
    scores = np.full((len(named), top), -np.inf, dtype=np.float32)
    for row, of in enumerate(named):
        order = sorted(of, key=lambda label: -of[label])[:top]
        ids[row, : len(order)] = order
        scores[row, : len(order)] = [of[label] for label in order]
    return Predictions(ids, scores)


def slow(scores: Predictions, dataset: Dataset, weight: float) -> list[dict[int, float]]:
    """Of each document, the scores of all labels that the peer names or that share a token, but for filtered ones."""
    documents, labels = dataset.test.documents.need_features().toarray(), dataset.labels.need_features().toarray()
    filtered = {(row, label) for row, label in dataset.test.filters.tolist()}
    found = []
    for row, document in enumerate(documents):
        named = {match.label: match.score for match in scores[row] if (row, match.label) not in filtered}
        of = {}
        for label, text in enumerate(labels):
            product = float(document.astype(float) @ text.astype(float))
            shared = any(x and z for x, z in zip(document, text, strict=True)) and (row, label) not in filtered
            if label in named or shared:
                of[label] = weight * named.get(label, 0.0) + (1 - weight) / (1 + exp(-product))
        found.append(of)
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Predictions, Dataset, float]:
    """Few weights and few scores, so that equals are common; the peer names no filtered pair."""

    def features(rows: int) -> sparse.csr_array:
        weights = st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=TOKENS, max_size=TOKENS)
        return sparse.csr_array(np.array([draw(weights) for _ in range(rows)], dtype=np.float32))

    count = draw(st.integers(1, 4))
    some = st.integers(0, LABELS - 1)
    filters = draw(st.sets(st.tuples(st.integers(0, count - 1), some), max_size=4))
    named: list[dict[int, float]] = []
    for row in range(count):
        scores = draw(st.dictionaries(some, st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=LABELS))
        named.append({label: score for label, score in scores.items() if (row, label) not in filters})
    pairs = np.array(sorted(filters), dtype=np.int64).reshape(-1, 2)
    dataset = dataset_of(features(count), features(LABELS), [[0]] * count, pairs)
    return predicted(named, draw(st.integers(1, LABELS + 2))), dataset, draw(st.sampled_from(WEIGHTS))


@settings(deadline=None, derandomize=True, max_examples=120)
@given(cases())
def test_labels_are_those_of_the_slow_implementation(case: tuple[Predictions, Dataset, float]) -> None:
    scores, dataset, weight = case
    (found,) = combined(scores, dataset, [weight])
    filtered = np.bincount(dataset.test.filters[:, 0], minlength=len(scores))
    for row, expected in enumerate(slow(scores, dataset, weight)):
        sure = max(0, scores.top - filtered[row])  # a filtered label took a place in the match
        labels = [match.label for match in found[row]]
        assert len(set(labels)) == len(labels)
        assert [match.score for match in found[row]] == pytest.approx([expected[label] for label in labels])
        best = sorted(expected.values(), reverse=True)[:sure]
        assert [match.score for match in found[row]][:sure] == pytest.approx(best)


def test_by_hand_half_the_score_and_half_the_text() -> None:
    labels = sparse.csr_array(np.array([[1, 0], [0, 1], [0, 0], [0, 0]], dtype=np.float32))
    document = sparse.csr_array(np.array([[1, 2]], dtype=np.float32))
    (found,) = combined(predicted([{2: 0.9, 0: 0.4}], 4), dataset_of(document, labels, [[0]]), [0.5])
    # sigmoid(0) = 0.5, sigmoid(1) = 0.73106, sigmoid(2) = 0.88080; label 3 neither is named nor shares a token.
    assert found.ids.tolist() == [[2, 0, 1, -1]]
    assert found.scores[0, :3].tolist() == pytest.approx([0.45 + 0.25, 0.2 + 0.36553, 0.44040], abs=1e-5)
    assert found.scores[0, 3] == -np.inf


def drawn(*, documents: int = 12, labels: int = 9, top: int = 5) -> tuple[Predictions, Dataset]:
    """Texts and scores of which no two are equal."""
    rng = np.random.default_rng(3)
    named = [
        {int(label): float(rng.random()) for label in rng.choice(labels, size=rng.integers(1, top + 1), replace=False)}
        for _ in range(documents)
    ]
    rows, texts = random_rows(documents, 7, seed=1), random_rows(labels, 7, seed=2)
    truth = [[int(rng.integers(labels))] for _ in range(documents)]
    return predicted(named, top), dataset_of(rows, texts, truth)


def test_the_whole_weight_leaves_the_peer_its_order() -> None:
    scores, dataset = drawn()
    (found,) = combined(scores, dataset, [1])
    assert (np.diff(np.sum(scores.ids >= 0, axis=1)) != 0).any()
    for ours, theirs in zip(found, scores, strict=True):
        assert ours[: len(theirs)] == theirs
        assert all(match.score == 0 for match in ours[len(theirs) :])


def test_without_a_weight_labels_are_in_the_order_of_the_match() -> None:
    scores, dataset = drawn()
    (found,) = combined(scores, dataset, [0])
    matched = LabelTextScorer(dataset.labels.need_features()).top(dataset.test.documents.need_features(), scores.top)
    for ours, theirs in zip(found, matched, strict=True):
        assert [match.label for match in ours[: len(theirs)]] == [match.label for match in theirs]
        assert all(match.score == 0.5 for match in ours[len(theirs) :])  # named by the peer, and no token is shared


def test_of_equals_those_of_the_peer_come_first() -> None:
    texts = sparse.csr_array(np.ones((4, 1), dtype=np.float32))
    dataset = dataset_of(sparse.csr_array(np.ones((1, 1), dtype=np.float32)), texts, [[0]])
    (found,) = combined(predicted([{1: 0.5, 0: 0.0}], 4), dataset, [1])
    assert found.ids.tolist() == [[1, 0, 3, 2]]


def test_many_documents_are_multiplied_part_by_part() -> None:
    count, top = 20_100, 50  # more than a part holds of two times 50 labels
    documents = sparse.csr_array(np.ones((count, 1), dtype=np.float32))
    documents.data[-1] = 3
    dataset = dataset_of(documents, sparse.csr_array(np.array([[1.0]], dtype=np.float32)), [[0]] * count)
    (found,) = combined(predicted([{}] * count, top), dataset, [0])
    expected = [1 / (1 + exp(-1))] * (count - 1) + [1 / (1 + exp(-3))]
    assert found.scores[:, 0].tolist() == pytest.approx(expected)


def test_the_best_weight_has_the_highest_precision() -> None:
    scores, dataset = drawn(documents=40)
    truth = dataset.test.truth.toarray()
    right = {}
    for weight in WEIGHTS:
        best = [max(of, key=lambda label: of[label]) for of in slow(scores, dataset, weight)]
        right[weight] = 100 * float(np.mean([truth[row, label] for row, label in enumerate(best)]))
    weight, precision = best_weight(scores, dataset)
    assert precision == pytest.approx(right)
    assert len(set(right.values())) > 2
    assert weight == max(one for one in WEIGHTS if right[one] == max(right.values()))


def test_by_hand_the_largest_weight_that_lets_the_text_win() -> None:
    labels = sparse.csr_array(np.array([[0], [1]], dtype=np.float32))
    dataset = dataset_of(sparse.csr_array(np.array([[2]], dtype=np.float32)), labels, [[1]])
    # 0.9 a + 0.5 (1 - a) stays below 0.8808 (1 - a) while a < 0.297.
    weight, precision = best_weight(predicted([{0: 0.9}], 2), dataset)
    assert weight == 0.25
    assert precision == {one: 100.0 if one <= 0.25 else 0.0 for one in WEIGHTS}


def test_where_no_weight_helps_the_peer_stays_alone() -> None:
    labels = sparse.csr_array(np.array([[1], [1]], dtype=np.float32))
    dataset = dataset_of(sparse.csr_array(np.array([[1]], dtype=np.float32)), labels, [[0]])
    weight, precision = best_weight(predicted([{0: 0.9}], 2), dataset)
    assert weight == 1
    assert set(precision.values()) == {100.0}


def test_weights_go_from_nothing_to_all() -> None:
    assert WEIGHTS[0] == 0
    assert WEIGHTS[-1] == 1
    assert list(WEIGHTS) == sorted(set(WEIGHTS))
