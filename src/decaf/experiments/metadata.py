"""A peer's scores combined with label text, as the paper's appendix A.5 does, the weight chosen on validation data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.datasets import Dataset
from decaf.metrics import evaluate
from decaf.predictions import Predictions
from decaf.scoring import LabelTextScorer

__all__ = ["WEIGHTS", "best_weight", "combined"]

WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))  # of the peer's own score, alpha in the paper


def combined(scores: Predictions, dataset: Dataset, weights: Sequence[float]) -> Iterator[Predictions]:
    """For each weight a: labels by a * score + (1 - a) * sigmoid(<x, z>), of those that either of the two finds.

    A label that the peer does not name has the score 0. The dataset has features; its filter is applied to both.
    """
    documents, labels = dataset.test.documents.need_features(), dataset.labels.need_features()
    filters, count = dataset.test.filters, dataset.labels.count
    more = int(np.bincount(filters[:, 0], minlength=1).max())  # so that enough are left of every document
    scores = scores.without(filters, count)
    matched = LabelTextScorer(labels).top(documents, scores.top + more).without(filters, count)
    ids, own = _union(scores, matched)
    text = _sigmoid(_products(documents, labels, ids))
    return (_ranked(ids, weight * own + (1 - weight) * text, scores.top) for weight in weights)


def best_weight(scores: Predictions, dataset: Dataset) -> tuple[float, dict[float, float]]:
    """The weight with the highest P@1 on these documents, the larger of equals, and P@1 of all."""
    truth, filters = dataset.test.truth, dataset.test.filters
    precision = {
        weight: evaluate(of, truth, dataset.inverse_propensity, filters)["P@1"]
        for weight, of in zip(WEIGHTS, combined(scores, dataset, WEIGHTS), strict=True)
    }
    return max(precision, key=lambda weight: (precision[weight], weight)), precision


def _union(first: Predictions, second: Predictions) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The labels of both, each once (-1 elsewhere), and their scores in the first or 0."""
    known = (second.ids[:, :, None] == first.ids[:, None, :]).any(axis=2)
    ids = np.concatenate([first.ids, np.where(known, -1, second.ids)], axis=1)
    own = np.zeros(ids.shape)
    own[:, : first.top] = np.where(first.ids >= 0, first.scores, 0.0)
    return ids, own


def _products(documents: sparse.csr_array, labels: sparse.csr_array, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """<x, z> of each document with each of its labels; 0 where there is none."""
    found = np.zeros(ids.shape)
    size = 1 + 2_000_000 // max(1, ids.shape[1])
    for start in range(0, len(ids), size):
        part = slice(start, start + size)
        there = ids[part] >= 0
        rows = np.nonzero(there)[0]
        product = documents[start + rows].multiply(labels[ids[part][there]])
        found[part][there] = np.asarray(product.sum(axis=1)).ravel()
    return found


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-values)), dtype=np.float64)


def _ranked(ids: NDArray[np.int64], scores: NDArray[np.float64], top: int) -> Predictions:
    """The best of the labels, best first; of equals, those of the peer."""
    scores = np.where(ids >= 0, scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    best = np.take_along_axis(scores, order, axis=1).astype(np.float32)
    return Predictions(np.take_along_axis(ids, order, axis=1), best)
