"""Judging held-out documents while a module learns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decaf.modules.problem import Held
from decaf.networks import Instance, Parts, Rows

__all__ = ["DOCUMENTS", "Figures", "Judge", "held_parts"]

DOCUMENTS = 256  # held-out documents that are scored at a time
_DEEP = 5


class Figures(NamedTuple):
    """How held-out documents fare, in percent."""

    p1: float
    p5: float
    psp1: float
    psp5: float


@torch.no_grad()
def held_parts(held: Held, instance: Instance) -> Parts:
    """What the scores of the held-out documents' shortlisted labels are made of."""
    parts = Rows.in_parts(held.documents, DOCUMENTS, instance.ranker.weights.device)
    found = [instance.parts(rows.columns, rows.starts, rows.values) for rows in parts]
    return Parts(*(torch.cat(columns) for columns in zip(*found, strict=True)))


class Judge:
    """Says which labels of held-out documents are right, and which count for nothing."""

    def __init__(self, held: Held, device: torch.device) -> None:
        self._labels = held.truth.shape[1]
        self.device = device
        self._ignored = self._keys(held.filters, device)
        truth = held.truth.tocoo()
        pairs = self._keys(np.stack([truth.row, truth.col], axis=1).astype(np.int64), device)
        self._right = pairs[~torch.isin(pairs, self._ignored)]
        self._gain = torch.as_tensor(held.inverse_propensity).to(device).float()
        self.attainable = self._best_gains(held.truth.shape[0])  # gains of the best right labels, [documents, 5]
        self.worth = torch.as_tensor(held.weights).to(device).float()  # of each document

    def right(self, labels: Tensor) -> Tensor:
        """Whether labels [documents, listed] are right."""
        return self._among(labels, self._right)

    def ignored(self, labels: Tensor) -> Tensor:
        """Whether labels [documents, listed] count for nothing; a label below 0 is none."""
        return self._among(labels, self._ignored) | (labels < 0)

    def gains(self, labels: Tensor) -> Tensor:
        """What labels [documents, listed] are worth where they are right: their inverse propensity."""
        return self._gain[labels.clamp(min=0)]

    def precision(self, scores: Tensor, labels: Tensor) -> float:
        """P@1 in percent of scores [documents, listed] for these labels."""
        return 100 * float((self.first(scores, labels) * self.worth).sum() / self.worth.sum())

    def first(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Whether the best of these labels [documents, listed] is right, for each document."""
        best = scores.masked_fill(self.ignored(labels), -torch.inf).argmax(dim=1, keepdim=True)
        return self.right(labels.gather(1, best))[:, 0]

    def figures(self, scores: Tensor, labels: Tensor) -> Figures:
        """P and PSP at 1 and 5 of scores [documents, listed] for these labels."""
        scores = scores.masked_fill(self.ignored(labels), -torch.inf)
        best = labels.gather(1, scores.topk(min(_DEEP, scores.shape[1]), dim=1).indices)
        hits = self.right(best) * self.worth[:, None]
        gains, attainable = hits * self.gains(best), self.attainable * self.worth[:, None]

        def share(depth: int) -> float:
            return 100 * float(gains[:, :depth].sum() / attainable[:, :depth].sum().clamp(min=1e-9))

        first, all_five = (100 * float(hits[:, :depth].sum() / (depth * self.worth.sum())) for depth in (1, _DEEP))
        return Figures(first, all_five, share(1), share(_DEEP))

    def _best_gains(self, documents: int) -> Tensor:
        """The largest gains among the right labels of each document -> [documents, 5], 0 where there are fewer."""
        rows, gains = self._right // self._labels, self._gain[self._right % self._labels]
        order = gains.argsort(descending=True)
        order = order[rows[order].argsort(stable=True)]
        rows, gains = rows[order], gains[order]
        rank = torch.arange(len(rows), device=self.device) - torch.searchsorted(rows, rows)
        best = torch.zeros(documents, _DEEP, device=self.device)
        deep = rank < _DEEP
        best[rows[deep], rank[deep]] = gains[deep]
        return best

    def _keys(self, pairs: NDArray[np.int64], device: torch.device) -> Tensor:
        return torch.as_tensor(np.unique(pairs[:, 0] * self._labels + pairs[:, 1])).to(device)

    def _among(self, labels: Tensor, keys: Tensor) -> Tensor:
        if not len(keys):
            return torch.zeros_like(labels, dtype=torch.bool)
        wanted = torch.arange(len(labels), device=labels.device)[:, None] * self._labels + labels
        at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return (keys[at] == wanted) & (labels >= 0)
