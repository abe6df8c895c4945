"""Pairs turned round: a link from one text to another often holds the other way too."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.modules.problem import Problem

__all__ = ["turned_pairs"]

log = logging.getLogger(__name__)

_MOST = 10  # pairs of one label: what many link to seldom links back
_SHARE = 0.25  # of the pairs that can be checked must be true for the others to be believed
_ENOUGH = 50  # pairs to check by


def turned_pairs(problem: Problem) -> sparse.csr_array:
    """Labels' texts as documents of the labels whose texts they were given to -> [labels, labels], ones.

    Where a document has the text of a label, its own labels may be documents of that one. How often that is so shows
    on those that are training documents themselves; the pairs are for the others, or for none.
    """
    same, written = _same_text(problem)
    turned = sparse.csr_array(problem.truth.T @ same)
    turned.setdiag(0)
    turned.eliminate_zeros()
    turned.data[:] = 1
    few = np.diff(turned.indptr) <= _MOST
    turned = _rows_where(turned, few & (np.diff(problem.labels.indptr) > 0))
    checked = sparse.csr_array(same @ turned)
    share = float(checked.multiply(problem.truth).sum()) / max(1, checked.nnz)
    if checked.nnz < _ENOUGH or share < _SHARE:
        return sparse.csr_array(problem.labels.shape[:1] * 2, dtype=np.float32)
    turned = _rows_where(turned, ~written)
    log.info("%d pairs turned round: %.0f %% of those that can be checked are true", turned.nnz, 100 * share)
    return turned


def _same_text(problem: Problem) -> tuple[sparse.csr_array, NDArray[np.bool_]]:
    """Which label has the very tokens of a document, where it is the only one; which labels have those of any.

    -> [documents, labels], ones; [labels]
    """
    label_of: dict[bytes, int] = {}
    of_labels, of_documents = _keys(problem.labels), _keys(problem.documents)
    for label, key in enumerate(of_labels):
        label_of[key] = -1 if key in label_of else label
    label_of.pop(b"", None)
    found = np.array([label_of.get(key, -1) for key in of_documents], dtype=np.int64)
    documents, all_keys = np.flatnonzero(found >= 0), set(of_documents)
    ones = np.ones(len(documents), dtype=np.float32)
    same = sparse.csr_array((ones, (documents, found[documents])), shape=problem.truth.shape)
    return same, np.array([key in all_keys for key in of_labels], dtype=bool)


def _keys(rows: sparse.csr_array) -> list[bytes]:
    """What each row holds, as bytes."""
    rows = rows.sorted_indices()
    bounds = rows.indptr.tolist()
    columns, values = rows.indices.astype(np.int32), rows.data.astype(np.float32)
    return [columns[start:end].tobytes() + values[start:end].tobytes() for start, end in pairwise(bounds)]


def _rows_where(matrix: sparse.csr_array, wanted: NDArray[np.bool_]) -> sparse.csr_array:
    """The matrix with all other rows empty."""
    return sparse.csr_array(sparse.diags_array(wanted.astype(np.float32)) @ matrix)
