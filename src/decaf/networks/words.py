"""What the documents of a label are about, in tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LEAST_SHARE", "Words"]

_DOCUMENTS = 256  # compared at a time
LEAST_SHARE = 1e-3  # a share that is next to none


class Words(NamedTuple):
    """The heaviest tokens of each label's documents, taken together; a label that has fewer has zeros."""

    tokens: Tensor  # [labels, width]
    weights: Tensor  # rows of unit length, [labels, width]
    shares: Tensor  # of all that a token weighs in the documents, [labels, width]

    def compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor]:
        """How documents compare with those of labels [documents, listed]; -1 stands for none.

        Two things: the cosine with their sum, and the logarithm of the label's share in the document's tokens.
        """
        if not len(starts):
            return torch.zeros_like(labels, dtype=weights.dtype), torch.zeros_like(labels, dtype=weights.dtype)
        bounds = [*starts[::_DOCUMENTS].tolist(), len(tokens)]
        parts = [
            self._compare(tokens[first:last], some - first, weights[first:last], listed, vocabulary)
            for first, last, some, listed in zip(
                bounds, bounds[1:], torch.split(starts, _DOCUMENTS), torch.split(labels, _DOCUMENTS), strict=False
            )
        ]
        likeness, share = (torch.cat(found) for found in zip(*parts, strict=True))
        return likeness, (share.clamp(min=0) + LEAST_SHARE).log()

    def _compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor]:
        """Documents as rows over the tokens that any of them has, with one more column for all others."""
        used, column = torch.unique(tokens, return_inverse=True)
        lengths = torch.diff(starts, append=starts.new_tensor([len(tokens)]))
        row = torch.repeat_interleave(torch.arange(len(starts), device=tokens.device), lengths)
        documents = weights.new_zeros(len(starts), len(used) + 1)
        squares = weights.new_zeros(len(starts)).index_add_(0, row, weights**2)
        documents[row, column] = weights / squares.sqrt().clamp(min=1e-12)[row]
        column_of = torch.full((vocabulary,), len(used), device=tokens.device)
        column_of[used] = torch.arange(len(used), device=tokens.device)
        listed = labels.clamp(min=0)
        at = column_of[self.tokens[listed].long()]  # [documents, listed, width]
        weighs = documents.gather(1, at.flatten(1)).view(at.shape)
        return (weighs * self.weights[listed]).sum(dim=2), (weighs * self.shares[listed]).sum(dim=2)
