"""What is known of each label by tokens, for the blend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from decaf.modules.problem import Problem
from decaf.networks import Words

if TYPE_CHECKING:
    from decaf.modules.linear import Linear

__all__ = ["WIDTH", "label_words"]

WIDTH = 32  # tokens kept of a label
_LABELS = 1 << 15  # summed at a time


def label_words(problem: Problem, linear: Linear | None, device: torch.device) -> Words:
    """The sum of each label's documents, its heaviest tokens alone: of unit length, and as shares of all documents.

    With it go the linear classifiers, where there are any.
    """
    by_label, documents = sparse.csr_array(problem.truth.T), problem.documents
    total = np.bincount(documents.indices, weights=np.abs(documents.data), minlength=documents.shape[1])
    tokens, sums = np.zeros((0, WIDTH), dtype=np.int32), np.zeros((0, WIDTH), dtype=np.float32)
    for start in range(0, by_label.shape[0], _LABELS):
        found = _heaviest(sparse.csr_array(by_label[start : start + _LABELS] @ documents))
        tokens, sums = np.concatenate([tokens, found[0]]), np.concatenate([sums, found[1]])
    width = max(1, int(np.count_nonzero(sums, axis=1).max(initial=0)))
    tokens, sums = tokens[:, :width], sums[:, :width]
    length = np.sqrt((sums.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    weights, shares = sums / np.maximum(length, 1e-30), sums / np.maximum(total[tokens], 1e-30)
    arrays = (tokens, weights.astype(np.float32), shares.astype(np.float32), *(linear or _none(len(tokens))))
    return Words(*(torch.as_tensor(np.ascontiguousarray(array)).to(device) for array in arrays))


def _none(labels: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """Classifiers that say nothing."""
    return np.zeros((labels, 1), np.int32), np.zeros((labels, 1), np.float32), np.zeros(labels, np.float32)


def _heaviest(sums: sparse.csr_array) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The columns and values of the largest entries of each row, largest first -> [rows, width] each."""
    lengths = np.diff(sums.indptr)
    rows = np.repeat(np.arange(sums.shape[0]), lengths)
    rank = np.arange(len(rows)) - np.repeat(sums.indptr[:-1], lengths)
    order = np.lexsort((sums.indices, -sums.data, rows))[rank < WIDTH]
    place = rows[order], rank[rank < WIDTH]
    tokens = np.zeros((sums.shape[0], WIDTH), dtype=np.int32)
    values = np.zeros((sums.shape[0], WIDTH), dtype=np.float32)
    tokens[place], values[place] = sums.indices[order], sums.data[order]
    return tokens, values
