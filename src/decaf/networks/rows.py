"""Sparse rows on a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of (column, value) entries one after another."""

    bounds: Tensor  # [rows + 1], where each begins and the last ends
    columns: Tensor  # [entries]
    values: Tensor  # [entries]

    @classmethod
    def of(cls, matrix: sparse.csr_array, device: torch.device) -> Rows:
        """The rows of a matrix."""
        return cls(
            torch.as_tensor(matrix.indptr.astype(np.int64)).to(device),
            torch.as_tensor(matrix.indices.astype(np.int64)).to(device),
            torch.as_tensor(matrix.data.astype(np.float32)).to(device),
        )

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def starts(self) -> Tensor:
        """Where each row begins."""
        return self.bounds[:-1]

    def shuffled(self, order: Tensor) -> Rows:
        """The rows in another order."""
        lengths = self.bounds.diff()[order]
        bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        shift = torch.repeat_interleave(self.bounds[order] - bounds[:-1], lengths, output_size=len(self.columns))
        place = shift + torch.arange(len(self.columns), device=order.device)
        return Rows(bounds, self.columns[place], self.values[place])
