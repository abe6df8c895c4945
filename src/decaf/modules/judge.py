"""Judging held-out documents while a module learns."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decaf.modules.problem import Held
from decaf.networks import Instance, Parts, Rows

__all__ = ["DOCUMENTS", "Judge", "held_parts"]

DOCUMENTS = 256  # held-out documents that are scored at a time


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

    def right(self, labels: Tensor) -> Tensor:
        """Whether labels [documents, listed] are right."""
        return self._among(labels, self._right)

    def ignored(self, labels: Tensor) -> Tensor:
        """Whether labels [documents, listed] count for nothing; a label below 0 is none."""
        return self._among(labels, self._ignored) | (labels < 0)

    def precision(self, scores: Tensor, labels: Tensor) -> float:
        """P@1 in percent of scores [documents, listed] for these labels."""
        best = scores.masked_fill(self.ignored(labels), -torch.inf).argmax(dim=1, keepdim=True)
        return 100 * float(self.right(labels.gather(1, best)).float().mean())

    def rare_precision(self, scores: Tensor, labels: Tensor) -> float:
        """PSP@1 in percent of scores [documents, listed] for these labels."""
        best = labels.gather(1, scores.masked_fill(self.ignored(labels), -torch.inf).argmax(dim=1, keepdim=True))
        found = (self.right(best) * self._gain[best]).sum()
        rows, columns = self._right // self._labels, self._right % self._labels
        attainable = torch.zeros(len(labels), device=labels.device)
        attainable.scatter_reduce_(0, rows, self._gain[columns], "amax")
        return 100 * float(found / attainable.sum().clamp(min=1e-9))

    def _keys(self, pairs: NDArray[np.int64], device: torch.device) -> Tensor:
        return torch.as_tensor(np.unique(pairs[:, 0] * self._labels + pairs[:, 1])).to(device)

    def _among(self, labels: Tensor, keys: Tensor) -> Tensor:
        if not len(keys):
            return torch.zeros_like(labels, dtype=torch.bool)
        wanted = torch.arange(len(labels), device=labels.device)[:, None] * self._labels + labels
        at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        return (keys[at] == wanted) & (labels >= 0)
