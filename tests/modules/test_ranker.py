"""The loss of module IV against the textbook's, over the shortlisted labels alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from decaf.modules.batches import Batches
from decaf.modules.loop import RowAdam
from decaf.modules.ranker import RankTask
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


def expected_loss(logits: Tensor, documents: list[int], *, forced: bool) -> Tensor:
    """One (document, label) pair after another; the mean is over the shortlisted pairs."""
    costs, listed = [], 0
    for document in documents:
        labels = {label for cluster in CLUSTERS[document] for label in MEMBERS[cluster] if label >= 0}
        listed += len(labels)
        for label in labels | (set(TRUTH[document]) if forced else set()):
            target = torch.tensor(float(label in TRUTH[document]))
            costs.append(binary_cross_entropy_with_logits(logits[document, label], target))
    return torch.stack(costs).sum() / listed


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("size", [5, 2])  # one batch for all; a padded one at the end
def test_the_loss_is_the_cross_entropy_of_the_shortlisted_labels(forced: bool, size: int) -> None:
    task = RankTask(network(), shortlist(CLUSTERS), forced=forced)
    documents = Rows.of(random_rows(5, 9, seed=2), CPU)
    batches = Batches(documents, Rows.of(truth_of(TRUTH, LABELS), CPU), size)
    order = [4, 1, 3, 0, 2]
    batches.shuffle(torch.tensor(order))
    logits = task.network(documents.columns, documents.starts, documents.values)
    for step in range(batches.steps):
        expected = expected_loss(logits, order[step * size : (step + 1) * size], forced=forced)
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
