"""Modules III and IV: a classifier for every label, begun from its text and learned on the shortlists."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from decaf.modules.batches import Batch
from decaf.modules.loop import RowAdam, adam
from decaf.modules.problem import Problem
from decaf.networks import Classifier, DocumentEncoder, FixedBags

__all__ = ["RankTask"]


class RankTask:
    """Logistic classifiers of labels, each document against the labels of its shortlisted clusters."""

    def __init__(
        self,
        problem: Problem,
        cluster: Tensor,  # of each label
        members: Tensor,  # [clusters, width]
        shortlist: Tensor,  # [documents, beam], clusters
        table: nn.Parameter,
        dropout: float,
        *,
        text: bool,
        refinement: bool,
        from_text: bool,
        forced: bool,
        frozen_table: bool,
        device: torch.device,
    ) -> None:
        dim = table.shape[1]
        self.texts = FixedBags(problem.labels, device)
        self.table = nn.Parameter(table.detach().to(device).clone(), requires_grad=not frozen_table)
        start = None
        if refinement and from_text:
            start = self.texts(self.table).detach()
        elif refinement:
            start = torch.empty(self.texts.count, dim, device=device).uniform_(-(dim**-0.5), dim**-0.5)
        self._forced = forced
        self._cluster, self._members, self._shortlist = cluster.to(device), members.to(device), shortlist
        self.network = nn.ModuleDict(
            {"documents": DocumentEncoder(dim, dropout), "labels": Classifier(dim, dropout, start, text=text)}
        ).to(device)
        self.network.register_parameter("table", self.table)

    def loss(self, batch: Batch) -> Tensor:
        """Logistic loss, the mean over the shortlisted labels of the documents."""
        weights, bias = self.classifiers()
        vectors: Tensor = self.network["documents"](batch.tokens, batch.starts, batch.weights, self.table)
        logits = vectors @ weights.T if bias is None else torch.addmm(bias, vectors, weights.T)  # [documents, labels]
        clusters = self._shortlist[batch.numbers].long()  # [documents, beam]
        labels = self._members[clusters].flatten(1)  # [documents, beam * width]
        listed = (labels >= 0) * batch.there[:, None]
        negatives = softplus(logits.gather(1, labels.clamp(min=0))) * listed
        found = (clusters[batch.rows] == self._cluster[batch.columns, None]).any(dim=1)  # [pairs]
        positives = logits[batch.rows, batch.columns]
        if self._forced:
            # A label that the shortlist missed joins it: what it would cost as a negative, less its score.
            extra = (softplus(positives) * ~found - positives) * batch.true
        else:
            extra = -positives * found * batch.true
        return (negatives.sum() + extra.sum()) / listed.sum()

    def classifiers(self) -> tuple[Tensor, Tensor | None]:
        """Weights w_l and biases of all labels."""
        classifier = self.network["labels"]
        assert isinstance(classifier, Classifier)  # noqa: S101 - for the type checker
        return classifier.weights(self.texts(self.table))

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Adam by rows for refinement vectors and biases, plain Adam for the rest."""
        classifier = self.network["labels"]
        assert isinstance(classifier, Classifier)  # noqa: S101 - for the type checker
        own = [parameter for parameter in (classifier.refinement, classifier.bias) if parameter is not None]
        others = [p for p in self.network.parameters() if p.requires_grad and all(p is not mine for mine in own)]
        return [adam(others), *([RowAdam(own)] if own else [])]
