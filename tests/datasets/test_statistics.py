"""Figures of a dataset, against figures by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decaf.datasets import Dataset, FrequencyBand, statistics
from decaf.datasets.parts import Items

from .helpers import make_dataset, make_parts, truth_of


def test_counts_by_hand() -> None:
    dataset = make_dataset()
    train = replace(dataset.train, filters=np.array([[0, 1], [2, 2]]))
    made = statistics(replace(dataset, train=train))
    assert (made.name, made.train_documents, made.test_documents, made.labels) == ("small", 3, 2, 3)
    assert made.labels_per_document == pytest.approx(1)
    assert made.documents_per_label == pytest.approx(1)
    assert (made.train_filters, made.test_filters) == (2, 0)


def test_labels_per_document_and_documents_per_label_are_not_confused() -> None:
    made = statistics(Dataset("small", *make_parts([[0], [0, 1], [0], [0, 1]], [], 2)))
    assert made.labels_per_document == pytest.approx(6 / 4)
    assert made.documents_per_label == pytest.approx(6 / 2)


def test_there_are_no_token_figures_without_features() -> None:
    made = statistics(make_dataset())
    assert (made.tokens, made.tokens_per_document, made.tokens_per_label) == (None, None, None)


def test_token_figures_by_hand() -> None:
    dataset = make_dataset()
    documents = replace(dataset.train.documents, features=truth_of([[0, 1], [2], [0, 3, 4]], 7))
    labels = replace(dataset.labels, features=truth_of([[0], [], [1]], 7))
    made = statistics(replace(dataset, train=replace(dataset.train, documents=documents), labels=labels))
    assert made.tokens == 7
    assert made.tokens_per_document == pytest.approx(2)
    assert made.tokens_per_label == pytest.approx(2 / 3)


def test_frequency_bands_by_hand() -> None:
    # Label 0 on no document, label 1 on one, labels 2 and 3 on four, label 4 on all eleven.
    rows = [[4, *([1] if row == 0 else []), *([2, 3] if row < 4 else [])] for row in range(11)]
    bands = statistics(Dataset("small", *make_parts(rows, [[0]], 5))).frequency
    assert [(band.name, band.labels) for band in bands] == [("0", 1), ("1", 1), ("3-5", 2), ("11-30", 1)]
    assert [band.labels_percent for band in bands] == pytest.approx([20, 20, 40, 20])
    assert [band.pairs_percent for band in bands] == pytest.approx([0, 5, 40, 55])


@pytest.mark.parametrize(
    ("frequency", "name"),
    [(2, "2"), (3, "3-5"), (5, "3-5"), (6, "6-10"), (10, "6-10"), (30, "11-30"), (31, "31-100"), (100, "31-100")],
)
def test_edges_of_bands(frequency: int, name: str) -> None:
    dataset = Dataset("small", *make_parts([[0]] * frequency, [], 1))
    assert statistics(dataset).frequency == [FrequencyBand(name, 1, 100.0, 100.0)]


@pytest.mark.parametrize(("frequency", "name"), [(101, "101-1000"), (1000, "101-1000"), (1001, "1001 or more")])
def test_edges_of_large_bands(frequency: int, name: str) -> None:
    dataset = Dataset("small", *make_parts([[0]] * frequency, [], 1))
    assert [band.name for band in statistics(dataset).frequency] == [name]


def test_a_dataset_without_anything_has_figures() -> None:
    made = statistics(Dataset("none", *make_parts([], [], 0)._replace(labels=Items(0))))
    assert (made.labels_per_document, made.documents_per_label, made.frequency) == (0, 0, [])
