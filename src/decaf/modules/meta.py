"""Logistic classifiers: what pairs cost, and every document against all clusters of labels (modules I and II)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decaf.modules.batches import Batch
from decaf.modules.loop import Task, adam
from decaf.networks import TextNetwork

__all__ = ["MetaTask", "no_negatives"]


def no_negatives(scores: Tensor, true: Tensor) -> Tensor:
    """What pairs cost beside what they would as negatives: true ones (1) and those that count for nothing (-1)."""
    return -scores * true.clamp(min=0) + softplus(scores) * true.clamp(max=0)


class MetaTask(Task):
    """One logistic classifier for each cluster; token embeddings, blocks and classifiers learn together."""

    network: TextNetwork

    def __init__(self, network: TextNetwork) -> None:
        self.network = network

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over documents and clusters."""
        logits: Tensor = self.network(batch.tokens, batch.starts, batch.weights)  # [documents, clusters]
        loss = (softplus(logits).sum(dim=1) * batch.there).sum()
        loss = loss + no_negatives(logits[batch.rows, batch.columns], batch.true).sum()
        return loss / (batch.count * logits.shape[1])

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Plain Adam for everything that learns."""
        return [adam(parameter for parameter in self.network.parameters() if parameter.requires_grad)]
