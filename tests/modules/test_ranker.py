"""The losses of module IV against plain loops: over the shortlisted labels, and over all labels or a sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from decaf.modules.batches import Batches
from decaf.modules.loop import RowAdam, TableAdam, seeded
from decaf.modules.problem import Held, Problem
from decaf.modules.ranker import ChoiceTask, RankTask
from decaf.modules.shortlister import Shortlist
from decaf.networks import FixedBags, FrozenEncoder, Rows, Shortlister, TextNetwork

from . import random_rows, truth_of

CPU = torch.device("cpu")
LABELS = 7
MEMBERS = [[0, 4], [1, 5], [2, 6], [3, -1], [-1, -1]]
TRUTH = [[0, 3], [1], [5, 2, 0], [4, 6], [3]]
CLUSTERS = [[0, 1], [3, 1], [2, 0], [3, 4], [0, 2]]  # document 0 misses label 3, 1 finds all, 3 and 4 find none


def network() -> TextNetwork:
    torch.manual_seed(0)
    texts = FixedBags(random_rows(LABELS, 9, seed=1), CPU)
    made = TextNetwork(torch.randn(9, 4), texts, 0.0, text=True, refinement="text", learn_table=True)
    return made.eval()  # the norm of R stands still


def shortlist(clusters: list[list[int]]) -> Shortlist:
    nothing = torch.zeros(0)
    members = torch.tensor(MEMBERS)
    of_label = torch.tensor([next(m for m, row in enumerate(MEMBERS) if label in row) for label in range(LABELS)])
    shortlister = Shortlister(FrozenEncoder(nothing, nothing, nothing, nothing), nothing, nothing, members)
    return Shortlist(shortlister, of_label, nothing, torch.tensor(clusters, dtype=torch.int32))


def expected_loss(logits: Tensor, documents: list[int], filters: list[list[int]], *, forced: bool) -> Tensor:
    """One (document, label) pair after another; the mean is over the shortlisted pairs, though some cost nothing."""
    costs, listed = [], 0
    for document in documents:
        labels = {label for cluster in CLUSTERS[document] for label in MEMBERS[cluster] if label >= 0}
        listed += len(labels)
        for label in (labels | (set(TRUTH[document]) if forced else set())) - set(filters[document]):
            target = torch.tensor(float(label in TRUTH[document]))
            costs.append(binary_cross_entropy_with_logits(logits[document, label], target))
    return torch.stack(costs).sum() / listed


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("size", [5, 2])  # one batch for all; a padded one at the end
@pytest.mark.parametrize("filters", [[[]] * 5, [[1, 4, 6], [3], [], [2, 5], [0, 1]]])  # shortlisted and not
def test_the_loss_is_the_cross_entropy_of_the_shortlisted_labels(
    forced: bool, size: int, filters: list[list[int]]
) -> None:
    task = RankTask(network(), shortlist(CLUSTERS), forced=forced)
    documents = Rows.of(random_rows(5, 9, seed=2), CPU)
    known = sparse.csr_array(truth_of(TRUTH, LABELS) - truth_of(filters, LABELS))
    batches = Batches(documents, Rows.of(known, CPU), size)
    order = [4, 1, 3, 0, 2]
    batches.shuffle(torch.tensor(order))
    logits = task.network(documents.columns, documents.starts, documents.values)
    for step in range(batches.steps):
        expected = expected_loss(logits, order[step * size : (step + 1) * size], filters, forced=forced)
        loss = task.loss(batches.batch(torch.tensor([step])))
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        wanted = torch.autograd.grad(expected, task.network.labels.refinement, retain_graph=True)[0]
        assert torch.allclose(torch.autograd.grad(loss, task.network.labels.refinement)[0], wanted, atol=1e-6)


def test_labels_beside_the_shortlist_learn_nothing_unless_they_are_forced() -> None:
    documents = Rows.of(random_rows(1, 9, seed=2), CPU)
    batches = Batches(documents, Rows.of(truth_of([[0, 3]], LABELS), CPU), 1)
    batches.shuffle(torch.tensor([0]))
    for forced, learning in ((False, [0, 1, 4, 5]), (True, [0, 1, 3, 4, 5])):
        task = RankTask(network(), shortlist(CLUSTERS[:1]), forced=forced)
        task.loss(batches.batch(torch.tensor([0]))).backward()
        gradient = task.network.labels.bias.grad
        assert gradient is not None
        assert gradient.nonzero()[:, 0].tolist() == learning


def test_a_batch_whose_shortlists_are_empty_costs_nothing() -> None:
    documents = Rows.of(random_rows(1, 9, seed=2), CPU)
    batches = Batches(documents, Rows.of(truth_of([[0]], LABELS), CPU), 1)
    batches.shuffle(torch.tensor([0]))
    loss = RankTask(network(), shortlist([[4, 4]]), forced=False).loss(batches.batch(torch.tensor([0])))
    assert float(loss.detach()) == 0


def test_refinements_and_biases_learn_by_rows_and_the_rest_plainly() -> None:
    task = RankTask(network(), shortlist(CLUSTERS), forced=False)
    plain, by_rows = task.optimizers()
    assert isinstance(by_rows, RowAdam)
    own = {id(parameter) for parameter in by_rows.param_groups[0]["params"]}
    assert own == {id(task.network.labels.refinement), id(task.network.labels.bias)}
    others = {id(parameter) for parameter in plain.param_groups[0]["params"]}
    assert not own & others
    assert own | others == {id(parameter) for parameter in task.network.parameters()}


def problem(*, held: Held | None = None) -> Problem:
    filters = np.array([[0, 1], [1, 6], [2, 3], [4, 0]])
    truth, texts = truth_of(TRUTH, LABELS), random_rows(LABELS, 9, seed=1)
    return Problem(random_rows(5, 9, seed=2), texts, truth, np.arange(LABELS), filters, np.ones(LABELS), held)


def choice_network(*, by_rows: bool) -> TextNetwork:
    torch.manual_seed(0)
    texts = FixedBags(random_rows(LABELS, 9, seed=1), CPU)
    settings = {"text": True, "refinement": torch.randn(LABELS, 4), "learn_table": True, "temperature": 6.0}
    return TextNetwork(torch.randn(9, 4), texts, 0.0, by_rows=by_rows, **settings).eval()


def choice_task(
    *, negatives: int = 0, hard: int = 2, listed: Shortlist | None = None, held: Held | None = None
) -> ChoiceTask:
    network = choice_network(by_rows=negatives > 0)
    return ChoiceTask(network, listed or shortlist(CLUSTERS), problem(held=held), negatives=negatives, hard=hard)


def expected_choice(logits: Tensor, documents: list[int], weights: dict[int, float]) -> Tensor:
    """One true pair after another against the negatives of its document, each as heavy as told."""
    known, cost = problem().known().toarray(), logits.new_zeros(())
    for document in documents:
        negatives = [
            logits[document, label] + math.log(weight)
            for label, weight in weights.items()
            if known[document, label] == 0
        ]
        for label in TRUTH[document]:
            cost = cost + softplus(torch.stack(negatives).logsumexp(0) - logits[document, label])
    return cost / len(documents)


@pytest.mark.parametrize("negatives", [0, 2])
@pytest.mark.parametrize("size", [5, 2])  # one batch for all; a padded one at the end
def test_true_labels_are_set_against_all_others_or_a_sample(negatives: int, size: int) -> None:
    task = choice_task(negatives=negatives)
    documents = Rows.of(problem().documents, CPU)
    batches = Batches(documents, Rows.of(problem().known(), CPU), size)
    order = [4, 1, 3, 0, 2]
    batches.shuffle(torch.tensor(order))
    logits = task.network(documents.columns, documents.starts, documents.values)
    for step in range(batches.steps):
        batch = batches.batch(torch.tensor([step]))
        with seeded(step, device=CPU):
            candidates = task.candidates(batch)
        weights = dict.fromkeys(range(LABELS), 1.0)
        if candidates.labels is not None:
            found = zip(candidates.labels.tolist(), candidates.weight.exp().tolist(), strict=True)
            weights = {label: weight for label, weight in found if label < LABELS}
        expected = expected_choice(logits, order[step * size : (step + 1) * size], weights)
        with seeded(step, device=CPU):
            loss = task.loss(batch)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
        wanted = torch.autograd.grad(expected, task.network.table, retain_graph=True)[0]
        assert torch.allclose(torch.autograd.grad(loss, task.network.table)[0], wanted, atol=1e-5)


def test_a_sample_holds_the_labels_of_the_batch_and_of_its_shortlists_and_some_at_random() -> None:
    batches = Batches(Rows.of(problem().documents, CPU), Rows.of(problem().known(), CPU), 2)
    batches.shuffle(torch.arange(5))
    batch = batches.batch(torch.tensor([0]))  # documents 0 and 1
    known = {0, 1, 3, 6}  # what is known of both, true or not
    listed = {label for document in (0, 1) for cluster in CLUSTERS[document] for label in MEMBERS[cluster]} - {-1}
    few, seen = choice_task(negatives=1, hard=2), set()
    for seed in range(80):
        with seeded(seed, device=CPU):
            candidates = few.candidates(batch)
        drawn = candidates.labels.tolist()
        assert known <= set(drawn)
        assert drawn == sorted(set(drawn))
        assert len(set(drawn) - known - listed - {LABELS}) <= 1  # the one at random
        seen |= set(drawn)
        # It stands for all labels; those that were named for their own sake for themselves, and nobody for none.
        heavy = {label for label, weight in zip(drawn, candidates.weight.tolist(), strict=True) if weight > 0}
        assert set(drawn) - known - listed - {LABELS} <= heavy
        assert len(heavy) <= 1
        assert not heavy & known
        weights = dict(zip(drawn, candidates.weight.exp().tolist(), strict=True))
        assert all(
            weights[label] == pytest.approx(LABELS if label in heavy else 1) for label in drawn if label < LABELS
        )
        assert weights.get(LABELS, 0) == 0
    assert seen == set(range(LABELS + 1))  # nobody too: a cluster has an empty place
    many = choice_task(negatives=3, hard=0)
    for seed in range(20):
        with seeded(seed, device=CPU):
            assert len(set(many.candidates(batch).labels.tolist()) - known) <= 3


def test_only_sampled_rows_move_and_nobody_stays_zero() -> None:
    task = choice_task(negatives=2, hard=6)  # enough that every document has a negative
    plain, by_rows = task.optimizers()
    assert isinstance(by_rows, TableAdam)
    for group in by_rows.param_groups:
        group["lr"] = 0.1
    tables = (task.network.labels.refinement, task.network.labels.bias)
    assert {id(p) for p in by_rows.param_groups[0]["params"]} == {id(table.values) for table in tables}
    assert {id(p) for p in plain.param_groups[0]["params"]} == {
        id(p) for p in task.network.parameters() if p.requires_grad
    }
    batches = Batches(Rows.of(problem().documents, CPU), Rows.of(problem().known(), CPU), 1)
    batches.shuffle(torch.arange(5))
    for step in range(5):
        before = [table.values.detach().clone() for table in tables]
        with seeded(step, device=CPU):
            task.loss(batches.batch(torch.tensor([step]))).backward()
        drawn = set(tables[0].rows.tolist())
        by_rows.step()
        for table, old in zip(tables, before, strict=True):
            moved = {row for row in range(LABELS + 1) if not torch.equal(table.values[row], old[row])}
            assert moved <= drawn - {LABELS}
            assert set(TRUTH[step]) <= moved
    assert not tables[0].values[-1].any()
    assert float(tables[1].values[-1]) == 0


def real_shortlist() -> Shortlist:
    """One that can be asked about texts."""
    generator = torch.Generator().manual_seed(2)
    encoder = FrozenEncoder(
        torch.randn(9, 4, generator=generator), torch.ones(4), torch.zeros(4, 4), torch.zeros(4), True
    )
    weights = torch.randn(5, 4, generator=generator)
    shortlister = Shortlister(encoder, weights, torch.zeros(5), torch.tensor(MEMBERS))
    texts = 3 * torch.randn(LABELS, 4, generator=generator)
    clusters = torch.tensor(CLUSTERS, dtype=torch.int32)
    return Shortlist(shortlister, torch.zeros(LABELS), encoder.table, clusters, texts)


def test_the_figure_is_precision_on_the_shortlists_of_held_out_documents() -> None:
    assert choice_task().figure is None
    documents, listed = random_rows(4, 9, seed=5), real_shortlist()
    shortlister, texts = listed.shortlister, listed.texts
    rows = Rows.of(documents, CPU)
    arguments = (rows.columns, rows.starts, rows.values)
    with torch.no_grad():
        logits = choice_network(by_rows=False)(*arguments) + shortlister.encoder(*arguments) @ texts.T / 2
    clusters, _ = shortlister.top(*arguments, 2)
    best = []
    for row in range(4):
        among = [label for cluster in clusters[row].tolist() for label in MEMBERS[cluster] if label >= 0]
        best.append(max(among, key=lambda label: float(logits[row, label])))
    truth = [[best[0]], [best[1]], [(best[2] + 1) % LABELS], [best[3]]]
    held = Held(
        documents, truth_of(truth, LABELS), np.zeros((0, 2), dtype=np.int64), np.ones(LABELS), np.ones(len(truth))
    )
    task = choice_task(listed=listed, held=held)
    assert task.figure is not None
    assert task.figure() == 75
