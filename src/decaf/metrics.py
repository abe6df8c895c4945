"""The ruler: precision, nDCG, their propensity-scored kin, recall, coverage and who contributes to precision.

All follow the evaluation that the paper's authors used: means run over all documents, those without labels included;
propensity-scored figures are the mean gain over the mean of the best gain that any prediction could reach; filter
pairs are taken out of predictions and truth alike. All figures are in percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.datasets.parts import Pairs, pair_keys
from decaf.errors import DataError
from decaf.predictions import Predictions, drop_pairs

__all__ = ["Quantile", "evaluate", "frequency_quantiles"]

_BLOCK = 1 << 15  # documents looked at together, so that their keys stay in the processor's cache
_KS = (1, 3, 5)
_DEEP = 20  # of recall and coverage


@dataclass(frozen=True)
class Quantile:
    """Labels of like training frequency, and what they contribute to P@5."""

    labels: int
    mean_frequency: float
    contribution: float  # in percent; all quantiles together make P@5


def evaluate(
    predictions: Predictions,
    truth: sparse.csr_array,
    inverse_propensity: NDArray[np.float64],
    filters: Pairs,
) -> dict[str, float]:
    """P, N, PSP and PSN at 1, 3 and 5, R and C at 20, in percent."""
    predictions, truth = _prepare(predictions, truth, filters)
    hits = _hits(predictions, truth)  # [documents, top]
    weights = np.zeros(hits.shape)
    weights[hits] = inverse_propensity[predictions.ids[hits]]
    best = _best_weights(truth, inverse_propensity, max(_KS))  # [documents, 5]
    lengths = np.diff(truth.indptr)
    discounts = 1 / np.log2(np.arange(max(_KS)) + 2)
    ideal = np.concatenate([[1.0], np.cumsum(discounts)])  # a document without labels divides its 0 by 1
    scores: dict[str, float] = {}
    for k in _KS:
        scores[f"P@{k}"] = _mean(hits[:, :k].sum(axis=1) / k)
    for k in _KS:
        most = ideal[np.minimum(lengths, k)]
        scores[f"N@{k}"] = _mean(hits[:, :k] @ discounts[:k] / most)
    for k in _KS:
        scores[f"PSP@{k}"] = _ratio(weights[:, :k].sum(), best[:, :k].sum())
    for k in _KS:
        most = ideal[np.minimum(lengths, k)]
        gain = np.sum(weights[:, :k] @ discounts[:k] / most)
        scores[f"PSN@{k}"] = _ratio(gain, np.sum(best[:, :k] @ discounts[:k] / most))
    found = hits[:, :_DEEP]
    scores[f"R@{_DEEP}"] = _mean(found.sum(axis=1) / np.maximum(lengths, 1))
    named = _count_distinct(predictions.ids[:, :_DEEP][found], truth.shape[1])
    scores[f"C@{_DEEP}"] = _ratio(named, _count_distinct(truth.indices, truth.shape[1]))
    return scores


def frequency_quantiles(
    predictions: Predictions,
    truth: sparse.csr_array,
    frequency: NDArray[np.int64],
    filters: Pairs,
    *,
    count: int = 5,
) -> list[Quantile]:
    """The contribution to P@5 of labels from rare to frequent, in groups of equal volume (documents times labels)."""
    predictions, truth = _prepare(predictions, truth, filters)
    order = np.argsort(frequency, kind="stable")
    volume = np.cumsum(frequency[order])
    group = np.empty(len(frequency), dtype=np.int64)
    group[order] = np.minimum((volume - frequency[order]) * count // max(int(frequency.sum()), 1), count - 1)
    hits = _hits(predictions, truth)[:, :5]
    share = np.bincount(group[predictions.ids[:, :5][hits]], minlength=count) / (5 * max(len(predictions), 1))
    members = [frequency[group == at] for at in range(count)]
    return [
        Quantile(len(member), float(member.mean()) if len(member) else 0.0, 100 * float(part))
        for member, part in zip(members, share, strict=True)
    ]


def _prepare(predictions: Predictions, truth: sparse.csr_array, filters: Pairs) -> tuple[Predictions, sparse.csr_array]:
    """Both without the filter pairs; at least as wide as the deepest figure."""
    if len(predictions) != truth.shape[0]:
        raise DataError(f"predictions for {len(predictions)} documents and labels for {truth.shape[0]}")
    if predictions.ids.max(initial=-1) >= truth.shape[1]:
        raise DataError(f"label {predictions.ids.max()} is predicted and there are {truth.shape[1]} labels (0-based)")
    predictions = predictions.without(filters, truth.shape[1])
    missing = _DEEP - predictions.top
    if missing > 0:
        predictions = Predictions(
            np.pad(predictions.ids, ((0, 0), (0, missing)), constant_values=-1),
            np.pad(predictions.scores, ((0, 0), (0, missing)), constant_values=-np.inf),
        )
    return predictions, drop_pairs(truth, filters)


def _hits(predictions: Predictions, truth: sparse.csr_array) -> NDArray[np.bool_]:
    """Whether each predicted label is a label of its document."""
    hits = np.zeros(predictions.ids.shape, dtype=bool)
    for start in range(0, len(predictions), _BLOCK):
        ids = predictions.ids[start : start + _BLOCK]
        block = truth[start : start + _BLOCK]
        rows = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
        keys = np.sort(pair_keys(rows, block.indices.astype(np.int64), truth.shape[1]))
        wanted = pair_keys(np.arange(len(ids))[:, None], ids, truth.shape[1])
        if len(keys):
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            hits[start : start + _BLOCK] = (keys[place] == wanted) & (ids >= 0)
    return hits


def _best_weights(truth: sparse.csr_array, inverse_propensity: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The k largest weights among each document's labels, largest first -> [documents, k], 0 where there are fewer."""
    order = np.argsort(-inverse_propensity, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    keys = np.sort(pair_keys(rows, rank[truth.indices], truth.shape[1]))
    weights = inverse_propensity[order[keys - rows * truth.shape[1]]]
    at = np.arange(k)
    there = at < np.diff(truth.indptr)[:, None]
    places = np.where(there, truth.indptr[:-1].astype(np.int64)[:, None] + at, 0)
    return np.where(there, weights[places], 0.0) if len(weights) else np.zeros(there.shape)


def _count_distinct(labels: NDArray[np.integer[Any]], count: int) -> int:
    seen = np.zeros(count, dtype=bool)
    seen[labels] = True
    return int(seen.sum())


def _mean(values: NDArray[np.float64]) -> float:
    return 100 * float(np.mean(values)) if len(values) else 0.0


def _ratio(part: float, whole: float) -> float:
    return 100 * float(part / whole) if whole else 0.0
