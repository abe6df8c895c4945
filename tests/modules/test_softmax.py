"""The decoupled softmax against a plain loop over pairs, its gradients, candidates, and what may have no effect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import pad, softplus
from torch.utils.checkpoint import checkpoint

from decaf.modules.batches import Batch, Batches
from decaf.modules.loop import TableAdam
from decaf.modules.softmax import Candidates, SoftmaxTask, _Contest
from decaf.networks import Rows, RowTable

from . import random_rows

CPU = torch.device("cpu")
DOCUMENTS, LABELS = 7, 6
KNOWN = [[0, 3], [1], [5, 2, 0], [4], [3], [2], [1, 5]]
ALL = dict.fromkeys(range(LABELS), 1.0)
NEITHER = [[4], [], [1], [0, 5], [], [3], []]  # pairs that count for nothing


class Place(str):
    """The processor under another name."""

    type = "cuda"


class Elsewhere(Tensor):
    """A tensor that says it is on a GPU, where shapes must not change from step to step."""

    @property
    def device(self) -> Place:  # type: ignore[override]
        return Place("cpu")


def elsewhere(tensor: Tensor) -> Tensor:
    return tensor.as_subclass(Elsewhere)


def known_pairs(labels: int = LABELS) -> sparse.csr_array:
    dense = torch.zeros(DOCUMENTS, labels)
    for row in range(DOCUMENTS):
        dense[row, KNOWN[row]] = 1
        dense[row, NEITHER[row]] = -1
    return sparse.csr_array(dense.numpy())


class Scored(SoftmaxTask):
    """Scores that are given, for all labels or for those named; the column behind the last is nobody's."""

    def __init__(self, scores: Tensor, named: Tensor | None = None, drawn: int = 0) -> None:
        self.network = nn.ParameterDict({"scores": nn.Parameter(scores)})
        self.named, self.drawn = named, drawn

    @property
    def given(self) -> nn.Parameter:
        return cast(nn.Parameter, self.network["scores"])

    def candidates(self, batch: Batch) -> Candidates:
        if self.named is None:
            return Candidates.all(self.given.shape[1], CPU)
        found = Candidates.of(self.named, self.given.shape[1], self.drawn)
        return Candidates(*(None if part is None else part.as_subclass(Tensor) for part in found))

    def scores(self, batch: Batch, labels: Tensor | None) -> Tensor:
        rows = self.given[batch.numbers]
        return rows if labels is None else pad(rows, (0, 1))[:, labels]


def some_scores(seed: int = 0, size: float = 3.0) -> Tensor:
    return size * torch.randn(DOCUMENTS, LABELS, generator=torch.Generator().manual_seed(seed))


def batches_of(known: sparse.csr_array, size: int, order: Sequence[int]) -> Batches:
    batches = Batches(Rows.of(random_rows(known.shape[0], 9, seed=2), CPU), Rows.of(known, CPU), size)
    batches.shuffle(torch.tensor(order))
    return batches


def slow_loss(scores: Tensor, known: sparse.csr_array, documents: Sequence[int], among: Mapping[int, float]) -> Tensor:
    """One true pair after another: softplus(log-sum-exp over the negatives, each as heavy as told - its own)."""
    pairs = known.toarray()
    cost = scores.new_zeros(())
    for document in documents:
        negatives = [
            scores[document, label] + math.log(weight) for label, weight in among.items() if pairs[document, label] == 0
        ]
        for label in range(scores.shape[1]):
            if pairs[document, label] > 0 and negatives:
                cost = cost + softplus(torch.stack(negatives).logsumexp(0) - scores[document, label])
    return cost / len(documents)


def check_loss(task: Scored, size: int, among: Mapping[int, float]) -> None:
    order = [3, 0, 6, 1, 5, 2, 4]
    known = known_pairs()
    batches = batches_of(known, size, order)
    for step in range(batches.steps):
        loss = task.loss(batches.batch(torch.tensor([step])))
        expected = slow_loss(task.given, known, order[step * size : (step + 1) * size], among)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        gradient, wanted = (torch.autograd.grad(value, task.given)[0] for value in (loss, expected))
        assert torch.allclose(gradient, wanted, atol=1e-6)


@pytest.mark.parametrize("size", [7, 3, 2, 1])  # one batch for all, padded ones at the end, one at a time
@pytest.mark.parametrize("spread", [1.0, 20.0])
def test_the_loss_is_the_plain_one(size: int, spread: float) -> None:
    check_loss(Scored(some_scores(size=spread)), size, ALL)


@pytest.mark.parametrize("place", [lambda named: named, elsewhere], ids=["any shape", "one shape"])
@pytest.mark.parametrize("size", [7, 3])
def test_only_candidates_are_negatives(place: type[Tensor], size: int) -> None:
    # The true labels are named as they come, some twice, and nobody is among them.
    named = place(torch.tensor([0, 3, 1, 5, 2, 0, 4, 3, 2, LABELS, 1, 5, LABELS]))
    check_loss(Scored(some_scores(), named), size, ALL)


