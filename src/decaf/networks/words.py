"""What is known of labels by tokens: what their documents are about, and a linear classifier."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LEAST_SHARE", "Words"]

_DOCUMENTS = 256  # compared at a time
LEAST_SHARE = 1e-3  # a share that is next to none


class Words(NamedTuple):
    """The heaviest tokens of each label's documents, taken together, and those that its linear classifier weighs.

    A label that has fewer has zeros.
    """

    tokens: Tensor  # [labels, width]
    weights: Tensor  # rows of unit length, [labels, width]
    shares: Tensor  # of all that a token weighs in the documents, [labels, width]
    cues: Tensor  # tokens of the classifier, [labels, cues]
    cue_weights: Tensor  # [labels, cues]
    cue_bias: Tensor  # [labels]

    def compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How documents compare with those of labels [documents, listed]; -1 stands for none.

        Three things: the cosine with their sum, the logarithm of the label's share in the document's tokens, and what
        the linear classifier says.
        """
        if not len(starts):
            nothing = torch.zeros_like(labels, dtype=weights.dtype)
            return nothing, nothing, nothing
        bounds = [*starts[::_DOCUMENTS].tolist(), len(tokens)]
        parts = [
            self._compare(tokens[first:last], some - first, weights[first:last], listed, vocabulary)
            for first, last, some, listed in zip(
                bounds, bounds[1:], torch.split(starts, _DOCUMENTS), torch.split(labels, _DOCUMENTS), strict=False
            )
        ]
        likeness, share, linear = (torch.cat(found) for found in zip(*parts, strict=True))
        return likeness, (share.clamp(min=0) + LEAST_SHARE).log(), linear

    def _compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor, Tensor]:
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

        def weighs(tokens: Tensor) -> Tensor:
            at = column_of[tokens[listed].long()]  # [documents, listed, width]
            return documents.gather(1, at.flatten(1)).view(at.shape)

        of_words, of_cues = weighs(self.tokens), weighs(self.cues)
        return (
            (of_words * self.weights[listed]).sum(dim=2),
            (of_words * self.shares[listed]).sum(dim=2),
            (of_cues * self.cue_weights[listed]).sum(dim=2) + self.cue_bias[listed],
        )
