"""Documents and their labels, laid out once an epoch as batches of one fixed shape.

A step then needs nothing from the processor: no sizes, no copies. Shorter batches are padded with entries of weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decaf.networks import Rows
from decaf.ranks import Ranks

__all__ = ["Batch", "Batches"]


@dataclass(frozen=True, eq=False)
class Batch:
    """The documents of one step."""

    tokens: Tensor  # [entries] of all documents, one after another
    weights: Tensor  # [entries]
    starts: Tensor  # [documents], where each document's tokens begin
    rows: Tensor  # [pairs], the document of each true label
    columns: Tensor  # [pairs], the label
    true: Tensor  # [pairs], 1, or 0 where there is no pair
    numbers: Tensor  # [documents], which documents they are
    there: Tensor  # [documents], 1, or 0 where there is no document

    @property
    def count(self) -> Tensor:
        """How many documents there are."""
        return self.there.sum()

    def documents(self, ranks: Ranks) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens of the documents that this rank encodes, one after another, where each begins, and weights."""
        if not ranks.many:
            return self.tokens, self.starts, self.weights
        own = ranks.own(len(self.starts))
        bounds = torch.cat([self.starts, self.starts.new_tensor([len(self.tokens)])])
        first, last = bounds[own.start].item(), bounds[own.stop].item()
        return self.tokens[first:last], self.starts[own] - first, self.weights[first:last]


class Batches:
    """An epoch's documents, `size` at a time, in tensors of fixed shape: [steps, ...]."""

    def __init__(self, documents: Rows, positives: Rows, size: int) -> None:
        self._documents, self._positives = documents, positives
        self._size = min(size, len(documents))
        self.steps = -(-len(documents) // self._size)
        self._padding = self.steps * self._size - len(documents)
        self._entries, self._pairs = documents.room(self._size), positives.room(self._size)
        self.device = documents.columns.device
        self._make()

    def __len__(self) -> int:
        return len(self._documents)

    def _make(self) -> None:
        shapes = {"tokens": self._entries, "weights": self._entries, "starts": self._size}
        shapes |= {"rows": self._pairs, "columns": self._pairs, "true": self._pairs}
        shapes |= {"numbers": self._size, "there": self._size}
        real = ("weights", "true", "there")
        self._fields = {
            name: torch.zeros(
                self.steps, width, dtype=torch.float32 if name in real else torch.int64, device=self.device
            )
            for name, width in shapes.items()
        }
        there = self._fields["there"]
        there.fill_(1)
        there[-1, self._size - self._padding :] = 0

    def shuffle(self, order: Tensor) -> bool:
        """Lay the documents out in this order; whether the tensors had to be made anew, larger."""
        documents, positives = self._documents.shuffled(order), self._positives.shuffled(order)
        entries, pairs = self._largest(documents), self._largest(positives)
        grown = entries > self._entries or pairs > self._pairs
        if grown:
            self._entries, self._pairs = max(entries, self._entries), max(pairs, self._pairs)
            self._make()
        self._scatter("tokens", documents.columns, documents.bounds)
        self._scatter("weights", documents.values, documents.bounds)
        self._scatter("columns", positives.columns, positives.bounds)
        self._scatter("true", positives.values, positives.bounds)
        row = torch.arange(len(order), device=self.device) % self._size
        row = torch.repeat_interleave(row, positives.bounds.diff(), output_size=len(positives.columns))
        self._scatter("rows", row, positives.bounds)
        starts = torch.cat([documents.starts, documents.bounds[-1:].expand(self._padding)])
        starts = starts.view(self.steps, self._size)
        self._fields["starts"].copy_(starts - starts[:, :1])
        numbers = torch.cat([order, order.new_zeros(self._padding)])
        self._fields["numbers"].copy_(numbers.view(self.steps, self._size))
        return grown

    def batch(self, step: Tensor) -> Batch:
        """One batch; `step` is a tensor, so that a recorded step can be replayed for another."""
        return Batch(**{name: field.index_select(0, step)[0] for name, field in self._fields.items()})

    def numbers(self, step: int) -> list[int]:
        """Which documents a batch has."""
        there = self._fields["there"][step] > 0
        numbers: list[int] = self._fields["numbers"][step][there].tolist()
        return numbers

    def _begins(self, bounds: Tensor) -> Tensor:
        """Where each batch begins, and the last ends."""
        return torch.cat([bounds[: -1 : self._size], bounds[-1:]])

    def _largest(self, rows: Rows) -> int:
        return int(self._begins(rows.bounds).diff().max())

    def _scatter(self, name: str, entries: Tensor, bounds: Tensor) -> None:
        """Each batch's entries to the beginning of its line, zeros behind."""
        field = self._fields[name].zero_()
        begins = self._begins(bounds)
        line = torch.arange(self.steps, device=self.device)
        line = torch.repeat_interleave(line, begins.diff(), output_size=len(entries))
        field[line, torch.arange(len(entries), device=self.device) - begins[line]] = entries