@pytest.mark.parametrize("place", [lambda named: named, elsewhere], ids=["any shape", "one shape"])
@pytest.mark.parametrize("size", [7, 3])
def test_labels_drawn_at_random_stand_for_all_labels(place: type[Tensor], size: int) -> None:
    # The last three were drawn: 5 and 2 not for the first time, 4 for the first, and for twice six labels in all.
    named = place(torch.tensor([0, 3, 1, 5, 2, 0, LABELS, 5, 4, 2]))
    check_loss(Scored(some_scores(), named, drawn=3), size, ALL | {4: LABELS / 3})
    everything = place(torch.tensor([5, 4, 3, 2, 1, 0, 5, 4]))
    check_loss(Scored(some_scores(), everything, drawn=8), size, ALL)  # no fewer than there are


@pytest.mark.parametrize("place", [lambda named: named, elsewhere], ids=["any shape", "one shape"])
def test_labels_that_are_no_candidates_are_no_negatives(place: type[Tensor]) -> None:
    known = sparse.csr_array(torch.tensor([[1.0, 0, 0, 0, -1, 0], [0, 0, 0, 1.0, 0, 0]]).numpy())
    task = Scored(some_scores()[:2], place(torch.tensor([3, 0, 5, 3])))
    loss = task.loss(batches_of(known, 2, [0, 1]).batch(torch.tensor([0])))
    expected = slow_loss(task.given, known, [0, 1], dict.fromkeys([0, 3, 5], 1.0))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    (gradient,) = torch.autograd.grad(loss, task.given)
    assert not gradient[:, [1, 2, 4]].any()
    assert gradient[0, 5] > 0 > gradient[0, 0]


def test_other_true_labels_and_pairs_that_count_for_nothing_learn_nothing() -> None:
    task = Scored(some_scores())
    batch = batches_of(known_pairs(), DOCUMENTS, range(DOCUMENTS)).batch(torch.tensor([0]))
    before = float(task.loss(batch).detach())
    (gradient,) = torch.autograd.grad(task.loss(batch), task.given)
    for row in range(DOCUMENTS):
        assert not gradient[row, NEITHER[row]].any()
        assert bool((gradient[row, KNOWN[row]] < 0).all())
        rest = [label for label in range(LABELS) if label not in KNOWN[row] + NEITHER[row]]
        assert bool((gradient[row, rest] > 0).all())
    with torch.no_grad():
        for row in range(DOCUMENTS):
            task.given[row, NEITHER[row]] += 50
    assert float(task.loss(batch).detach()) == pytest.approx(before)


def test_scores_behind_the_last_document_and_pair_have_no_effect() -> None:
    task, known = Scored(some_scores()), known_pairs()
    batch = batches_of(known, 5, [1, 2, 3, 4, 5, 6, 0]).batch(torch.tensor([1]))
    assert batch.there.tolist() == [1, 1, 0, 0, 0]
    assert bool((batch.true == 0).any())
    loss = task.loss(batch)
    assert float(loss.detach()) == pytest.approx(float(slow_loss(task.given, known, [6, 0], ALL).detach()))
    scores = task.scores(batch, None)
    loud = scores.detach() + 1e3 * (1 - batch.there)[:, None]
    task.scores = lambda *_: loud  # type: ignore[method-assign]
    assert float(task.loss(batch)) == pytest.approx(float(loss.detach()))


@pytest.mark.parametrize("shape", [1, 2])
def test_where_there_is_no_negative_nothing_is_learned_and_nothing_breaks(shape: int) -> None:
    known = sparse.csr_array(torch.ones(3, shape).numpy())
    task = Scored(torch.tensor([[5.0] * shape, [-3.0] * shape, [80.0] * shape]))
    batch = batches_of(known, 2, [0, 1, 2]).batch(torch.tensor([1]))
    loss = task.loss(batch)
    assert float(loss.detach()) == 0
    (gradient,) = torch.autograd.grad(loss, task.given)
    assert gradient.tolist() == [[0] * shape] * 3


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    named=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    wanted=st.lists(st.integers(0, 9), max_size=6),
    share=st.floats(0, 1),
    fixed=st.booleans(),
)
def test_candidates_are_each_label_once_and_are_found(
    named: list[int], wanted: list[int], share: float, fixed: bool
) -> None:
    nobody, drawn = 9, int(share * len(named))
    tensor = torch.tensor(named)
    candidates = Candidates.of(elsewhere(tensor) if fixed else tensor, nobody, drawn)
    labels, weights = cast(Tensor, candidates.labels), candidates.weight
    counts = weights > -1
    assert sorted(labels[counts].tolist()) == sorted(set(named) - {nobody})
    assert set(labels[~counts].tolist()) <= {nobody}
    assert bool((weights[~counts] <= -1e4).all())
    assert len(labels) == len(candidates.in_order) == len(weights)
    asked_for = set(named[: len(named) - drawn])
    heavy = math.log(max(1, nobody / max(1, drawn)))
    for label, weight in zip(labels[counts].tolist(), weights[counts].tolist(), strict=True):
        assert weight == pytest.approx(0 if label in asked_for else heavy, abs=1e-6)
    if fixed:
        assert len(labels) == len(named)
    at, found = candidates.find(torch.tensor(wanted, dtype=torch.int64))
    assert found.tolist() == [label in named for label in wanted]
    for label, place, known in zip(wanted, at.tolist(), found.tolist(), strict=True):
        if known and label != nobody:
            assert int(labels[place]) == label
            assert bool(counts[place])


