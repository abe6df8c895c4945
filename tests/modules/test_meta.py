"""The loss of modules I and II against the textbook's."""

from __future__ import annotations

import pytest
import torch
from scipy import sparse
from torch.nn.functional import binary_cross_entropy_with_logits

from decaf.modules.batches import Batches
from decaf.modules.meta import MetaTask
from decaf.networks import FixedBags, Rows, TextNetwork

from . import random_rows, truth_of

CPU = torch.device("cpu")
CLUSTERS = 6
TRUTH = [[0, 3], [1], [5, 2, 0], [4], [3], [2], [1, 5]]


def network() -> TextNetwork:
    torch.manual_seed(0)
    texts = FixedBags(random_rows(CLUSTERS, 9, seed=1), CPU)
    made = TextNetwork(torch.randn(9, 4), texts, 0.0, text=True, refinement="text", learn_table=True)
    return made.eval()  # the norm of R stands still


@pytest.mark.parametrize("size", [3, 7, 2])  # with a padded batch at the end, one batch for all, and a document alone
@pytest.mark.parametrize("filtered", [False, True])
def test_the_loss_is_the_mean_cross_entropy_of_documents_and_clusters(size: int, filtered: bool) -> None:
    task = MetaTask(network())
    documents, known = Rows.of(random_rows(7, 9, seed=2), CPU), truth_of(TRUTH, CLUSTERS)
    if filtered:
        known = sparse.csr_array(known - truth_of([[1], [], [3, 4], [], [0], [], []], CLUSTERS))
    batches = Batches(documents, Rows.of(known, CPU), size)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    batches.shuffle(order)
    logits = task.network(documents.columns, documents.starts, documents.values)[order]
    targets = torch.as_tensor(known.toarray())[order]
    for step in range(batches.steps):
        part = slice(step * size, (step + 1) * size)
        counts = (targets[part] >= 0).float()  # pairs that count for nothing cost nothing
        expected = binary_cross_entropy_with_logits(logits[part], targets[part].clamp(min=0), counts)
        loss = task.loss(batches.batch(torch.tensor([step])))
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        wanted = torch.autograd.grad(expected, task.network.table, retain_graph=True)[0]
        assert torch.allclose(torch.autograd.grad(loss, task.network.table)[0], wanted, atol=1e-6)


def test_everything_that_learns_is_in_the_optimizers() -> None:
    task = MetaTask(network())
    learned = {id(p) for optimizer in task.optimizers() for group in optimizer.param_groups for p in group["params"]}
    assert learned == {id(parameter) for parameter in task.network.parameters()}
    task.network.table.requires_grad_(False)
    learned = {id(p) for optimizer in task.optimizers() for group in optimizer.param_groups for p in group["params"]}
    assert id(task.network.table) not in learned
