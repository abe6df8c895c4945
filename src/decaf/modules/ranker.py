"""Modules III and IV: a classifier for every label, begun from its text and learned on the shortlists."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decaf.config import Config
from decaf.modules.batches import Batch
from decaf.modules.loop import Keeper, RowAdam, Schedule, adam, fit, seeded
from decaf.modules.problem import Problem
from decaf.modules.shortlister import Shortlist
from decaf.networks import FixedBags, Ranker, Rows, TextNetwork

__all__ = ["RankTask", "learn_ranker"]


def learn_ranker(
    name: str, problem: Problem, shortlist: Shortlist, config: Config, *, seed: int, keeper: Keeper
) -> Ranker:
    """Begin the classifiers from the labels' texts (module III), then learn them on the shortlists (module IV)."""
    settings, model, device = config.ranker, config.model, shortlist.table.device
    start = None if not model.refinement else "text" if settings.from_text and model.text else "random"
    with seeded(seed, name, device=device):
        network = TextNetwork(
            shortlist.table,
            FixedBags(problem.labels, device),
            settings.dropout,
            text=model.text,
            refinement=start,
            learn_table=not model.lite,
        )
    task = RankTask(network, shortlist, forced=settings.forced)
    schedule = Schedule(settings.epochs, settings.batch, settings.rate, (settings.epochs // 2,))
    documents, positives = Rows.of(problem.documents, device), Rows.of(problem.truth, device)
    fit(name, task, documents, positives, schedule, seed=seed, keeper=keeper)
    return Ranker(*network.frozen())


class RankTask:
    """Logistic classifiers of labels, each document against the labels of its shortlisted clusters."""

    def __init__(self, network: TextNetwork, shortlist: Shortlist, *, forced: bool) -> None:
        self.network = network
        self._shortlist, self._forced = shortlist, forced

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over the shortlisted labels of the documents."""
        logits: Tensor = self.network(batch.tokens, batch.starts, batch.weights)  # [documents, labels]
        clusters = self._shortlist.clusters[batch.numbers].long()  # [documents, beam]
        labels = self._shortlist.shortlister.members[clusters].flatten(1)  # [documents, beam * width]
        listed = (labels >= 0) * batch.there[:, None]
        negatives = softplus(logits.gather(1, labels.clamp(min=0))) * listed
        found = (clusters[batch.rows] == self._shortlist.cluster[batch.columns, None]).any(dim=1)  # [pairs]
        positives = logits[batch.rows, batch.columns]
        if self._forced:
            # A label that the shortlist missed joins it: what it would cost as a negative, less its score.
            extra = (softplus(positives) * ~found - positives) * batch.true
        else:
            extra = -positives * found * batch.true
        return (negatives.sum() + extra.sum()) / listed.sum().clamp(min=1)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam by rows for refinement vectors and biases, plain Adam for the rest."""
        labels = self.network.labels
        own = [parameter for parameter in (labels.refinement, labels.bias) if parameter is not None]
        others = [p for p in self.network.parameters() if p.requires_grad and all(p is not mine for mine in own)]
        return [adam(others), *([RowAdam(own)] if own else [])]
