"""The embedded catalogue: sizes, the split's rule and the filters' rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import decaf.datasets
from decaf.datasets import CATALOGUE, Dataset

from .helpers import lists


@pytest.fixture(scope="module")
def catalogue() -> Dataset:
    return Dataset.load(CATALOGUE)


def test_sizes_are_those_promised(catalogue: Dataset) -> None:
    assert catalogue.train.documents.count == pytest.approx(31_000, rel=0.02)
    assert catalogue.labels.count == pytest.approx(15_000, rel=0.02)
    assert catalogue.test.documents.count == pytest.approx(14_000, rel=0.05)
    assert catalogue.train.truth.shape == (catalogue.train.documents.count, catalogue.labels.count)
    assert catalogue.test.truth.shape == (catalogue.test.documents.count, catalogue.labels.count)


def test_the_file_is_small() -> None:
    assert (Path(decaf.datasets.__file__).parent / "catalogue.json.gz").stat().st_size <= 1_500_000


def test_every_label_has_documents_on_both_sides(catalogue: Dataset) -> None:
    for part in (catalogue.train, catalogue.test):
        assert np.bincount(part.truth.indices, minlength=catalogue.labels.count).min() >= 1


def test_every_document_has_a_label(catalogue: Dataset) -> None:
    for part in (catalogue.train, catalogue.test):
        assert np.diff(part.truth.indptr).min() >= 1


def test_no_label_is_on_more_than_one_package_in_a_hundred(catalogue: Dataset) -> None:
    everywhere = np.concatenate([catalogue.train.truth.indices, catalogue.test.truth.indices])
    assert np.bincount(everywhere).max() <= 636


def test_names_are_there_once(catalogue: Dataset) -> None:
    documents = [*(catalogue.train.documents.ids or []), *(catalogue.test.documents.ids or [])]
    assert len(documents) == len(set(documents)) == catalogue.train.documents.count + catalogue.test.documents.count
    assert len(set(catalogue.labels.ids or [])) == catalogue.labels.count
    assert catalogue.train.documents.texts == catalogue.train.documents.ids


def test_weights_are_all_one(catalogue: Dataset) -> None:
    assert set(catalogue.train.truth.data.tolist()) == set(catalogue.test.truth.data.tolist()) == {1.0}


def test_a_package_is_not_a_label_of_itself(catalogue: Dataset) -> None:
    for part in (catalogue.train, catalogue.test):
        for row, labels in enumerate(lists(part.truth)):
            assert part.documents.id(row) not in {catalogue.labels.id(label) for label in labels}


def test_filters_follow_the_rule(catalogue: Dataset) -> None:
    label_row = {catalogue.labels.id(row): row for row in range(catalogue.labels.count)}
    test_row = {catalogue.test.documents.id(row): row for row in range(catalogue.test.documents.count)}
    train_filters = {
        (row, label_row[name]) for row, name in enumerate(catalogue.train.documents.ids or []) if name in label_row
    }
    test_filters = {(row, label_row[name]) for name, row in test_row.items() if name in label_row}
    for row, labels in enumerate(lists(catalogue.train.truth)):
        source = catalogue.train.documents.id(row)
        targets = [catalogue.labels.id(label) for label in labels]
        test_filters |= {(test_row[t], label_row[source]) for t in targets if t in test_row and source in label_row}
    assert set(map(tuple, catalogue.train.filters.tolist())) == train_filters
    assert set(map(tuple, catalogue.test.filters.tolist())) == test_filters
    assert len(test_filters) == len(catalogue.test.filters)


def test_a_folder_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "train.csv").write_text("text,labels\na,p\n")
    assert Dataset.load("catalogue").labels.count == 1
