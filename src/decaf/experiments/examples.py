"""A few test documents with the five best labels of each system: what the figures mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.datasets import Dataset
from decaf.predictions import Predictions, drop_pairs

__all__ = ["examples", "never_together"]

_TOP = 5
_EACH = 2  # documents of a kind
_LABELS = 3  # that a document has at the least
_LONGEST = 60  # characters of a text, to be read in a table


def examples(dataset: Dataset, systems: Mapping[str, Predictions], ours: str, seed: int = 0) -> list[dict[str, Any]]:
    """Documents where our system finds more than the best of the others, as many, and fewer; a few of each, drawn.

    A right label is marked as new where it was never given together with another true label of the document in
    training: it cannot have been learned from their company.
    """
    documents = dataset.test.documents
    if ours not in systems or len(systems) < 2 or not documents.count:
        return []
    truth = drop_pairs(dataset.test.truth, dataset.test.filters)  # what counts for nothing is not to be found
    right = {name: _right(found, truth) for name, found in systems.items()}
    hits = {name: of.sum(axis=1) for name, of in right.items()}
    best = np.max([hits[name] for name in systems if name != ours], axis=0)
    fit = np.diff(truth.indptr) >= _LABELS
    fit &= np.array([len(documents.text(row)) <= _LONGEST for row in range(documents.count)])
    kinds = {"found more": hits[ours] > best, "found as many": hits[ours] == best, "found fewer": hits[ours] < best}
    rng = np.random.default_rng([seed, 7])
    shown: list[dict[str, Any]] = []
    judged = fit & (np.maximum(hits[ours], best) > 0)
    for kind, chosen in kinds.items():
        rows = np.flatnonzero(judged & chosen)
        some = np.sort(rng.choice(rows, min(_EACH, len(rows)), replace=False)).tolist()
        share = round(100 * len(rows) / max(1, int(judged.sum())))
        shown += [_example(dataset, truth, systems, right, row) | {"kind": kind, "share": share} for row in some]
    return shown


def _right(found: Predictions, truth: sparse.csr_array) -> NDArray[np.bool_]:
    """Which of the first labels are true -> [documents, 5]."""
    ids = found.ids[:, :_TOP]
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    there = np.asarray(truth[rows, ids.clip(min=0).ravel()]).ravel() > 0
    return there.reshape(ids.shape) & (ids >= 0)


def _example(
    dataset: Dataset,
    truth: sparse.csr_array,
    systems: Mapping[str, Predictions],
    right: Mapping[str, NDArray[np.bool_]],
    row: int,
) -> dict[str, Any]:
    true = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
    new = never_together(true, dataset.train.truth)
    return {
        "document": dataset.test.documents.text(row),
        "true": [dataset.labels.text(label) for label in true.tolist()],
        "systems": {
            name: [
                {"label": dataset.labels.text(label), "right": bool(right[name][row, place]), "new": label in new}
                for place, label in enumerate(found.ids[row, :_TOP].tolist())
                if label >= 0
            ]
            for name, found in systems.items()
        },
    }


def never_together(labels: NDArray[np.integer[Any]], truth: sparse.csr_array) -> set[int]:
    """Those of a document's true labels that no training document has together with another of them."""
    if len(labels) < 2:
        return set()
    some = truth[:, labels]
    company = (some.T @ some).toarray()
    np.fill_diagonal(company, 0)
    return set(labels[company.sum(axis=1) == 0].tolist())
