"""What is known of labels by tokens: what their documents are about, a linear classifier, and their own text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

__all__ = ["LEAST_SHARE", "Words", "heaviest", "with_texts"]

_COMPARED = 1 << 13  # documents times tokens of a label that are compared at a time
_OWN = 16  # tokens kept of a label's text
LEAST_SHARE = 1e-3  # a share that is next to none


class Words(NamedTuple):
    """The heaviest tokens of each label's documents, taken together, and its cues.

    These are the tokens of its own text, and those that its linear classifier weighs most. A label that has fewer has
    zeros.
    """

    tokens: Tensor  # [labels, width]
    weights: Tensor  # rows of unit length, [labels, width]
    shares: Tensor  # of all that a token weighs in the documents, [labels, width]
    cues: Tensor  # [labels, cues]
    cue_weights: Tensor  # in the classifier, [labels, cues]
    cue_bias: Tensor  # [labels]
    matches: Tensor  # what the cues weigh in the label's text, [labels, cues]

    def compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """How documents compare with labels [documents, listed]; -1 stands for none.

        Four things: the cosine with the sum of the label's documents, the logarithm of the label's share in the
        document's tokens, what the linear classifier says, and the cosine with the label's text.
        """
        if not len(starts):
            nothing = torch.zeros_like(labels, dtype=weights.dtype)
            return nothing, nothing, nothing, nothing
        size = max(1, _COMPARED // max(1, self.tokens.shape[1], self.cues.shape[1]))
        bounds = [*starts[::size].tolist(), len(tokens)]
        parts = [
            self._compare(tokens[first:last], some - first, weights[first:last], listed, vocabulary)
            for first, last, some, listed in zip(
                bounds,
                bounds[1:],
                torch.split(starts, size),
                torch.split(labels, size),
                strict=False,
            )
        ]
        likeness, share, linear, match = (torch.cat(found) for found in zip(*parts, strict=True))
        return likeness, (share.clamp(min=0) + LEAST_SHARE).log(), linear, match

    def _compare(
        self, tokens: Tensor, starts: Tensor, weights: Tensor, labels: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
            (of_cues * self.matches[listed]).sum(dim=2),
        )


def heaviest(rows: sparse.csr_array, width: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The columns and values of the largest entries of each row, largest first -> [rows, width] each."""
    lengths = np.diff(rows.indptr)
    row = np.repeat(np.arange(rows.shape[0]), lengths)
    rank = np.arange(len(row)) - np.repeat(rows.indptr[:-1], lengths)
    order = np.lexsort((rows.indices, -rows.data, row))[rank < width]
    place = row[order], rank[rank < width]
    columns = np.zeros((rows.shape[0], width), dtype=np.int32)
    values = np.zeros((rows.shape[0], width), dtype=np.float32)
    columns[place], values[place] = rows.indices[order], rows.data[order]
    return columns, values


def with_texts(
    cues: NDArray[np.int32], weights: NDArray[np.float32], texts: sparse.csr_array, width: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """The tokens of labels' texts, then what room there is for those of their classifiers, the heaviest first.

    -> tokens, their weights in the classifiers, and in the texts, [labels, width] each.
    """
    own, values = heaviest(texts, min(_OWN, width))
    same = (own[:, :, None] == cues[:, None, :]) & (values[:, :, None] != 0)  # [labels, own, cues]
    others = np.where(same.any(axis=1), np.float32(0), weights)
    arrays = (
        np.concatenate([own, cues], axis=1),
        np.concatenate([(same * weights[:, None, :]).sum(axis=2), others], axis=1),
        np.concatenate([values, np.zeros_like(others)], axis=1),
    )
    urgent = np.concatenate([np.where(values != 0, np.float32(np.inf), np.float32(0)), np.abs(others)], axis=1)
    order = np.argsort(-urgent, axis=1, kind="stable")[:, :width]
    named, in_classifier, in_text = (np.take_along_axis(array, order, axis=1) for array in arrays)
    short = ((0, 0), (0, width - named.shape[1]))
    there = (in_classifier != 0) | (in_text != 0)
    return np.pad(np.where(there, named, 0), short), np.pad(in_classifier, short), np.pad(in_text, short)
