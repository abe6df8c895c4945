"""The ruler: against a slow, obvious second implementation, and against arithmetic done by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from slow_metrics import slow_figures, slow_quantiles

from decaf import DataError, Predictions, evaluate, frequency_quantiles
from decaf.datasets.parts import Pairs, no_pairs

NAMES = [f"{name}@{k}" for name in ("P", "N", "PSP", "PSN") for k in (1, 3, 5)] + ["R@20", "C@20"]

Case = tuple[int, list[list[int]], list[set[int]], set[tuple[int, int]], list[int]]


def predicted(rankings: Sequence[Sequence[int]], top: int | None = None) -> Predictions:
    top = max([len(ranking) for ranking in rankings], default=0) if top is None else top
    ids = np.full((len(rankings), top), -1, dtype=np.int64)
    scores = np.full((len(rankings), top), -np.inf, dtype=np.float32)
    for row, ranking in enumerate(rankings):
        ids[row, : len(ranking)] = ranking
        scores[row, : len(ranking)] = np.arange(len(ranking), 0, -1)
    return Predictions(ids, scores)


def true_labels(rows: Sequence[Iterable[int]], labels: int) -> sparse.csr_array:
    lists = [sorted(row) for row in rows]
    indices = np.array([label for row in lists for label in row], dtype=np.int64)
    indptr = np.cumsum([0, *(len(row) for row in lists)])
    return sparse.csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(len(lists), labels))


def pairs(filters: Iterable[tuple[int, int]]) -> Pairs:
    return np.array(sorted(filters), dtype=np.int64).reshape(-1, 2)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few labels, so that hits, ties of frequency and filtered pairs are common; rankings of any length up to 25."""
    labels = draw(st.integers(1, 25))
    documents = draw(st.integers(0, 6))
    some = st.integers(0, labels - 1)
    rankings = [draw(st.lists(some, unique=True, max_size=25)) for _ in range(documents)]
    truth = [draw(st.sets(some, max_size=8)) for _ in range(documents)]
    at = st.tuples(st.integers(0, max(documents - 1, 0)), some)
    filters = draw(st.sets(at, max_size=10)) if documents else set()
    frequency = draw(st.lists(st.integers(0, 6), min_size=labels, max_size=labels))
    return labels, rankings, truth, filters, frequency


NO_LABELS_AT_ALL: Case = (3, [[0, 1], []], [set(), set()], set(), [0, 0, 0])
ALL_FILTERED: Case = (2, [[0, 1]], [{0, 1}], {(0, 0), (0, 1)}, [3, 1])


@settings(deadline=None, derandomize=True, max_examples=300)
@given(cases())
@example(NO_LABELS_AT_ALL)
@example(ALL_FILTERED)
def test_figures_are_those_of_the_slow_implementation(case: Case) -> None:
    labels, rankings, truth, filters, frequency = case
    inverse = [1 + 7 / (1 + count) for count in frequency]
    figures = evaluate(predicted(rankings), true_labels(truth, labels), np.array(inverse), pairs(filters))
    assert figures == pytest.approx(slow_figures(rankings, truth, inverse, filters), abs=1e-9)
    assert list(figures) == NAMES
    assert all(0 <= value <= 100 + 1e-9 for value in figures.values())


@settings(deadline=None, derandomize=True, max_examples=300)
@given(cases())
@example(NO_LABELS_AT_ALL)
@example(ALL_FILTERED)
def test_quantiles_are_those_of_the_slow_implementation_and_sum_to_p5(case: Case) -> None:
    labels, rankings, truth, filters, frequency = case
    given_filters, true = pairs(filters), true_labels(truth, labels)
    quantiles = frequency_quantiles(predicted(rankings), true, np.array(frequency), given_filters)
    slow = slow_quantiles(rankings, truth, frequency, filters)
    assert [quantile.labels for quantile in quantiles] == [row[0] for row in slow]
    assert [quantile.mean_frequency for quantile in quantiles] == pytest.approx([row[1] for row in slow])
    assert [quantile.contribution for quantile in quantiles] == pytest.approx([row[2] for row in slow])
    figures = evaluate(predicted(rankings), true, np.ones(labels), given_filters)
    assert sum(quantile.contribution for quantile in quantiles) == pytest.approx(figures["P@5"])


