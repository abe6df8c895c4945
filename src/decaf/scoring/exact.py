"""The exact scorer: every cluster looked at, every shortlisted label scored, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from decaf.model import Model
from decaf.networks import Instance, Rows
from decaf.predictions import Predictions
from decaf.progress import progress
from decaf.scoring.scorer import Changes, check_tokens

__all__ = ["CANDIDATES", "ExactScorer", "averaged"]

CANDIDATES = 200  # labels of each instance that can win together
_ENTRIES = 1 << 24  # scores held at a time


class ExactScorer:
    """Averages the probabilities that the instances of a model give to labels."""

    def __init__(
        self, model: Model, device: torch.device, *, tail: float | None = None, changes: Changes | None = None
    ) -> None:
        self._model, self._device, self._tail = model, device, model.tail(tail)
        if changes is None:
            made = [(instance, np.arange(len(model.kept))) for instance in model.instances]
            self._kept, self._labels = model.kept, model.labels.count
        else:
            given = zip(model.packed, changes.overlays, strict=True)
            close_ups = [packed.close_up(overlay) for packed, overlay in given]
            made = [(packed.instance(), numbers) for packed, numbers in close_ups]
            self._kept, self._labels = changes.rows, changes.labels
        self._instances = [instance.to(device) for instance, _ in made]
        self._numbers = [torch.as_tensor(numbers).to(device) for _, numbers in made]
        widest = max(map(_scores_each, self._instances))
        self._documents = max(1, min(2048, _ENTRIES // max(1, widest)))
        self._tokens = model.tokens

    @property
    def labels(self) -> int:
        """How many labels there are to choose from."""
        return self._labels

    def top(self, documents: sparse.csr_array, top: int, *, tail: float | None = None) -> Predictions:
        """The most probable labels of each feature row, with their probabilities; leaning as said here or before."""
        at = self._tail if tail is None else self._model.tail(tail)
        check_tokens(documents, self._tokens)
        ids = np.full((documents.shape[0], top), -1, dtype=np.int64)
        scores = np.full((documents.shape[0], top), -np.inf, dtype=np.float32)
        if not any(len(numbers) for numbers in self._numbers):
            return Predictions(ids, scores)  # all labels are hidden
        with progress("predicting", documents.shape[0]) as advance, torch.inference_mode():
            for start in range(0, documents.shape[0], self._documents):
                part = sparse.csr_array(documents[start : start + self._documents])
                labels, chances = self._top(Rows.of(part, self._device), top, at)
                there = np.isfinite(chances) & (np.diff(part.indptr) > 0)[:, None]  # an empty text has no labels
                span = np.s_[start : start + len(labels), : labels.shape[1]]
                ids[span] = np.where(there, self._kept[np.where(there, labels, 0)], -1)
                scores[span] = np.where(there, chances, -np.inf)
                advance(len(labels))
        return Predictions(ids, scores)

    def _top(self, rows: Rows, top: int, tail: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        found = []
        for instance, numbers in zip(self._instances, self._numbers, strict=True):
            labels, chances = instance.top(rows.columns, rows.starts, rows.values, max(top, CANDIDATES), tail=tail)
            found.append((numbers[labels.clamp(min=0)].masked_fill(labels < 0, -1), chances))
        labels, chances = averaged(found)
        return labels[:, :top].cpu().numpy(), chances[:, :top].cpu().numpy()


def _scores_each(instance: Instance) -> int:
    """Scores that a document takes: of all clusters, then of all labels, or of eight times those that are listed."""
    clusters, width = instance.shortlister.members.shape
    listed = min(instance.beam, clusters) * width
    return int(max(clusters, min(len(instance.ranker.bias), 8 * listed)))


def averaged(found: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Labels and logarithms of chances of each instance -> labels and mean chances of all, best first.

    Of equal ones the higher label goes first; -inf for none.
    """
    labels, order = torch.cat([ids for ids, _ in found], dim=1).sort(dim=1, descending=True)
    chances = (torch.cat([scores.exp() for _, scores in found], dim=1) / len(found)).gather(1, order)
    new = torch.ones_like(labels, dtype=torch.bool)
    new[:, 1:] = labels[:, 1:] != labels[:, :-1]
    group = new.cumsum(dim=1) - 1
    sums = torch.zeros_like(chances).scatter_add_(1, group, chances)
    names = torch.full_like(labels, -1).scatter_(1, group, labels)
    sums = sums.masked_fill(names < 0, -torch.inf)
    sums, order = sums.sort(dim=1, descending=True, stable=True)
    return names.gather(1, order), sums
