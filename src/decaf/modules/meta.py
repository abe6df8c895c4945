"""Modules I and II learn the same way: every document against all clusters of labels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from decaf.modules.batches import Batch
from decaf.modules.loop import adam
from decaf.modules.problem import MetaLabels
from decaf.networks import Classifier, DocumentEncoder, FixedBags

__all__ = ["MetaTask"]


class MetaTask:
    """One logistic classifier for each cluster; token embeddings, blocks and classifiers learn together."""

    def __init__(
        self,
        meta: MetaLabels,
        table: nn.Parameter,
        dropout: float,
        *,
        text: bool,
        refinement: bool,
        frozen_table: bool,
        device: torch.device,
    ) -> None:
        dim = table.shape[1]
        self.texts = FixedBags(meta.texts, device)
        self.table = nn.Parameter(table.detach().to(device).clone(), requires_grad=not frozen_table)
        start = self.texts(self.table).detach() if refinement else None
        self.network = nn.ModuleDict(
            {
                "documents": DocumentEncoder(dim, dropout),
                "clusters": Classifier(dim, dropout, start, text=text),
            }
        ).to(device)
        self.network.register_parameter("table", self.table)

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over documents and clusters."""
        weights, bias = self.classifiers()
        vectors: Tensor = self.network["documents"](batch.tokens, batch.starts, batch.weights, self.table)
        logits = vectors @ weights.T if bias is None else torch.addmm(bias, vectors, weights.T)
        positives = logits[batch.rows, batch.columns]
        loss = (softplus(logits).sum(dim=1) * batch.there).sum() - (positives * batch.true).sum()
        return loss / (batch.count * logits.shape[1])

    def classifiers(self) -> tuple[Tensor, Tensor | None]:
        """Weights h_m and biases of all clusters."""
        classifier = self.network["clusters"]
        assert isinstance(classifier, Classifier)  # noqa: S101 - for the type checker
        return classifier.weights(self.texts(self.table))

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Plain Adam for everything that learns."""
        return [adam(parameter for parameter in self.network.parameters() if parameter.requires_grad)]
