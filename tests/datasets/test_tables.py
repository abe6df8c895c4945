"""The user's own tables: columns, cells and names of labels."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from decaf.config import FeatureSettings, TableSettings
from decaf.datasets import Dataset, Parts
from decaf.datasets.tables import read_tables
from decaf.errors import DataError
from decaf.features import with_features

from .helpers import FOLDERS, json_lines, lists, make_parts, parquet, write_files

DEFAULTS = TableSettings()


def _read(path: Path, content: bytes | str, settings: TableSettings = DEFAULTS) -> Parts:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_tables(path, settings)


def _labels(parts: Parts) -> list[list[str]]:
    """The label ids of each training document."""
    return [[parts.labels.id(label) for label in row] for row in lists(parts.train.truth)]


@pytest.mark.parametrize("layout", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_reads_a_folder_of_three_tables(tmp_path: Path, layout: str) -> None:
    parts = read_tables(write_files(tmp_path, FOLDERS[layout]), DEFAULTS)
    assert _labels(parts)[0] == ["x", "z"]
    assert lists(parts.test.truth) == [[1]]
    assert parts.labels.texts == ["ex", "why", "zed"]
    assert parts.test.documents.ids == ["c"]
    assert parts.test.documents.texts == ["drei"]


def test_labels_are_found_by_id_and_by_text(tmp_path: Path) -> None:
    write_files(tmp_path, {"labels.csv": b"id,text\n1,red\n2,blue\n", "train.csv": b"text,labels\na,1;blue\nb,red\n"})
    parts = read_tables(tmp_path, DEFAULTS)
    assert lists(parts.train.truth) == [[0, 1], [0]]
    assert parts.labels.ids == ["1", "2"]


def test_an_id_wins_over_a_text(tmp_path: Path) -> None:
    write_files(tmp_path, {"labels.csv": b"id,text\nred,blue\nblue,red\n", "train.csv": b"text,labels\na,red\n"})
    assert _labels(read_tables(tmp_path, DEFAULTS)) == [["red"]]


def test_an_unknown_label_is_a_new_one_with_its_id_as_text(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {
            "labels.csv": b"id,text\n1,red\n",
            "train.csv": b"text,labels\na,1;new\n",
            "test.csv": b"text,labels\nb,newer;new\n",
        },
    )
    parts = read_tables(tmp_path, DEFAULTS)
    assert parts.labels.ids == ["1", "new", "newer"]
    assert parts.labels.texts == ["red", "new", "newer"]
    assert lists(parts.train.truth) == [[0, 1]]
    assert parts.train.truth.shape == (1, 3)
    assert lists(parts.test.truth) == [[1, 2]]


def test_a_text_of_two_labels_is_an_error_unless_named_by_id(tmp_path: Path) -> None:
    labels = b"id,text\n1,red\n2,red\n"
    parts = read_tables(write_files(tmp_path, {"labels.csv": labels, "train.csv": b"text,labels\na,2\n"}), DEFAULTS)
    assert _labels(parts) == [["2"]]
    (tmp_path / "train.csv").write_bytes(b"text,labels\na,2\nb,red\n")
    with pytest.raises(DataError, match=r"train\.csv, line 3: several labels have the text 'red'"):
        read_tables(tmp_path, DEFAULTS)


def test_without_a_label_table_labels_come_in_the_order_they_are_met(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.csv", "text,labels\na,q;p\nb,\nc,p;r\n")
    assert parts.labels.texts == ["q", "p", "r"]
    assert lists(parts.train.truth) == [[0, 1], [], [1, 2]]
    assert parts.test.documents.count == 0


@pytest.mark.parametrize(
    ("cell", "separator", "expected"),
    [
        ("p;q", ";", ["p", "q"]),
        (" p ; q ;; ", ";", ["p", "q"]),
        ("p|q;r", "|", ["p", "q;r"]),
        ("p and q", " and ", ["p", "q"]),
        ("p;q", "", ["p;q"]),
        ("p;p", ";", ["p"]),
        ("", ";", []),
        ('["p;q", " r "]', ";", ["p;q", " r "]),
        ("[1, 2]", ";", ["1", "2"]),
        ("[]", ";", []),
        ("[p;q]", ";", ["[p", "q]"]),
        ('"p";q', ";", ['"p"', "q"]),
    ],
)
def test_cells_of_labels(tmp_path: Path, cell: str, separator: str, expected: list[str]) -> None:
    quoted = cell.replace('"', '""')
    parts = _read(tmp_path / "docs.csv", f'text,labels\na,"{quoted}"\nb,other\n', TableSettings(separator=separator))
    assert _labels(parts)[0] == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [(["p", "q;r"], ["p", "q;r"]), ([1, 20], ["1", "20"]), (3, ["3"]), (None, []), ("p;q", ["p", "q"])],
)
def test_json_cells_of_labels(tmp_path: Path, cell: object, expected: list[str]) -> None:
    records = json_lines({"text": "a", "labels": cell}, {"text": "b", "labels": ["other"]})
    assert _labels(_read(tmp_path / "docs.jsonl", records))[0] == expected


def test_parquet_lists_and_numbers(tmp_path: Path) -> None:
    columns = {
        "id": pa.array([10, 20], pa.int64()),
        "text": ["a", None],
        "labels": pa.array([[5, 6], None], pa.list_(pa.int32())),
        "weights": pa.array([[0.5, 2], None], pa.list_(pa.float32())),
    }
    parts = _read(tmp_path / "docs.parquet", parquet(columns))
    assert parts.train.documents.ids == ["10", "20"]
    assert parts.train.documents.texts == ["a", ""]
    assert parts.labels.ids == ["5", "6"]
    assert parts.train.truth.toarray().tolist() == [[0.5, 2], [0, 0]]


def test_parquet_text_cells_of_labels_are_separated(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.parquet", parquet({"text": ["a"], "labels": ["p;q"]}))
    assert _labels(parts) == [["p", "q"]]


def test_whole_number_ids_and_texts_become_texts(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.jsonl", json_lines({"id": 7, "text": 2001, "labels": [1]}))
    assert parts.train.documents.ids == ["7"]
    assert parts.train.documents.texts == ["2001"]


def test_weights_go_with_the_labels(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.csv", 'text,labels,weights\na,q;p,"[0.5, 2]"\nb,p,\n')
    assert parts.train.truth.toarray().tolist() == [[0.5, 2], [0, 1]]


def test_tabs_separate_the_cells_of_a_tsv_file(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.tsv", "text\tlabels\na,b;c\tp;q\n")
    assert parts.train.documents.texts == ["a,b;c"]
    assert _labels(parts) == [["p", "q"]]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_the_header_of_a_csv_file_shows_its_delimiter(tmp_path: Path, mark: str) -> None:
    content = "id,text,labels\n1,one two,p|q\n".replace(",", mark)
    parts = _read(tmp_path / "docs.csv", content, TableSettings(separator="|"))
    assert parts.train.documents.texts == ["one two"]
    assert _labels(parts) == [["p", "q"]]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbftext,labels\na,p\n",
        b"text,labels\r\na,p\r\n",
        b"text,labels\na,p",
        b"text,labels\n\na,p\n\n\n",
        b'"text","labels"\n"a","p"\n',
    ],
)
def test_how_a_csv_file_was_saved_does_not_matter(tmp_path: Path, content: bytes) -> None:
    parts = _read(tmp_path / "docs.csv", content)
    assert parts.train.documents.texts == ["a"]
    assert _labels(parts) == [["p"]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("docs.csv.gz", gzip.compress(b"text,labels\na,p\n", mtime=0)),
        ("docs.tsv.gz", gzip.compress(b"text\tlabels\na\tp\n", mtime=0)),
        ("docs.jsonl.gz", gzip.compress(json_lines({"text": "a", "labels": ["p"]}), mtime=0)),
        ("docs.ndjson", b"\xef\xbb\xbf" + json_lines({"text": "a", "labels": ["p"]})),
    ],
)
def test_names_of_files_tell_their_format(tmp_path: Path, name: str, content: bytes) -> None:
    parts = _read(tmp_path / name, content)
    assert parts.train.documents.texts == ["a"]
    assert _labels(parts) == [["p"]]


@pytest.mark.parametrize("text", ["text", "title", "name", "query", "document"])
@pytest.mark.parametrize("labels", ["labels", "label", "targets", "target", "tags", "categories"])
def test_usual_column_names_are_found(tmp_path: Path, text: str, labels: str) -> None:
    parts = _read(tmp_path / "docs.csv", f"{labels},{text}\np,a\n")
    assert parts.train.documents.texts == ["a"]
    assert _labels(parts) == [["p"]]


def test_columns_can_be_named(tmp_path: Path) -> None:
    settings = TableSettings(text="body", labels="topics", id="key")
    parts = _read(tmp_path / "docs.csv", "id,text,labels,body,topics,key\n1,x,y,a,p,k\n", settings)
    assert parts.train.documents.ids == ["k"]
    assert parts.train.documents.texts == ["a"]
    assert _labels(parts) == [["p"]]


@pytest.mark.parametrize("settings", [TableSettings(text="no"), TableSettings(labels="no"), TableSettings(id="no")])
def test_a_named_column_must_be_there(tmp_path: Path, settings: TableSettings) -> None:
    with pytest.raises(DataError, match=r"docs\.csv: expected a column 'no', found 'text', 'labels'"):
        _read(tmp_path / "docs.csv", "text,labels\na,p\n", settings)


def test_without_an_id_column_the_row_number_is_the_id(tmp_path: Path) -> None:
    documents = _read(tmp_path / "docs.csv", "text,labels\na,p\nb,p\n").train.documents
    assert [documents.id(row) for row in range(2)] == ["0", "1"]


def test_content_is_read_beside_the_text(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {"labels.csv": b"text,content\np,about p\n", "train.csv": b"text,labels,content\na,p,long\nb,p,\n"},
    )
    parts = read_tables(tmp_path, DEFAULTS)
    assert parts.train.documents.contents == ["long", ""]
    assert parts.labels.contents == ["about p"]


def test_a_single_file_takes_its_labels_from_the_label_file(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("id\ttext\n1\tred\n2\tblue\n")
    settings = TableSettings(label_file=str(tmp_path / "names.tsv"))
    parts = _read(tmp_path / "docs.csv", "text,labels\na,2\n", settings)
    assert parts.labels.texts == ["red", "blue"]
    assert lists(parts.train.truth) == [[1]]


def test_a_missing_label_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("text,labels\na,2\n")
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        Dataset.load(tmp_path / "docs.csv", table=TableSettings(label_file=str(tmp_path / "nowhere.csv")))


def test_another_separator_in_most_cells_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "decaf"):
        _read(tmp_path / "docs.csv", "text;labels\na;p|q\nb;q|r\nc;p\n")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "docs.csv" in caplog.text
    assert "table.separator" in caplog.text


@pytest.mark.parametrize("content", ["text\tlabels\na\tp;q\nb\tq;r|s\n", "text\tlabels\na\tp,q\nb\tr\nc\ts\n"])
def test_cells_that_hold_the_separator_are_not_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    _read(tmp_path / "docs.tsv", content)
    assert caplog.records == []


def test_a_quoted_cell_may_hold_lines_quotes_and_commas(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.csv", b'text,labels\n"a\r\nb, ""c""\rd",p\ne,q\n')
    assert parts.train.documents.texts == ['a\r\nb, "c"\rd', "e"]


def test_a_cell_may_be_very_long(tmp_path: Path) -> None:
    parts = _read(tmp_path / "docs.csv", f"text,labels\n{'long ' * 40_000},p\n")
    assert parts.train.documents.texts == ["long " * 40_000]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"docs\.xlsx: is no table; expected one of \.csv"):
        _read(tmp_path / "docs.xlsx", "text")


@pytest.mark.parametrize("layout", ["csv", "jsonl", "parquet", "raw"])
def test_a_saved_set_without_test_documents_can_be_given_features(tmp_path: Path, layout: str) -> None:
    Dataset("small", *make_parts([[0], [1, 2]], [], 3)).save(tmp_path / "set", layout)
    dataset = with_features(Dataset.load(tmp_path / "set"), FeatureSettings())
    assert dataset.train.documents.need_features().nnz > 0
    assert dataset.test.documents.count == 0
