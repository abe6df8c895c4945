"""The repository's sparse layouts: which files belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from decaf.config import SplitSettings
from decaf.datasets import Dataset, Items, Part
from decaf.datasets.parts import no_pairs
from decaf.datasets.sparse_files import read_single_files, read_sparse, single_files, sparse_files
from decaf.errors import DataError

from .helpers import FOLDERS, assert_same, assert_same_features, lists, make_dataset, truth_of, write_files


def _feature_set() -> Dataset:
    """Ready features alone: neither ids nor texts."""

    def part(rows: list[list[int]], truth: list[list[int]]) -> Part:
        return Part(Items(len(rows), features=truth_of(rows, 5)), truth_of(truth, 3), no_pairs())

    train = part([[0, 1], [2], [], [4]], [[0], [0, 1], [2], []])
    return Dataset("plain", train, part([[3], [1]], [[1], [2]]), Items(3, features=truth_of([[0], [1], [2]], 5)))


@pytest.mark.parametrize("layout", ["sparse", "sparse.gz"])
def test_reads_features_labels_and_texts(tmp_path: Path, layout: str) -> None:
    parts = read_sparse(write_files(tmp_path, FOLDERS[layout]))
    assert parts.train.documents.need_features().toarray().tolist() == [[1, 0, 0, 0.5], [0, 2, 0, 0]]
    assert parts.train.truth.toarray().tolist() == [[1, 0, 0.5], [0, 0, 0]]
    assert parts.train.documents.ids == ["a", "b"]
    assert parts.test.documents.need_features().toarray().tolist() == [[0, 0, 1, 0]]
    assert parts.test.documents.texts is None
    assert parts.labels.texts == ["ex", "why", "zed"]
    assert lists(parts.labels.need_features()) == [[0], [1], [2]]


@pytest.mark.parametrize("layout", ["single", "single.gz"])
def test_reads_one_file_for_each_part(tmp_path: Path, layout: str) -> None:
    parts = read_single_files(write_files(tmp_path, FOLDERS[layout]))
    assert parts.train.documents.need_features().toarray().tolist() == [[1, 0, 0, 0.5], [0, 2, 0, 0]]
    assert parts.train.truth.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert parts.train.documents.texts == ["one", "two"]
    assert parts.test.truth.toarray().tolist() == [[0, 1, 0]]
    assert parts.labels.texts == ["ex", "why", "zed"]
    assert parts.labels.ids is None


def test_the_files_of_another_layout_are_not_claimed(tmp_path: Path) -> None:
    sparse_folder = write_files(tmp_path / "sparse", FOLDERS["sparse"])
    single_folder = write_files(tmp_path / "single", FOLDERS["single"])
    assert sparse_files(single_folder) == []
    assert single_files(sparse_folder) == []
    assert {path.name for path in sparse_files(sparse_folder)} == {
        name for name in FOLDERS["sparse"] if name.endswith((".txt", ".jsonl")) and "filter" not in name
    }


@pytest.mark.parametrize("layout", ["sparse", "single"])
def test_a_set_without_test_files_has_an_empty_test_part(tmp_path: Path, layout: str) -> None:
    files = {name: content for name, content in FOLDERS[layout].items() if not name.startswith(("tst", "test"))}
    test = Dataset.load(write_files(tmp_path, {n: c for n, c in files.items() if "filter" not in n})).test
    assert test.truth.shape == (0, 3)
    assert test.documents.need_features().shape == (0, 4)


def test_label_texts_come_from_the_plain_list_where_there_is_no_other(tmp_path: Path) -> None:
    files = {name: content for name, content in FOLDERS["sparse"].items() if name != "lbl_X.jsonl"}
    labels = read_sparse(write_files(tmp_path, files | {"Yf.txt": b"ex\r\n\r\nz  d\n"})).labels
    assert labels.texts == ["ex", "", "z  d"]
    assert labels.ids is None


@pytest.mark.parametrize("layout", ["sparse", "single"])
def test_a_set_without_texts_is_read_back_without_texts(tmp_path: Path, layout: str) -> None:
    dataset = _feature_set()
    dataset.save(tmp_path / "set", layout)
    loaded = Dataset.load(tmp_path / "set")
    assert_same(loaded, dataset)
    for left, right in zip(
        (loaded.train.documents, loaded.test.documents, loaded.labels),
        (dataset.train.documents, dataset.test.documents, dataset.labels),
        strict=True,
    ):
        assert_same_features(left, right)


def test_a_set_with_ids_alone_gets_no_texts_by_a_round_trip(tmp_path: Path) -> None:
    dataset = _feature_set().validation(SplitSettings(validation=0.5))  # rows taken out keep their numbers as ids
    dataset.save(tmp_path / "set", "sparse")
    loaded = Dataset.load(tmp_path / "set")
    assert loaded.train.documents.ids == dataset.train.documents.ids
    assert loaded.train.documents.texts is None


def test_a_label_text_of_several_lines_stays_one_line_in_the_plain_list(tmp_path: Path) -> None:
    dataset = _feature_set()
    labels = Items(3, texts=["one\ntwo", "three", "four\r\nfive"])
    dataset = Dataset("plain", dataset.train, dataset.test, labels)
    dataset.save(tmp_path / "set", "sparse")
    assert (tmp_path / "set" / "Yf.txt").read_text() == "one two\nthree\nfour five\n"
    assert Dataset.load(tmp_path / "set").labels.texts == labels.texts


def test_an_empty_part_needs_no_features_to_be_written(tmp_path: Path) -> None:
    dataset = _feature_set()
    nothing = Part(Items(0, [], []), truth_of([], 3).reshape((0, 3)), no_pairs())
    Dataset("plain", dataset.train, nothing, dataset.labels).save(tmp_path / "set", "sparse")
    assert Dataset.load(tmp_path / "set").test.truth.shape == (0, 3)


def test_texts_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds features and small has none"):
        make_dataset().save(tmp_path / "set", "sparse")
    assert list(tmp_path.iterdir()) == []
