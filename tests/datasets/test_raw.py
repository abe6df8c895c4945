"""The repository's raw text layout."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from decaf.datasets import Dataset, Items
from decaf.datasets.raw import raw_files, read_items, read_raw, write_raw

from .helpers import FOLDERS, assert_same_parts, json_lines, lists, make_dataset, write_files


@pytest.mark.parametrize("layout", ["raw", "raw.gz"])
def test_reads_plain_and_gzipped_files(tmp_path: Path, layout: str) -> None:
    parts = read_raw(write_files(tmp_path, FOLDERS[layout]))
    assert parts.train.documents.ids == ["a", "b"]
    assert parts.train.documents.texts == ["one", "two"]
    assert parts.train.documents.contents == ["", "more"]
    assert parts.train.truth.toarray().tolist() == [[1, 0, 0.5], [0, 0, 0]]
    assert parts.test.documents.contents is None
    assert parts.test.truth.toarray().tolist() == [[0, 1, 0]]
    assert parts.labels.ids == ["x", "y", "z"]
    assert parts.labels.texts == ["ex", "why", "zed"]


def test_truth_is_float32_with_sorted_rows(tmp_path: Path) -> None:
    write_files(tmp_path, FOLDERS["raw"])
    record = {"uid": "a", "title": "", "target_ind": [2, 0], "target_rel": [0.25, 4]}
    (tmp_path / "trn.json").write_bytes(json_lines(record))
    truth = read_raw(tmp_path).train.truth
    assert truth.dtype == "float32"
    assert lists(truth) == [[0, 2]]
    assert truth.data.tolist() == [4, 0.25]


def test_a_weight_of_zero_is_no_label(tmp_path: Path) -> None:
    write_files(tmp_path, FOLDERS["raw"])
    record = {"uid": "a", "title": "", "target_ind": [0, 1], "target_rel": [0, 1]}
    (tmp_path / "trn.json").write_bytes(json_lines(record))
    assert lists(read_raw(tmp_path).train.truth) == [[1]]


def test_a_set_without_a_test_file_has_an_empty_test_part(tmp_path: Path) -> None:
    write_files(tmp_path, {name: FOLDERS["raw"][name] for name in ("trn.json", "lbl.json")})
    test = read_raw(tmp_path).test
    assert test.documents.count == 0
    assert test.truth.shape == (0, 3)


def test_whole_number_ids_become_texts(tmp_path: Path) -> None:
    path = tmp_path / "lbl.json"
    path.write_bytes(json_lines({"uid": 12, "title": "ex"}))
    assert read_items(path).ids == ["12"]


def test_byte_order_mark_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lbl.json"
    path.write_bytes(b"\xef\xbb\xbf" + json_lines({"uid": "x", "title": "ex"}) + b"\r\n \n")
    assert read_items(path).texts == ["ex"]


def test_the_plain_file_wins_over_the_gzipped_one(tmp_path: Path) -> None:
    write_files(tmp_path, {name: FOLDERS["raw"][name] for name in ("trn.json", "lbl.json")})
    (tmp_path / "lbl.json.gz").write_bytes(gzip.compress(b"{}", mtime=0))
    assert [path.name for path in raw_files(tmp_path)] == ["trn.json", "lbl.json"]


@pytest.mark.parametrize("missing", ["trn.json", "lbl.json"])
def test_a_folder_without_training_or_label_file_is_of_another_layout(tmp_path: Path, missing: str) -> None:
    write_files(tmp_path, {name: content for name, content in FOLDERS["raw"].items() if name != missing})
    assert raw_files(tmp_path) == []


def test_the_same_dataset_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_raw(make_dataset().parts, tmp_path / name)
    for name in ("trn.json.gz", "tst.json.gz", "lbl.json.gz"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    parts = make_dataset().parts
    write_raw(parts, tmp_path)
    assert_same_parts(read_raw(tmp_path), parts)


def test_weights_up_to_the_largest_float32_are_read_back(tmp_path: Path) -> None:
    dataset = make_dataset()
    dataset.train.truth.data[:] = 3.4028234e38
    dataset.save(tmp_path / "set", "raw")
    assert Dataset.load(tmp_path / "set").train.truth.data.tolist() == dataset.train.truth.data.tolist()


def test_items_without_ids_are_written_with_their_row_numbers(tmp_path: Path) -> None:
    parts = make_dataset().parts
    write_raw(parts._replace(labels=Items(3, texts=["p", "q", "r"])), tmp_path)
    assert read_raw(tmp_path).labels.ids == ["0", "1", "2"]
