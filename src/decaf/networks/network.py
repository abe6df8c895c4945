"""What modules I, II and IV learn: token embeddings, a document encoder, and classifiers of labels or clusters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from decaf.networks.classifier import Classifier
from decaf.networks.encoder import DocumentEncoder, FixedBags, FrozenEncoder

__all__ = ["TextNetwork"]


class TextNetwork(nn.Module):
    """Scores documents against all labels (or clusters), whose texts are fixed bags of the same tokens.

    `refinement` says how the labels' own vectors begin: as their text, at random, or not at all.
    """

    def __init__(
        self, table: Tensor, texts: FixedBags, dropout: float, *, text: bool, refinement: str | None, learn_table: bool
    ) -> None:
        super().__init__()
        dim = table.shape[1]
        self.table = nn.Parameter(table.detach().clone(), requires_grad=learn_table)  # E
        self._texts = texts
        start = None
        if refinement == "text":
            start = texts(self.table).detach()
        elif refinement == "random":
            start = torch.empty(texts.count, dim, device=table.device).uniform_(-(dim**-0.5), dim**-0.5)
        self.documents = DocumentEncoder(dim, dropout)
        self.labels = Classifier(dim, dropout, start, text=text)
        self.to(table.device)

    def forward(self, tokens: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
        """Scores of all labels -> [documents, labels]."""
        classifiers, bias = self.labels.weights(self._texts(self.table))
        vectors: Tensor = self.documents(tokens, starts, weights, self.table)
        return vectors @ classifiers.T if bias is None else torch.addmm(bias, vectors, classifiers.T)

    @torch.no_grad()
    def frozen(self) -> tuple[FrozenEncoder, Tensor, Tensor]:
        """For prediction: the document encoder, the labels' classifiers [labels, dim] and their biases."""
        classifiers, bias = self.labels.weights(self._texts(self.table))
        bias = classifiers.new_zeros(len(classifiers)) if bias is None else bias
        return self.documents.frozen(self.table), classifiers.detach().clone(), bias.detach().clone()
