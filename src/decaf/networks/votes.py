"""Training documents that are near a document vote for their labels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["LEAST_VOTE", "NEAREST", "SHARPNESS", "Votes"]

NEAREST = 8  # clusters of a document whose voters are asked
SHARPNESS = 20.0  # how much more the nearer voters count
LEAST_VOTE = 1e-3  # a vote that is next to none
_PAIRS = 1 << 18  # of documents and voters that are compared at a time


class Votes(NamedTuple):
    """Training documents by the cluster they look into first, and the labels that they have."""

    bounds: Tensor  # where the voters of each cluster begin and the last ends, [clusters + 1]
    vectors: Tensor  # as the ranker's encoder makes them, [voters, dim]
    label_bounds: Tensor  # where the labels of each voter begin and the last ends, [voters + 1]
    labels: Tensor

    def cast(self, vectors: Tensor, clusters: Tensor, labels: Tensor, count: int) -> Tensor:
        """The logarithm of each label's share in the votes [documents, listed]; -1 stands for no label, of `count`.

        A voter of a document's first clusters counts by the product of its vector with the document's.
        """
        clusters = clusters[:, :NEAREST]
        many = (self.bounds[clusters + 1] - self.bounds[clusters]).sum(dim=1).cumsum(dim=0)
        steps = torch.arange(1, 2 + int(many[-1]) // _PAIRS, device=many.device) * _PAIRS if len(many) else many
        cuts = torch.unique(torch.searchsorted(many, steps).clamp(min=1, max=len(many)))
        parts = torch.tensor_split(torch.arange(len(vectors), device=many.device), cuts.cpu())
        found = [self._cast(vectors[part], clusters[part], labels[part], count) for part in parts if len(part)]
        return torch.cat(found) if found else torch.zeros(labels.shape, device=vectors.device)

    def _cast(self, vectors: Tensor, clusters: Tensor, labels: Tensor, count: int) -> Tensor:
        first, last = self.bounds[clusters].flatten(), self.bounds[clusters + 1].flatten()
        documents = torch.arange(len(vectors), device=vectors.device).repeat_interleave(clusters.shape[1])
        voters, of_voter = _spans(first, last)
        row = documents[of_voter]
        alike = SHARPNESS * (self.vectors[voters] * vectors[row]).sum(dim=1)
        peak = alike.new_full((len(vectors),), -torch.inf).scatter_reduce_(0, row, alike, "amax")
        weight = (alike - peak[row]).exp()
        weight = weight / weight.new_zeros(len(vectors)).index_add_(0, row, weight)[row]
        named, of_label = _spans(self.label_bounds[voters], self.label_bounds[voters + 1])
        share = vectors.new_zeros(len(vectors), count)
        share.index_put_((row[of_label], self.labels[named].long()), weight[of_label], accumulate=True)
        return (share.gather(1, labels.clamp(min=0)) + LEAST_VOTE).log()


def _spans(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """All places from each first up to its last, one after another, and which span each is of."""
    lengths = last - first
    span = torch.repeat_interleave(torch.arange(len(first), device=first.device), lengths)
    before = lengths.cumsum(dim=0) - lengths
    return torch.arange(len(span), device=first.device) - before[span] + first[span], span