def test_many_documents_are_judged_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rankings = [rng.permutation(30)[: rng.integers(0, 25)].tolist() for _ in range(50)]
    truth = [set(rng.integers(0, 30, size=rng.integers(0, 6)).tolist()) for _ in range(50)]
    inverse = (1 + rng.random(30)).tolist()
    monkeypatch.setattr("decaf.metrics._BLOCK", 7)
    figures = evaluate(predicted(rankings), true_labels(truth, 30), np.array(inverse), no_pairs())
    assert figures == pytest.approx(slow_figures(rankings, truth, inverse, set()))


def test_by_hand_one_document_found_at_ranks_2_and_4() -> None:
    # Ranking 7 3 8 1 9, truth {1, 3}: hits at ranks 2 and 4.
    figures = evaluate(predicted([[7, 3, 8, 1, 9]]), true_labels([{1, 3}], 10), np.ones(10), no_pairs())
    # P@1 = 0/1, P@3 = 1/3, P@5 = 2/5.
    assert [figures["P@1"], figures["P@3"], figures["P@5"]] == pytest.approx([0, 100 / 3, 40])
    # DCG@3 = 1/log2(3) = 0.63093, DCG@5 = 0.63093 + 1/log2(5) = 1.06161; ideal of two labels 1 + 0.63093 = 1.63093.
    assert [figures["N@1"], figures["N@3"], figures["N@5"]] == pytest.approx([0, 38.6853, 65.0921], abs=1e-3)
    # All weights 1: PSP@3 = 1/2 of the two attainable, PSP@5 = 2/2; PSN is N.
    assert [figures["PSP@1"], figures["PSP@3"], figures["PSP@5"]] == pytest.approx([0, 50, 100])
    assert figures["PSN@5"] == pytest.approx(figures["N@5"])
    assert (figures["R@20"], figures["C@20"]) == (100, 100)


def test_by_hand_propensities_favour_the_rare_label() -> None:
    # Document 0: truth {0, 1} with weights 1 and 4, prediction 0. Document 1: truth {1}, prediction 1.
    inverse = np.array([1.0, 4.0])
    figures = evaluate(predicted([[0], [1]]), true_labels([{0, 1}, {1}], 2), inverse, no_pairs())
    # PSP@1 = (1 + 4) / (4 + 4) = 62.5; PSP@3 = (1 + 4) / (5 + 4) = 55.56.
    assert [figures["PSP@1"], figures["PSP@3"]] == pytest.approx([62.5, 500 / 9])
    # PSN@3: gains 1/(1 + 1/log2(3)) and 4/1; best (4 + 1/log2(3))/(1 + 1/log2(3)) and 4/1.
    ideal = 1 + 1 / log2(3)
    assert figures["PSN@3"] == pytest.approx(100 * (1 / ideal + 4) / ((4 + 1 / log2(3)) / ideal + 4))
    assert figures["PSN@3"] == pytest.approx(67.449, abs=1e-3)
    assert figures["P@1"] == 100


def test_by_hand_a_document_without_labels_counts_as_zero() -> None:
    # Two documents, the second without labels: every mean is half of the first's.
    figures = evaluate(predicted([[0], [0]]), true_labels([{0}, set()], 1), np.array([3.0]), no_pairs())
    assert [figures["P@1"], figures["N@1"], figures["R@20"]] == [50, 50, 50]
    assert figures["P@5"] == pytest.approx(10)  # 1/5 and 0/5
    # Ratios of sums do not notice it: 3/3, and 1 label found of 1 wanted.
    assert [figures["PSP@1"], figures["PSN@1"], figures["C@20"]] == [100, 100, 100]


def test_by_hand_filtered_pairs_leave_predictions_and_truth() -> None:
    # Label 2 is the document itself: 2 0 1 becomes 0 1, truth {1, 2} becomes {1}.
    figures = evaluate(predicted([[2, 0, 1]]), true_labels([{1, 2}], 3), np.ones(3), pairs({(0, 2)}))
    assert [figures["P@1"], figures["P@3"]] == pytest.approx([0, 100 / 3])
    assert figures["N@3"] == pytest.approx(100 / log2(3))  # one hit at rank 2, ideal 1
    assert (figures["R@20"], figures["C@20"]) == (100, 100)  # 1 of 1; label 2 has no test document any more


