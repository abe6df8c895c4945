"""Sparse rows on a device."""

from __future__ import annotations

from collections.abc import Iterator
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

    @classmethod
    def in_parts(cls, matrix: sparse.csr_array, size: int, device: torch.device) -> Iterator[Rows]:
        """The rows of a matrix, so many at a time."""
        return (cls.of(matrix[start : start + size], device) for start in range(0, matrix.shape[0], size))

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

    def room(self, count: int) -> int:
        """Entries that hardly any choice of so many rows exceeds."""
        lengths = self.bounds.diff().double()
        count = min(count, len(lengths))
        likely = int(float(lengths.mean()) * count + 6 * float(lengths.std(correction=0)) * count**0.5) + 1
        return max(1, min(likely, int(lengths.topk(count).values.sum())))

    def padded(self, rows: Tensor, room: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Columns of these rows one after another, where each row begins, and values; zeros fill up the room.

        Without a room there are as many entries as needed. What does not fit into the room is left out, at the end.
        """
        begins, lengths = self.bounds[rows], self.bounds.diff()[rows]
        ends = lengths.cumsum(0)
        starts = ends - lengths
        if room is None:
            row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
            place = torch.arange(len(row), device=rows.device) + (begins - starts)[row]
            return self.columns[place], starts, self.values[place]
        if not len(self.columns):
            nothing = torch.zeros(room, device=rows.device)
            return nothing.long(), starts, nothing
        entry = torch.arange(room, device=rows.device)
        row = torch.searchsorted(ends, entry, right=True).clamp(max=len(rows) - 1)
        place = (entry + (begins - starts)[row]).clamp(max=len(self.columns) - 1)
        there = entry < ends[-1]
        return self.columns[place] * there, starts.clamp(max=room), self.values[place] * there
