"""Weights of a blend: labels among the best in part, slopes that are right, and weights that pay on other documents."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from decaf.modules.judge import Judge
from decaf.modules.problem import Held
from decaf.modules.weighing import (
    _TEMPERATURE,
    Lists,
    _among_best,
    _climbed,
    _likely,
    _Task,
    _worth,
    first_in_part,
    fit_weights,
)
from decaf.networks import LEANING, Parts, blended

from . import truth_of

CPU = torch.device("cpu")
NAMES = Parts._fields[1:]
START = [1.0, 0.5, 0.0, 10.0, 0.0, 5.0, 0.4, 0.0, *[0.0] * len(LEANING)]
LABELS = 12


def made(*, documents: int = 400, seed: int = 0, lean: float = 0.0) -> tuple[Judge, Parts]:
    """Every document lists all labels; classifier and text know the right ones, the more the rarer with a lean."""
    rng = np.random.default_rng(seed)
    gains = np.exp(np.linspace(0, 3, LABELS))
    chances = 1 / np.arange(1, LABELS + 1) / (1 / np.arange(1, LABELS + 1)).sum()
    listed = [rng.choice(LABELS, size=rng.integers(1, 4), replace=False, p=chances).tolist() for _ in range(documents)]
    nothing = sparse.csr_array((documents, 1), dtype=np.float32)
    weights = rng.choice([0.5, 1.0, 2.0], size=documents)
    filters = np.array([[row, (row + 5) % LABELS] for row in range(0, documents, 4)])
    held = Held(nothing, truth_of(listed, LABELS), filters, gains, weights)
    right = torch.as_tensor(held.truth.toarray()).float()
    rarity = torch.as_tensor(np.log(gains)).float().expand(documents, LABELS)

    def noise() -> Tensor:
        return torch.as_tensor(rng.standard_normal((documents, LABELS))).float()

    knows = 2 * right * (1 + lean * (rarity - 1.5))
    columns = {"classifier": knows + noise(), "text": right + noise(), "cluster": noise(), "rarity": rarity}
    empty = torch.zeros(documents, LABELS)
    labels = torch.arange(LABELS).repeat(documents, 1)
    return Judge(held, CPU), Parts(labels, *(columns.get(name, empty) for name in NAMES))


def obvious_share(scores: list[float], depth: int) -> list[float]:
    """By how much each is among the best, the edge found by trying."""
    low, high = min(scores) - 100, max(scores) + 100
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(1 / (1 + math.exp(min(700.0, (middle - score) / _TEMPERATURE))) for score in scores)
        low, high = (middle, high) if total > depth else (low, middle)
    return [1 / (1 + math.exp(min(700.0, (low - score) / _TEMPERATURE))) for score in scores]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    scores=st.lists(st.floats(-8, 8), min_size=6, max_size=20),
    depth=st.sampled_from([1, 5]),
)
def test_shares_among_the_best_are_logistic_and_sum_to_the_depth(scores: list[float], depth: int) -> None:
    found = _among_best(torch.tensor([scores]), [depth])[0, 0]
    assert float(found.sum()) == pytest.approx(depth, abs=0.05)
    assert found.tolist() == pytest.approx(obvious_share(scores, depth), abs=0.02)


def test_a_label_next_to_nothing_does_not_move_the_edge() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0, -2.0]])
    with_nothing = torch.cat([scores, torch.full((1, 4), -1e4)], dim=1)
    assert torch.allclose(_among_best(with_nothing, (1, 5))[:, :, :6], _among_best(scores, (1, 5)), atol=0.02)


@pytest.mark.parametrize("depth", [1, 5])
def test_slopes_are_those_of_small_steps(depth: int) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 9, generator=generator)
    worth = torch.rand(3, 9, generator=generator)

    def value(at: Tensor) -> float:
        return sum(
            w * s
            for row, of in zip(at.tolist(), worth.tolist(), strict=True)
            for w, s in zip(of, obvious_share(row, depth), strict=True)
        )

    moved = scores.clone().requires_grad_()
    (_among_best(moved, [depth])[0] * worth).sum().backward()
    assert moved.grad is not None
    for row, column in ((0, 0), (1, 4), (2, 8)):
        step = torch.zeros_like(scores)
        step[row, column] = 1e-3
        slope = (value(scores + step) - value(scores - step)) / 2e-3
        assert float(moved.grad[row, column]) == pytest.approx(slope, abs=0.01)


@pytest.mark.parametrize("tail", [0.0, 0.3, 1.0])
def test_what_scores_far_apart_are_worth_is_their_figures(tail: float) -> None:
    judge, parts = made()
    far = torch.argsort(torch.rand(parts.labels.shape, generator=torch.Generator().manual_seed(2)), dim=1) * 50.0
    lists = Lists.of(judge, parts)
    worth = float(_worth(lists, far.masked_fill(lists.ignored, -1e4), tail))
    found = judge.figures(far, parts.labels)
    expected = (1 - tail) * (found.p1 + found.p5) + tail * (found.psp1 + found.psp5)
    assert 100 * worth == pytest.approx(expected, abs=0.01)


def test_first_labels_that_stand_out_are_worth_their_precision() -> None:
    judge, parts = made()
    far = torch.argsort(torch.rand(parts.labels.shape, generator=torch.Generator().manual_seed(2)), dim=1) * 50.0
    found = first_in_part(Lists.of(judge, parts), far)
    assert torch.allclose(found, judge.first(far, parts.labels) * judge.worth, atol=1e-3)
    assert 100 * float(found.sum() / judge.worth.sum()) == pytest.approx(judge.figures(far, parts.labels).p1, abs=0.01)


def test_first_labels_that_are_next_to_each_other_are_so_in_part() -> None:
    judge, parts = made(documents=4)
    lists = Lists.of(judge, parts)
    allowed = (~lists.ignored).float()
    wrong = (allowed * (lists.right == 0)).argmax(dim=1, keepdim=True)
    right = lists.right.argmax(dim=1, keepdim=True)
    assert bool((lists.right.gather(1, right) > 0).all())
    scores = torch.full(lists.right.shape, -50.0).scatter(1, right, 0.0).scatter(1, wrong, 0.0)
    assert torch.allclose(first_in_part(lists, scores), judge.worth / 2, atol=0.01)
    ahead = first_in_part(lists, scores.scatter(1, right, 0.1))
    assert bool((ahead > judge.worth / 2).all())
    assert bool((ahead < judge.worth).all())


def test_the_only_label_of_a_list_is_the_first() -> None:
    judge, parts = made(documents=50)
    lists = Lists.of(judge, Parts(*(part[:, :1] for part in parts)))
    assert torch.equal(first_in_part(lists, lists.parts[:, :, 0]), lists.right[:, 0])


def test_lists_of_some_documents_are_worth_what_these_are() -> None:
    judge, parts = made(documents=60)
    lists, some = Lists.of(judge, parts), torch.arange(60) % 3 == 0
    part = lists.take(some)
    scores = parts.classifier.masked_fill(lists.ignored, -1e4)
    alone = [_worth(lists.take(torch.arange(60) == at), scores[at : at + 1], 0.0) for at in range(0, 60, 3)]
    weighed = sum(float(one) * float(judge.worth[at]) for one, at in zip(alone, range(0, 60, 3), strict=True))
    assert float(_worth(part, scores[some], 0.0)) == pytest.approx(weighed / float(judge.worth[some].sum()), abs=1e-5)


def figures(weights: list[float], *, seed: int, lean: float = 0.0) -> list[float]:
    judge, parts = made(documents=1500, seed=seed, lean=lean)
    return list(judge.figures(blended(parts, weights), parts.labels))


def test_weights_pay_on_other_documents_at_the_head_and_at_the_tail() -> None:
    judge, parts = made(documents=1000)
    head, tail = fit_weights(Lists.of(judge, parts), START, (0.0, 1.0))
    begin, at_head, at_tail = (figures(weights, seed=5) for weights in (START, head, tail))
    assert at_head[0] + at_head[1] > begin[0] + begin[1] + 3
    assert at_tail[2] + at_tail[3] > begin[2] + begin[3] + 3
    assert at_head[0] + at_head[1] > at_tail[0] + at_tail[1] + 2
    assert at_tail[2] + at_tail[3] > at_head[2] + at_head[3] + 5


def test_a_part_that_knows_more_of_rare_labels_leans_to_them() -> None:
    for lean, sign in ((0.5, 1), (-0.5, -1)):
        judge, parts = made(documents=1000, lean=lean)
        (weights,) = fit_weights(Lists.of(judge, parts), START, (0.5,))
        classifier = weights[len(NAMES) + LEANING.index("classifier")]
        assert sign * classifier / weights[0] > 0.1
        without = [*weights[: len(NAMES)], *[0.0] * len(LEANING)]
        without[0] += 1.5 * classifier  # what it weighs for a label of usual rarity
        with_lean, alike = (sum(figures(each, seed=5, lean=lean)) for each in (weights, without))
        assert with_lean > alike + 0.5


def test_what_is_not_there_weighs_nothing() -> None:
    judge, parts = made()
    (weights,) = fit_weights(Lists.of(judge, parts), START, (0.5,))
    by_name = dict(zip((*NAMES, *(f"{name} by rarity" for name in LEANING)), weights, strict=True))
    for name in ("likeness", "share", "linear", "match", "share by rarity", "linear by rarity"):
        assert by_name[name] == 0
    assert all(by_name[name] != 0 for name in ("classifier", "text", "cluster", "rarity", "text by rarity"))


def test_nothing_leans_unless_it_may() -> None:
    judge, parts = made(lean=0.5)
    for weights in fit_weights(Lists.of(judge, parts), START, (0.0, 0.5), lean=False):
        assert weights[len(NAMES) :] == [0.0] * len(LEANING)
        assert weights[0] > 0
        assert sum(figures(weights, seed=5, lean=0.5)) > sum(figures(START, seed=5, lean=0.5)) + 3


def test_few_documents_stay_near_the_beginning() -> None:
    far = []
    for documents in (20, 2000):
        judge, parts = made(documents=documents)
        lists = Lists.of(judge, parts)
        begin = torch.tensor([1.0, 0.5, 0.0, 0.0])
        columns = torch.stack([parts.classifier, parts.text, parts.cluster, parts.rarity], dim=2)
        task = _Task(columns, lists, begin)
        first = _likely(task, 0.0)
        far.append(float((first - begin).norm()))
        climbed = _climbed(task, first, 0.0)
        assert task.doubt(climbed) - _worth(lists, task.scores(climbed), 0.0) <= task.doubt(first) - _worth(
            lists, task.scores(first), 0.0
        )
    assert far[0] < far[1] / 2


def test_the_same_lists_give_the_same_weights() -> None:
    judge, parts = made(documents=100)
    one, other = (fit_weights(Lists.of(judge, parts), START, (0.0, 0.4)) for _ in range(2))
    assert one == other


def test_documents_without_a_right_label_teach_nothing() -> None:
    judge, parts = made(documents=50)
    lists = Lists.of(judge, parts)
    none = lists._replace(right=lists.right * 0, gains=lists.gains * 0, most=lists.most * 0)
    (weights,) = fit_weights(none, START, (0.5,))
    assert np.isfinite(weights).all()


def test_as_few_labels_as_the_best_need_no_edge() -> None:
    judge, parts = made(documents=50)
    narrow = Parts(*(part[:, :4] for part in parts))
    (weights,) = fit_weights(Lists.of(judge, narrow), START, (0.5,))
    assert np.isfinite(weights).all()