def test_by_hand_recall_and_coverage_look_20_deep_and_no_deeper() -> None:
    # Labels 19 and 20 are true; ranks are 1-based, so label 19 is 20th and label 20 is 21st.
    figures = evaluate(predicted([list(range(25))]), true_labels([{19, 20}], 25), np.ones(25), no_pairs())
    assert (figures["R@20"], figures["C@20"], figures["P@5"]) == (50, 50, 0)


def test_by_hand_quantiles_hold_equal_volumes() -> None:
    # Frequencies 1 1 2 6 10, total 20; volume before each 0 1 2 4 10 -> groups 0 0 0 1 2.
    frequency = np.array([10, 6, 2, 1, 1])
    quantiles = frequency_quantiles(predicted([[0, 3], [1, 0]]), true_labels([{0, 3}, {1}], 5), frequency, no_pairs())
    assert [quantile.labels for quantile in quantiles] == [3, 1, 1, 0, 0]
    assert [quantile.mean_frequency for quantile in quantiles] == pytest.approx([4 / 3, 6, 10, 0, 0])
    # Hits 0 and 3, and 1, each 1 of 5 places in 2 documents: 10 %.
    assert [quantile.contribution for quantile in quantiles] == pytest.approx([10, 10, 10, 0, 0])


def test_perfect_predictions_score_everything_but_precision_full() -> None:
    figures = evaluate(predicted([[1], [0, 2]]), true_labels([{1}, {0, 2}], 3), np.array([2.0, 1.0, 1.0]), no_pairs())
    assert [figures[name] for name in NAMES if not name.startswith("P@")] == pytest.approx([100] * 11)
    assert figures["P@5"] == pytest.approx(30)  # (1/5 + 2/5) / 2


def test_order_of_a_documents_true_labels_plays_no_part() -> None:
    unsorted = sparse.csr_array((np.ones(3, np.float32), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 4))
    predictions, inverse = predicted([[0, 3, 2], [1]]), np.array([1.0, 2.0, 3.0, 4.0])
    figures = evaluate(predictions, unsorted, inverse, pairs({(0, 3)}))
    assert figures == evaluate(predictions, true_labels([{0, 2}, {1}], 4), inverse, pairs({(0, 3)}))


def test_labels_without_a_single_training_document_make_one_group() -> None:
    quantiles = frequency_quantiles(predicted([[0]]), true_labels([{0}], 2), np.zeros(2, np.int64), no_pairs())
    assert [quantile.labels for quantile in quantiles] == [2, 0, 0, 0, 0]


def test_no_documents_at_all_score_zero() -> None:
    nothing = predicted([], top=5)
    figures = evaluate(nothing, true_labels([], 4), np.ones(4), no_pairs())
    assert figures == dict.fromkeys(NAMES, 0.0)
    quantiles = frequency_quantiles(nothing, true_labels([], 4), np.ones(4, np.int64), no_pairs())
    assert [quantile.contribution for quantile in quantiles] == [0.0] * 5


def test_no_labels_at_all_score_zero() -> None:
    figures = evaluate(predicted([[], []], top=3), true_labels([[], []], 0), np.ones(0), no_pairs())
    assert figures == dict.fromkeys(NAMES, 0.0)


def test_no_labels_at_all_make_empty_quantiles() -> None:
    quantiles = frequency_quantiles(
        predicted([[], []], top=3), true_labels([[], []], 0), np.zeros(0, np.int64), no_pairs()
    )
    assert [(quantile.labels, quantile.contribution) for quantile in quantiles] == [(0, 0.0)] * 5


def test_predictions_for_other_documents_are_refused() -> None:
    with pytest.raises(DataError, match="2 documents and labels for 1"):
        evaluate(predicted([[0], [0]]), true_labels([{0}], 1), np.ones(1), no_pairs())


def test_a_label_that_is_not_there_is_refused() -> None:
    with pytest.raises(DataError, match="label 7 is predicted and there are 3 labels"):
        evaluate(predicted([[7]]), true_labels([{0}], 3), np.ones(3), no_pairs())
