"""The theorem: losses against a loop over all pairs, the bound by hand, and the whole on a tiny dataset."""

from __future__ import annotations

from math import exp, log, log1p

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from modules import random_rows, topics, truth_of

from decaf.experiments.theorem import Losses, bound, check_theorem, losses, missed, residual
from decaf.modules.problem import Problem
from decaf.modules.shortlister import Shortlist
from decaf.networks import FrozenEncoder, Ranker, Rows, Shortlister

CPU = torch.device("cpu")
LABELS, TOKENS, DIM = 7, 9, 4
MEMBERS = [[0, 4], [1, 5], [2, 6], [3, -1]]
TRUTH = [[0, 3], [1], [5, 2, 0], [4, 6], [3]]
CLUSTERS = [[0, 1], [3, 1], [2, 0], [3, 0], [0, 2]]  # document 0 misses label 3, 2 misses 5, 3 misses 6, 4 all
EVERYTHING = [[2, 0, 3, 1]] * 5


def problem() -> Problem:
    nothing = np.zeros((0, 2), dtype=np.int64)
    texts = random_rows(LABELS, TOKENS, seed=1)
    documents = random_rows(5, TOKENS, seed=2)
    return Problem(documents, texts, truth_of(TRUTH, LABELS), np.arange(LABELS), nothing, np.ones(LABELS))


def ranker() -> Ranker:
    generator = torch.Generator().manual_seed(0)
    shapes = ((TOKENS, DIM), (DIM,), (DIM, DIM), (DIM,), (LABELS, DIM), (LABELS,))
    table, scale, weight, bias, weights, biases = (torch.randn(shape, generator=generator) for shape in shapes)
    return Ranker(FrozenEncoder(table, scale, weight, bias), weights, biases)


def shortlist(clusters: list[list[int]]) -> Shortlist:
    nothing = torch.zeros(0)
    encoder = FrozenEncoder(nothing, nothing, nothing, nothing)
    shortlister = Shortlister(encoder, nothing, torch.zeros(len(MEMBERS)), torch.tensor(MEMBERS))
    of_label = torch.tensor([next(m for m, row in enumerate(MEMBERS) if label in row) for label in range(LABELS)])
    return Shortlist(shortlister, of_label, nothing, torch.tensor(clusters, dtype=torch.int32))


def slow(clusters: list[list[int]]) -> Losses:
    """One pair after another."""
    of, rows = ranker(), Rows.of(problem().documents, CPU)
    scores = (of.encoder(rows.columns, rows.starts, rows.values) @ of.weights.T + of.bias).tolist()
    costs: dict[bool, float] = {True: 0.0, False: 0.0}
    true = found = unlisted = 0
    for document in range(5):
        among = {label for cluster in clusters[document] for label in MEMBERS[cluster]}
        for label in range(LABELS):
            sign = 1 if label in TRUTH[document] else -1
            costs[label in among] += log1p(exp(-sign * scores[document][label]))
            true += sign > 0
            found += sign > 0 and label in among
            unlisted += label not in among
    return Losses(costs[True], costs[False], 5 * LABELS, true, found, unlisted)


@pytest.mark.parametrize("clusters", [CLUSTERS, [row[:1] for row in CLUSTERS], EVERYTHING])
@pytest.mark.parametrize("at_a_time", [512, 2])
def test_losses_are_those_of_a_loop_over_all_pairs(
    clusters: list[list[int]], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decaf.experiments.theorem._DOCUMENTS", at_a_time)
    found, expected = losses(ranker(), shortlist(clusters), problem()), slow(clusters)
    assert found[2:] == expected[2:]
    assert found[:2] == pytest.approx(expected[:2], rel=1e-5)
    assert found.own == pytest.approx(slow(EVERYTHING).listed, rel=1e-5)


def test_with_everything_shortlisted_nothing_is_lost() -> None:
    found = losses(ranker(), shortlist(EVERYTHING), problem())
    assert (found.others, found.unlisted, found.found) == (0, 0, found.true)
    assert (missed(found), bound(found), residual(found)) == (0, 0, 0)


def test_by_hand_four_true_pairs_of_a_hundred_are_missed() -> None:
    of = Losses(listed=3.0, others=5.0, pairs=100, true=10, found=6, unlisted=60)
    assert of.own == 8
    assert missed(of) == pytest.approx(0.04)
    assert bound(of) == pytest.approx(0.128755, abs=1e-6)  # 0.04 ln 25
    # One chance of 4/60 for all: 0.04 ln 15 + 0.56 ln(15/14).
    assert residual(of) == pytest.approx(0.146958, abs=1e-6)


def test_unlisted_pairs_that_are_all_true_cost_nothing() -> None:
    assert residual(Losses(0.0, 0.0, pairs=100, true=10, found=6, unlisted=4)) == 0


@st.composite
def counts(draw: st.DrawFn) -> Losses:
    """Some true pairs are missed, and some pairs that are not true are unlisted."""
    pairs = draw(st.integers(4, 10**9))
    true = draw(st.integers(1, pairs - 1))
    found = draw(st.integers(0, true - 1))
    unlisted = draw(st.integers(true - found + 1, pairs - found))
    return Losses(0.0, 0.0, pairs, true, found, unlisted)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(counts())
def test_the_residual_is_the_least_that_one_chance_for_all_can_give(of: Losses) -> None:
    positive = (of.true - of.found) / of.pairs
    negative = of.unlisted / of.pairs - positive

    def loss(chance: float) -> float:
        return -positive * log(chance) - negative * log1p(-chance)

    best = positive / (positive + negative)
    around = [best * factor for factor in (0.5, 0.9, 0.999, 1, 1.001, 1.1)]
    grid = [chance for chance in (*np.linspace(1e-6, 1 - 1e-6, 101).tolist(), *around) if 0 < chance < 1]
    assert all(residual(of) <= loss(chance) + 1e-12 for chance in grid)
    assert residual(of) == pytest.approx(min(map(loss, grid)), rel=1e-6)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(counts())
def test_the_residual_is_of_the_order_of_the_bound(of: Losses) -> None:
    assert residual(of) <= bound(of) + missed(of) + 1e-12


def test_the_whole_check_on_a_tiny_dataset() -> None:
    found = check_theorem(topics(labels=24, train=96, test=8), seed=0, device="cpu")
    assert (found["documents"], found["labels"], found["clusters"]) == (96, 24, 8)
    assert found["sparsity"] == pytest.approx(1 / 24)
    lines = found["beams"]
    assert [line["beam"] for line in lines] == [1, 2, 4]
    recall = [line["recall"] for line in lines]
    assert recall == sorted(recall)
    assert 0.5 < recall[0] < recall[-1] <= 1
    for line in lines:
        share = (1 - line["recall"]) / 24
        assert line["bound"] == pytest.approx(24 * share * log(1 / share) if share else 0)
        assert 0 < line["shortlist"] < line["own_scores"]
    assert 0 < found["full"] < 24 * log(2)  # of classifiers that know nothing
    assert check_theorem(topics(labels=24, train=96, test=8), seed=0, device="cpu") == found
