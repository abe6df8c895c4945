"""Classifiers of labels or clusters: their text vector combined with a refinement vector of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

from decaf.networks.encoder import Block

__all__ = ["Classifier", "LabelTexts", "RowTable"]


class LabelTexts(NamedTuple):
    """What label texts add to classifiers, for prediction: factor times (scale e + R relu(e) + bias)."""

    scale: Tensor  # [dim]
    weight: Tensor  # R, [dim, dim]
    bias: Tensor  # [dim]
    factor: Tensor  # [dim]
    unit: Tensor  # whether the vector is made of unit length before, [1]

    def __call__(self, bags: Tensor) -> Tensor:
        """Bag embeddings of label texts -> [labels, dim]."""
        vectors = torch.addmm(self.scale * bags + self.bias, bags.relu(), self.weight.T)
        return self.factor * (normalize(vectors, dim=1) if bool(self.unit) else vectors)


class RowTable(nn.Module):
    """A table of which a step reads and moves some rows alone; the row behind the last is nobody's."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(pad(start, (*[0] * (2 * start.dim() - 1), 1)), requires_grad=False)
        self.rows: Tensor | None = None  # those last read
        self.read: Tensor | None = None  # as the step sees them, with their gradient

    def forward(self, rows: Tensor) -> Tensor:
        """The values of these rows; a row may be named once only, but for nobody's."""
        self.rows, self.read = rows, self.values[rows].requires_grad_()
        return self.read


class Classifier(nn.Module):
    """w = sigmoid(alpha) z1 + sigmoid(beta) z2 and a bias, for every label; z1 of unit length where `unit`.

    Without a refinement vector z2 the text vector z1 is the classifier; without text the refinement vector is.
    """

    def __init__(
        self,
        dim: int,
        dropout: float,
        refinement: Tensor | None,
        *,
        text: bool = True,
        unit: bool = False,
        by_rows: bool = False,
    ) -> None:
        super().__init__()
        self._unit = unit
        self.block = Block(dim, dropout) if text else None
        self.refinement: nn.Parameter | RowTable | None = None  # z2, [labels, dim]
        self.bias: nn.Parameter | RowTable | None = None  # [labels]
        if refinement is not None:
            bias = torch.zeros(len(refinement), device=refinement.device)
            self.refinement = RowTable(refinement) if by_rows else nn.Parameter(refinement.clone())
            self.bias = RowTable(bias) if by_rows else nn.Parameter(bias)
        combined = text and refinement is not None
        self.alpha = nn.Parameter(torch.zeros(dim)) if combined else None
        self.beta = nn.Parameter(torch.zeros(dim)) if combined else None

    def weights(self, bags: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Bag embeddings of label texts (of these rows alone, where given) -> weights [labels, dim] and biases."""
        refinement, bias = _of_rows(self.refinement, rows), _of_rows(self.bias, rows)
        if self.block is None:
            assert refinement is not None  # noqa: S101 - a classifier has text, refinement, or both
            return refinement, bias
        text: Tensor = self.block(bags)  # z1
        if self._unit:
            text = normalize(text, dim=1)
        if refinement is None or self.alpha is None or self.beta is None:
            return text, bias
        return self.alpha.sigmoid() * text + self.beta.sigmoid() * refinement, bias

    def frozen_texts(self, scale: Tensor) -> LabelTexts | None:
        """The part of the weights, times a scale, that label texts make; None without texts."""
        if self.block is None:
            return None
        parts = self.block.folded()
        factor = torch.ones_like(parts[0]) if self.alpha is None else self.alpha.detach().sigmoid()
        return LabelTexts(*parts, (scale * factor).detach(), torch.tensor([self._unit], device=factor.device))


def _of_rows(values: nn.Parameter | RowTable | None, rows: Tensor | None) -> Tensor | None:
    """Some rows of a table or a parameter, or all."""
    if isinstance(values, RowTable):
        return values.values[:-1] if rows is None else values(rows)
    return values if rows is None or values is None else values[rows]
