"""Classifiers of labels or clusters: their text vector combined with a refinement vector of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from decaf.networks.encoder import Block

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """w = sigmoid(alpha) z1 + sigmoid(beta) z2 and a bias, for every label.

    Without a refinement vector z2 the text vector z1 is the classifier; without text the refinement vector is.
    """

    def __init__(self, dim: int, dropout: float, refinement: Tensor | None, *, text: bool = True) -> None:
        super().__init__()
        self.block = Block(dim, dropout) if text else None
        self.refinement = None if refinement is None else nn.Parameter(refinement.clone())  # z2, [labels, dim]
        self.bias = None if refinement is None else nn.Parameter(torch.zeros(len(refinement)))
        combined = text and refinement is not None
        self.alpha = nn.Parameter(torch.zeros(dim)) if combined else None
        self.beta = nn.Parameter(torch.zeros(dim)) if combined else None

    def weights(self, bags: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Bag embeddings of label texts (of these rows alone, where given) -> weights [labels, dim] and biases."""
        refinement = self.refinement if rows is None or self.refinement is None else self.refinement[rows]
        bias = self.bias if rows is None or self.bias is None else self.bias[rows]
        if self.block is None:
            assert refinement is not None  # noqa: S101 - a classifier has text, refinement, or both
            return refinement, bias
        text: Tensor = self.block(bags)  # z1
        if refinement is None or self.alpha is None or self.beta is None:
            return text, bias
        return self.alpha.sigmoid() * text + self.beta.sigmoid() * refinement, bias
