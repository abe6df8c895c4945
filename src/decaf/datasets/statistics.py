"""What a dataset is like: the columns of the paper's statistics table, and how often labels occur."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decaf.datasets.dataset import Dataset
from decaf.datasets.parts import Items

__all__ = ["FrequencyBand", "Statistics", "statistics"]

_EDGES = (0, 1, 2, 3, 6, 11, 31, 101, 1001)  # first training frequency of each band


@dataclass(frozen=True)
class FrequencyBand:
    """Labels with so many training documents."""

    name: str
    labels: int
    labels_percent: float
    pairs_percent: float  # of all (document, label) pairs in training


@dataclass(frozen=True)
class Statistics:
    """One row of the paper's statistics table, and the label-frequency profile."""

    name: str
    train_documents: int
    labels: int
    tokens: int | None
    test_documents: int
    labels_per_document: float
    documents_per_label: float
    tokens_per_document: float | None
    tokens_per_label: float | None
    train_filters: int
    test_filters: int
    frequency: list[FrequencyBand]


def statistics(dataset: Dataset) -> Statistics:
    """Count; token figures are there where the dataset has features (see decaf.with_features)."""
    documents, pairs = dataset.train.documents, dataset.train.truth.nnz
    features = documents.features
    return Statistics(
        name=dataset.name,
        train_documents=documents.count,
        labels=dataset.labels.count,
        tokens=None if features is None else int(features.shape[1]),
        test_documents=dataset.test.documents.count,
        labels_per_document=pairs / max(documents.count, 1),
        documents_per_label=pairs / max(dataset.labels.count, 1),
        tokens_per_document=_entries_per_row(documents),
        tokens_per_label=_entries_per_row(dataset.labels),
        train_filters=len(dataset.train.filters),
        test_filters=len(dataset.test.filters),
        frequency=_bands(dataset),
    )


def _entries_per_row(items: Items) -> float | None:
    return None if items.features is None else items.features.nnz / max(items.count, 1)


def _bands(dataset: Dataset) -> list[FrequencyBand]:
    frequency = dataset.frequency
    band = np.searchsorted(_EDGES, frequency, side="right") - 1
    bands = []
    for at, first in enumerate(_EDGES):
        last = _EDGES[at + 1] - 1 if at + 1 < len(_EDGES) else None
        name = f"{first}" if first == last else f"{first}-{last}" if last is not None else f"{first} or more"
        inside = band == at
        if np.any(inside):
            labels_percent = 100 * float(np.mean(inside))
            pairs_percent = 100 * float(frequency[inside].sum() / max(frequency.sum(), 1))
            bands.append(FrequencyBand(name, int(inside.sum()), labels_percent, pairs_percent))
    return bands
