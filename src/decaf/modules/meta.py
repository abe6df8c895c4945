"""What modules I and II have in common: every document against all clusters of labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from decaf.modules.batches import Batch
from decaf.modules.loop import Task, adam
from decaf.networks import TextNetwork

__all__ = ["MetaTask"]


class MetaTask(Task):
    """One logistic classifier for each cluster; token embeddings, blocks and classifiers learn together."""

    network: TextNetwork

    def __init__(self, network: TextNetwork) -> None:
        self.network = network

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over documents and clusters."""
        logits: Tensor = self.network(batch.tokens, batch.starts, batch.weights)  # [documents, clusters]
        positives = logits[batch.rows, batch.columns]
        loss = (softplus(logits).sum(dim=1) * batch.there).sum() - (positives * batch.true).sum()
        return loss / (batch.count * logits.shape[1])

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Plain Adam for everything that learns."""
        return [adam(parameter for parameter in self.network.parameters() if parameter.requires_grad)]
