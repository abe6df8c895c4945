"""Numbers that are not finite, and the documents that they came with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from decaf.errors import TrainingError

__all__ = ["NotFiniteError", "finite"]

_NAMED = 8  # documents in a message


@torch.no_grad()
def finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are finite."""
    ends = (tensor.aminmax() for tensor in tensors.values() if tensor.numel() and tensor.is_floating_point())
    return all(math.isfinite(low) and math.isfinite(high) for low, high in ends)


class NotFiniteError(TrainingError):
    """A loss or weights that are not finite, and the documents of the step that they came with."""

    def __init__(
        self, name: str, what: str, place: tuple[int, int, int], documents: list[int], kept: int, *, sure: bool
    ) -> None:
        self.name, self.documents = name, documents
        self.epoch, self.step, self._steps = place[0] + 1, place[1] + 1, place[2]
        self._what, self._kept, self._sure = what, kept, sure
        super().__init__(self.told([str(number) for number in documents]))

    def told(self, titles: Sequence[str], rate: str = "its rate") -> str:
        """What happened and what to do, with these titles of the documents."""
        more = len(titles) - _NAMED
        named = ", ".join(titles[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        where = f"{self.name}: {self._what} not finite in epoch {self.epoch}, step {self.step} of {self._steps}"
        since = "" if self._sure else " or a step before"
        after = f": it goes on after epoch {self._kept}" if self._kept else ""
        return f"{where}{since}, with documents {named}; lower {rate} and run again{after}"
