"""The baseline that needs no training: labels whose text shares the most weight with the document's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.predictions import Predictions
from decaf.progress import progress

__all__ = ["LabelTextScorer"]

_ROWS = 256


class LabelTextScorer:
    """Scores a label by the inner product of its text's features with the document's."""

    def __init__(self, label_features: sparse.csr_array) -> None:
        self._labels_by_token = sparse.csr_array(label_features.T)  # [tokens, labels]

    @property
    def labels(self) -> int:
        """How many labels there are to choose from."""
        return int(self._labels_by_token.shape[1])

    def top(self, documents: sparse.csr_array, top: int) -> Predictions:
        """The labels that share most weight with each feature row; those that share none are left out."""
        ids = np.full((documents.shape[0], top), -1, dtype=np.int64)
        scores = np.full((documents.shape[0], top), -np.inf, dtype=np.float32)

        def fill(start: int) -> int:
            shared = documents[start : start + _ROWS] @ self._labels_by_token  # [rows, labels], sparse
            for row in range(shared.shape[0]):
                span = slice(shared.indptr[row], shared.indptr[row + 1])
                labels, weights = _best(shared.indices[span], shared.data[span], top)
                ids[start + row, : len(labels)] = labels
                scores[start + row, : len(labels)] = weights
            return int(shared.shape[0])

        with ThreadPoolExecutor(os.cpu_count()) as pool, progress("matching label texts", len(ids)) as advance:
            for done in pool.map(fill, range(0, documents.shape[0], _ROWS)):
                advance(done)
        return Predictions(ids, scores)


def _best(
    labels: NDArray[np.int32], weights: NDArray[np.float32], top: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The `top` largest weights, largest first, and their labels; of equal ones the higher label first."""
    if len(weights) > top:
        least = np.partition(weights, len(weights) - top)[len(weights) - top] if top else np.inf
        kept = weights >= least  # with all that tie at the end: which of them stay is decided by number
        labels, weights = labels[kept], weights[kept]
    order = np.lexsort((labels, weights))[::-1][:top]
    return labels[order], weights[order]