def test_all_labels_are_candidates_by_their_number() -> None:
    candidates = Candidates.all(5, CPU)
    assert candidates.labels is None
    assert not candidates.weight.any()
    at, found = candidates.find(torch.tensor([4, 0, 7]))
    assert (at.tolist()[:2], found.tolist()) == ([4, 0], [True, True, False])


HEAVY = 1.5


def contest(logits: Tensor, *, both: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Known pairs, a pair of weight 0, a candidate that is heavier, one and a document that do not count."""
    rows, places, known = torch.tensor([0, 1, 1, 0]), torch.tensor([1, 0, 3, 0]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    weight, no_document = torch.tensor([0.0, 0.0, HEAVY, 0.0, -1e4]), torch.tensor([0.0, 0.0, 0.0, 1.0])
    own = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 0, 2, 1])
    kinds = (known.to(logits.dtype), weight.to(logits.dtype), no_document.to(logits.dtype))
    return _Contest.apply(logits, rows, places, *kinds, *own, both)


def slow_contest(logits: Tensor, *, both: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The same by autograd."""
    known = {(0, 1), (1, 0), (1, 3)}
    rows = [[j for j in range(4) if (i, j) not in known] for i in range(4)]
    columns = [[i for i in range(3) if (i, j) not in known] for j in range(4)]
    weighed = logits + torch.tensor([0.0, 0.0, HEAVY, 0.0, 0.0])
    by_document = torch.stack([weighed[i, rows[i]].logsumexp(0) for i in range(4)])
    by_label = torch.stack([weighed[columns[j], j].logsumexp(0) for j in range(4)]) if both else logits.new_zeros(0)
    return logits[[0, 1, 2, 0], [1, 0, 2, 1]], by_document, by_label


@pytest.mark.parametrize("both", [False, True])
def test_a_contest_is_what_autograd_says(both: bool) -> None:
    start = 4 * torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found, expected = contest(start, both=both), slow_contest(start, both=both)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine[: len(theirs)], theirs)
    assert len(found[2]) == (5 if both else 0)
    generator = torch.Generator().manual_seed(2)
    pulls = [torch.randn(len(theirs), dtype=torch.float64, generator=generator) for theirs in expected]
    gradients = []
    for function in (contest, slow_contest):
        logits = start.clone().requires_grad_()
        parts = function(logits, both=both)
        total = sum((part[: len(pull)] * pull).sum() for part, pull in zip(parts, pulls, strict=True))
        gradients.append(torch.autograd.grad(total, logits)[0])
    assert torch.allclose(*gradients, atol=1e-12)


@pytest.mark.parametrize("both", [False, True])
def test_gradients_of_a_contest_are_those_of_finite_differences(both: bool) -> None:
    logits = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def run(values: Tensor) -> tuple[Tensor, ...]:
        # Its way back can be walked once: every time it is walked, the contest is held again.
        found = checkpoint(contest, values, both=both, use_reentrant=False)
        return tuple(part for part in found if len(part))

    assert len(run(logits)) == 2 + both
    assert torch.autograd.gradcheck(run, (logits,))


def test_a_contest_leaves_its_scores_as_they_were() -> None:
    logits = torch.randn(4, 5, dtype=torch.float64).requires_grad_()
    before = logits.detach().clone()
    sum(part.sum() for part in contest(logits, both=True)).backward()
    assert torch.equal(logits.detach(), before)


def test_tables_read_by_rows_have_an_optimizer_of_their_own() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain, self.still = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2), requires_grad=False)
            self.table = RowTable(torch.zeros(3, 2))

    task = Scored(some_scores())
    (only,) = task.optimizers()
    assert [id(p) for p in only.param_groups[0]["params"]] == [id(task.given)]
    small = Small()
    task.network = small  # type: ignore[assignment]
    plain, by_rows = task.optimizers()
    assert isinstance(by_rows, TableAdam)
    assert [id(p) for p in plain.param_groups[0]["params"]] == [id(small.plain)]
    assert [id(p) for p in by_rows.param_groups[0]["params"]] == [id(small.table.values)]
    small.plain.requires_grad_(False)
    assert [type(optimizer) for optimizer in task.optimizers()] == [TableAdam]
