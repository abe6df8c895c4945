"""Bad input of every kind: the error names the file, and the line where there is one; and nothing else is raised."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decaf.config import TableSettings
from decaf.datasets import Dataset
from decaf.errors import DataError, DecafError

from .helpers import FOLDERS, examples, json_lines, parquet, write_files


@pytest.fixture(autouse=True, scope="module")
def no_collection() -> Iterator[None]:
    """No garbage is collected in the depths of nested JSON, where what it closes would fail too."""
    gc.disable()
    yield
    gc.enable()


Case = tuple[str, str, bytes, int | None, str]  # layout, file, its bytes, the bad line, what the message says

ITEM = {"uid": "a", "title": "one"}
DOCUMENT = ITEM | {"target_ind": [0]}
OTHER = {"uid": "b", "title": "two", "target_ind": []}


def _raw(line: int | None, says: str, *records: object) -> Case:
    return "raw", "trn.json", json_lines(*records), line, says


RAW: list[Case] = [
    ("raw", "trn.json", b"", None, "is empty"),
    ("raw", "lbl.json", b"\n\n", None, "is empty"),
    ("raw", "trn.json", b"\n{\n", 2, "is not JSON"),
    ("raw", "tst.json", b"[" * 100_000 + b"\n", 1, "is not JSON"),
    ("raw", "tst.json", b'{"uid": ' + b"9" * 5000 + b"}\n", 1, "is not JSON"),
    ("raw", "trn.json", json_lines(DOCUMENT) + b'{"uid": "\xff"}\n', 2, "byte 0xff at column 10 is not UTF-8"),
    ("raw", "lbl.json", b"\xff\n", 1, "is not UTF-8"),
    ("raw", "lbl.json", json_lines(ITEM, ITEM), 2, "id 'a' is already on line 1"),
    ("raw", "lbl.json", json_lines(ITEM, {"uid": "b"}), 2, "expected title"),
    ("raw", "lbl.json", json_lines({"title": "b"}), 1, "expected uid"),
    ("raw", "lbl.json", b'{"uid": "a", "title": "\\ud800"}\n', 1, "title is not valid Unicode"),
    ("raw", "lbl.json", b'{"uid": "\\udfff", "title": ""}\n', 1, "uid is not valid Unicode"),
    ("raw", "lbl.json", b'{"uid": "a", "title": "", "content": "\\ud83d"}\n', 1, "content is not valid Unicode"),
    _raw(2, "id 'a' is already on line 1", DOCUMENT, DOCUMENT),
    _raw(1, "expected a JSON object", [1]),
    _raw(2, "expected a JSON object", DOCUMENT, "text"),
    _raw(1, "expected target_ind", ITEM),
    _raw(1, "expected target_ind", ITEM | {"target_ind": 0}),
    _raw(1, "expected target_rel", DOCUMENT | {"target_rel": 1.0}),
    _raw(1, "expected uid", DOCUMENT | {"uid": 1.5}),
    _raw(1, "expected uid", DOCUMENT | {"uid": True}),
    _raw(1, "expected title", DOCUMENT | {"title": None}),
    _raw(1, "expected content", DOCUMENT | {"content": []}),
    _raw(2, "label 3 is out of range", DOCUMENT, OTHER | {"target_ind": [3]}),
    _raw(1, "label -1 is out of range", ITEM | {"target_ind": [-1]}),
    _raw(1, "label 1.0 is out of range", ITEM | {"target_ind": [1.0]}),
    _raw(1, "label True is out of range", ITEM | {"target_ind": [True]}),
    _raw(1, "label '0' is out of range", ITEM | {"target_ind": ["0"]}),
    _raw(1, "a label is there twice", ITEM | {"target_ind": [1, 1]}),
    _raw(1, "2 weights for 1 labels", DOCUMENT | {"target_rel": [1, 1]}),
    _raw(1, "weight -0.5 must be", DOCUMENT | {"target_rel": [-0.5]}),
    _raw(1, "weight nan must be", DOCUMENT | {"target_rel": [float("nan")]}),
    _raw(1, "weight inf must be", DOCUMENT | {"target_rel": [float("inf")]}),
    _raw(1, "must be a finite number", DOCUMENT | {"target_rel": [1e39]}),
    _raw(1, "must be a finite number", DOCUMENT | {"target_rel": [10**400]}),
    _raw(1, "weight '1' must be", DOCUMENT | {"target_rel": ["1"]}),
    _raw(1, "weight True must be", DOCUMENT | {"target_rel": [True]}),
]


def _matrix_cases(file: str, columns: int) -> list[Case]:
    header = f"2 {columns}\n".encode()
    bodies: list[tuple[bytes, int | None, str]] = [
        (b"", None, "is empty"),
        (b"hello\n", 1, 'expected a header "rows columns"'),
        (b"2\n", 1, "expected a header"),
        (b"2 3 4\n", 1, "expected a header"),
        (b"-2 3\n", 1, "expected a header"),
        (b"2.0 3\n", 1, "expected a header"),
        (b"2 99999999999\n", 1, "sizes over 2147483647 are not supported"),
        (b"9" * 5000, 1, "expected a header"),
        (b"\xff\xfe\n", 1, "expected a header"),
        (header + b"0:1\n", None, "promises 2 rows and the file has 1"),
        (header + b"0:1\n\n\n", None, "promises 2 rows and the file has 3"),
        (header + f"\n{columns}:1\n".encode(), 3, f"column {columns} is out of range"),
        (header + b"999999999999:1\n\n", 2, "column 999999999999 is out of range"),
        (header + b"\n0:1 -1:1\n", 3, "expected \"column:value\", found '-1:1'"),
        (header + b"\n0:-1\n", 3, "value '-1' must be a finite number"),
        (header + b"\n0:nan\n", 3, 'expected "column:value"'),
        (header + b"\n0:inf\n", 3, 'expected "column:value"'),
        (header + b"\n0:1e39\n", 3, "value '1e39' must be a finite number"),
        (header + b"0:1 0:2\n\n", 2, "column 0 is there twice"),
        (header + b"0\n\n", 2, "expected \"column:value\", found '0'"),
        (header + b"0:\n\n", 2, "expected \"column:value\", found '0:'"),
        (header + b"0:1:2\n\n", 2, 'expected "column:value"'),
        (header + b"0:1,1:1\n\n", 2, 'expected "column:value"'),
        (header + b"\n0:\xff\n", 3, "byte 0xff is not a digit"),
        (header + "٣:1\n\n".encode(), 2, "is not a digit"),
    ]
    return [("sparse", file, body, line, says) for body, line, says in bodies]


SPARSE: list[Case] = [
    *_matrix_cases("trn_X_Xf.txt", 4),
    *_matrix_cases("trn_X_Y.txt", 3),
    ("sparse", "trn_X_Y.txt", b"3 3\n\n\n\n", None, "trn_X_Xf.txt has 2 rows"),
    ("sparse", "trn_X_Xf.txt", b"1 4\n\n", None, "trn_X_Y.txt has 2"),
    ("sparse", "tst_X_Xf.txt", b"1 5\n\n", None, "5"),
    ("sparse", "tst_X_Y.txt", b"1 4\n\n", None, "4"),
    ("sparse", "lbl_X_Xf.txt", b"2 4\n\n\n", None, "2 labels"),
    ("sparse", "lbl_X_Xf.txt", b"3 5\n\n\n\n", None, "5 features"),
    ("sparse", "trn_X.jsonl", json_lines(ITEM), None, "has 1 rows"),
    ("sparse", "trn_X.jsonl", json_lines(ITEM, ITEM), 2, "already on line 1"),
    ("sparse", "trn_X.jsonl", json_lines(ITEM) + b"{", 2, "is not JSON"),
    ("sparse", "lbl_X.jsonl", json_lines(ITEM), None, "has 1 labels"),
    ("sparse", "lbl_X.jsonl", json_lines(3), 1, "expected a JSON object"),
]
SINGLE: list[Case] = [
    ("single", "train.txt", body, line, says)
    for body, line, says in [
        (b"", None, "is empty"),
        (b"documents features labels\n", 1, 'expected a header "documents features labels"'),
        (b"2 4\n", 1, "expected a header"),
        (b"2 4 -3\n", 1, "expected a header"),
        (b"2 4 3000000000\n", 1, "sizes over 2147483647"),
        (b"2 4 3\n0 0:1\n", None, "promises 2 rows and the file has 1"),
        (b"2 4 3\n0 0:1\n3 0:1\n", 3, "label 3 is out of range"),
        (b"2 4 3\n0 0:1\n0 4:1\n", 3, "column 4 is out of range"),
        (b"2 4 3\n0,0 0:1\n\n", 2, "label 0 is there twice"),
        (b"2 4 3\n-1 0:1\n\n", 2, 'expected "label,label"'),
        (b"2 4 3\n0,,1 0:1\n\n", 2, 'expected "label,label"'),
        (b"2 4 3\n0, 0:1\n\n", 2, 'expected "label,label"'),
        (b"2 4 3\n1.0 0:1\n\n", 2, 'expected "label,label"'),
        (b"2 4 3\n\n0:1\n", 3, 'expected "label,label"'),
        (b"2 4 3\n0 0:-1\n\n", 2, "value '-1'"),
        (b"2 4 3\n0 0:nan\n\n", 2, 'expected "column:value"'),
        (b"2 4 3\n0 0:1 0:1\n\n", 2, "column 0 is there twice"),
        (b"2 4 3\n0 0:1\n\xc3\xa9 0:1\n", 3, "byte 0xc3 is not a digit"),
        (b"2 5 3\n\n\n", None, "features"),
        (b"2 4 2\n\n\n", None, "labels"),
        (b"1 4 3\n\n", None, "trn_X.jsonl has 2 rows"),
    ]
] + [
    ("single", "Yf.txt", b"ex\nwhy\n", None, "has 2 labels"),
    ("single", "Yf.txt", b"ex\nwhy\n\xff\n", 3, "is not UTF-8"),
    ("single", "test.txt", b"1 4 3\n9 0:1\n", 2, "label 9 is out of range"),
    ("single", "trn_X.jsonl", json_lines(ITEM), None, "has 1 rows"),
]
CSV: list[Case] = [
    ("csv", "train.csv", b"", None, "is empty"),
    ("csv", "train.csv", b"text,labels\n", None, "is empty"),
    ("csv", "train.csv", b"text\na\n", None, "expected a column for the labels"),
    ("csv", "train.csv", b"labels\na\n", None, "expected a column for the document text"),
    ("csv", "train.csv", b"text,labels,text\na,p,b\n", 1, "column 'text' is there twice"),
    ("csv", "train.csv", b"text,labels\na,p\nb\n", 3, "expected 2 cells, found 1"),
    ("csv", "train.csv", b'text,labels\n"a\n\nb",p\nb,q,r\n', 5, "expected 2 cells, found 3"),
    ("csv", "train.csv", b'text,labels\na,p\n"b,q\n', 3, "is not valid CSV"),
    ("csv", "train.csv", b'text,labels\na,p\n"b"c,q\n', 3, "is not valid CSV"),
    ("csv", "train.csv", b"text,labels\na,p\n\xe9,q\n", 3, "byte 0xe9 at column 1 is not UTF-8"),
    ("csv", "train.csv", b"id,text,labels\n1,a,p\n1,b,q\n", 3, "id '1' is already on line 2"),
    ("csv", "train.csv", b"text,labels,weights\na,x;y,[1]\n", 2, "1 weights for 2 labels"),
    ("csv", "train.csv", b"text,labels,weights\na,x,1\n", 2, "expected weights, a list of numbers"),
    ("csv", "train.csv", b"text,labels,weights\na,x,[-1]\n", 2, "weight -1 must be"),
    ("csv", "train.csv", b"text,labels,weights\na,x,[NaN]\n", 2, "weight nan must be"),
    ("csv", "train.csv", b"text,labels,weights\na,x,[Infinity]\n", 2, "weight inf must be"),
    ("csv", "train.csv", b"text,labels,weights\na,x,[1" + b"0" * 400 + b"]\n", 2, "must be a finite number"),
    ("csv", "train.csv", b'text,labels,weights\na,x;x,"[1,2]"\n', 2, "a label is there twice"),
    ("csv", "train.csv", b"text,labels\na,[1.5]\n", 2, "a label to be a text or a whole number"),
    ("csv", "train.csv", b'text,labels\na,"[""\\ud800""]"\n', 2, "is not valid Unicode"),
    ("csv", "test.csv", b"id,text\nc,drei\n", None, "expected a column for the labels"),
    ("csv", "labels.csv", b"", None, "expected a column for the label text"),
    ("csv", "labels.csv", b"id,text\nx,ex\nx,why\n", 3, "id 'x' is already on line 2"),
    ("csv", "labels.csv", b"id,text\nx,ex,1\n", 2, "expected 2 cells, found 3"),
]
ROW = {"text": "a", "labels": ["x"]}
JSONL: list[Case] = [
    ("jsonl", "train.jsonl", b"", None, "is empty"),
    ("jsonl", "train.jsonl", json_lines({"labels": []}), None, "expected a column for the document text"),
    ("jsonl", "train.jsonl", json_lines({"text": "a"}), None, "expected a column for the labels"),
    ("jsonl", "train.jsonl", json_lines(ROW) + b"{'a': 1}\n", 2, "is not JSON"),
    ("jsonl", "train.jsonl", json_lines(ROW, [1]), 2, "expected a JSON object"),
    ("jsonl", "train.jsonl", json_lines(ROW, ROW | {"text": 1.5}), 2, "expected 'text', a text"),
    ("jsonl", "train.jsonl", json_lines(ROW, ROW | {"text": ["a"]}), 2, "expected 'text', a text"),
    ("jsonl", "train.jsonl", json_lines(ROW, ROW | {"labels": {"x": 1}}), 2, "expected a label"),
    ("jsonl", "train.jsonl", json_lines(ROW, ROW | {"labels": [True]}), 2, "expected a label"),
    ("jsonl", "train.jsonl", json_lines(ROW, ROW | {"labels": [["x"]]}), 2, "expected a label"),
    ("jsonl", "train.jsonl", json_lines(ROW | {"weights": 1}), 1, "expected weights, a list of numbers"),
    ("jsonl", "train.jsonl", json_lines(ROW | {"weights": [10**400]}), 1, "must be a finite number"),
    ("jsonl", "train.jsonl", json_lines(ROW | {"content": 1.5}), 1, "expected 'content', a text"),
    ("jsonl", "train.jsonl", json_lines(ROW | {"id": "1"}, ROW | {"id": 1}), 2, "id '1' is already on line 1"),
    ("jsonl", "train.jsonl", json_lines(ROW) + b'{"text": "\\ud800", "labels": []}\n', 2, "is not valid Unicode"),
    ("jsonl", "train.jsonl", json_lines(ROW) + b'{"text": "a", "labels": "\\ud800"}\n', 2, "is not valid Unicode"),
    ("jsonl", "train.jsonl", json_lines(ROW) + b'{"text": "a\x80"}\n', 2, "byte 0x80 at column 12 is not UTF-8"),
    ("jsonl", "labels.jsonl", json_lines({"id": "x"}), None, "expected a column for the label text"),
]
COLUMNS = {"text": ["a", "b"], "labels": [["x"], ["y"]]}
PARQUET: list[Case] = [
    ("parquet", "train.parquet", b"", None, "is not valid Parquet"),
    ("parquet", "train.parquet", b"text,labels\n", None, "is not valid Parquet"),
    ("parquet", "train.parquet", FOLDERS["parquet"]["train.parquet"][:-9], None, "is not valid Parquet"),
    ("parquet", "train.parquet", parquet({"text": ["a"]}), None, "expected a column for the labels"),
    ("parquet", "train.parquet", parquet({"labels": ["a"]}), None, "expected a column for the document text"),
    ("parquet", "train.parquet", parquet({"text": [], "labels": []}), None, "is empty"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"text": [1.5, 2.5]}), 1, "expected 'text', a text"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"text": [b"a", b"b"]}), 1, "expected 'text', a text"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"labels": [[1.5], []]}), 1, "expected a label"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"labels": [["x"], [None]]}), 2, "expected a label"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"id": ["1", "1"]}), 2, "id '1' is already on line 1"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"weights": [[1.0], [-1.0]]}), 2, "weight -1.0 must be"),
    ("parquet", "train.parquet", parquet(COLUMNS | {"weights": [[1.0], []]}), 2, "0 weights for 1 labels"),
    ("parquet", "train.parquet", parquet(COLUMNS).replace(b"labels", b"label\xff"), None, "is not valid Parquet"),
    ("parquet", "train.parquet", parquet({"text": ["ab", "cd"], "labels": ["x", "y"]}).replace(b"cd", b"c\xff"), 1, ""),
    ("parquet", "labels.parquet", parquet({"id": ["x"]}), None, "expected a column for the label text"),
]
FILTERS: list[Case] = [
    ("raw", "filter_labels_train.txt", body, line, says)
    for body, line, says in [
        (b"0 0\n2 0\n", 2, "'2 0' is out of range; there are 2 documents and 3 labels"),
        (b"0 0\n\n0 3\n", 3, "'0 3' is out of range"),
        (b"0 0\n0 -1\n", 2, "two whole numbers, found '0 -1'"),
        (b"0\n", 1, "two whole numbers, found '0'"),
        (b"0 1\n0 1 2\n", 2, "two whole numbers"),
        (b"0 1 2\n", 1, "two whole numbers"),
        (b"0 1\n0 0.5\n", 2, "two whole numbers"),
        (b"0,1\n", 1, "two whole numbers"),
        (b"0 1\nhello\n", 2, "two whole numbers, found 'hello'"),
        (b"# comment\n", 1, "two whole numbers"),
        (b"0 1\n\xff 1\n", 2, "two whole numbers"),
        (b"0 1\n0 99999999999999999999999\n", 2, "is out of range"),
        (b"0 1\n0 " + b"9" * 5000 + b"\n", 2, ""),
        (b"\xa0\n", 1, "two whole numbers"),
    ]
] + [("single", "filter_labels_test.txt", b"1 0\n", 1, "there are 1 documents and 3 labels")]
ABOUT: list[Case] = [
    ("raw", "dataset.json", body, None, says)
    for body, says in [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"name": "\xff"}', "is not JSON"),
        (b'{"name": 3}', "expected name to be a text"),
        (b'{"name": null}', "expected name to be a text"),
        (b'{"name": "\\ud800"}', ""),
        (b'{"task": ["\\ud800"]}', ""),
        (b'{"propensity": 0.5}', "expected propensity"),
        (b'{"propensity": {"A": 0.5}}', "expected propensity"),
        (b'{"propensity": {"A": 0.5, "B": 1, "C": 2}}', "expected propensity"),
        (b'{"propensity": {"A": "0.5", "B": 1}}', "propensity A must be a finite number"),
        (b'{"propensity": {"A": 0.5, "B": -1}}', "propensity B must be a finite number"),
        (b'{"propensity": {"A": NaN, "B": 1}}', "propensity A must be a finite number"),
        (b'{"propensity": {"A": 0.5, "B": true}}', "propensity B must be a finite number"),
        (b'{"propensity": {"A": 0.5, "B": 1' + b"0" * 400 + b"}}", "propensity B must be a finite number"),
    ]
]


PACKED: list[Case] = []
for _layout, _files in FOLDERS.items():
    for _name, _content in _files.items():
        if _name.endswith(".gz") and (_layout, _name) != ("sparse.gz", "Yf.txt.gz"):  # which lbl_X.jsonl stands in for
            PACKED += [
                (_layout, _name, _content[: len(_content) // 2], None, "is cut short"),
                (_layout, _name, _content[:-3], None, "is cut short"),
                (_layout, _name, _content[:5], None, "is cut short"),
                (_layout, _name, b"plain text\n", None, "is not valid gzip"),
                (_layout, _name, _content[:-8] + b"\0" * 8, None, "is not valid gzip"),
                (_layout, _name, _content + b"more", None, "is not valid gzip"),
                (_layout, _name, _content[:10] + b"\xff" * 20, None, "is not valid gzip"),
            ]
CASES = RAW + SPARSE + SINGLE + CSV + JSONL + PARQUET + FILTERS + ABOUT + PACKED


@pytest.mark.parametrize(
    ("layout", "file", "content", "line", "says"), CASES, ids=[f"{case[1]}: {case[4][:30]}" for case in CASES]
)
def test_the_error_names_file_line_and_problem(
    tmp_path: Path, layout: str, file: str, content: bytes, line: int | None, says: str
) -> None:
    folder = write_files(tmp_path / "set", FOLDERS[layout] | {file: content})
    with pytest.raises(DataError) as caught:
        Dataset.load(folder)
    message = str(caught.value)
    assert file in message
    assert says in message
    if line is not None:
        assert f"{file}, line {line}:" in message


@pytest.mark.parametrize(
    ("layout", "file"), [("sparse", "trn_X_Y.txt"), ("sparse", "trn_X_Xf.txt"), ("sparse", "tst_X_Y.txt")]
)
def test_half_of_a_pair_of_files_is_not_enough(tmp_path: Path, layout: str, file: str) -> None:
    files = {name: content for name, content in FOLDERS[layout].items() if name != file}
    with pytest.raises(DataError, match=file):
        Dataset.load(write_files(tmp_path, files))


def test_a_single_table_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("text,labels\na,p\nb\n")
    with pytest.raises(DataError, match=r"docs\.csv, line 3: expected 2 cells"):
        Dataset.load(tmp_path / "docs.csv")


def test_a_bad_label_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("text,labels\na,p\n")
    (tmp_path / "names.csv").write_text("id,text\n1\n")
    with pytest.raises(DataError, match=r"names\.csv, line 2: expected 2 cells"):
        Dataset.load(tmp_path / "docs.csv", table=TableSettings(label_file=str(tmp_path / "names.csv")))


def test_a_table_without_any_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("text,labels\na,\n")
    with pytest.raises(DataError, match=r"docs\.csv: no row has a label"):
        Dataset.load(tmp_path / "docs.csv")


def test_rows_beside_the_one_file_layout_are_compared_with_that_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.txt has 2"):
        Dataset.load(write_files(tmp_path, FOLDERS["single"] | {"trn_X.jsonl": json_lines(ITEM)}))


Edit = tuple[str, float, bytes]  # what, where (as a share of the file), which bytes
PLACES = st.floats(0, 1, exclude_max=True)
BYTES = st.sampled_from(
    [
        b"\n",
        b" ",
        b",",
        b":",
        b'"',
        b"0",
        b"9",
        b"-",
        b".",
        b"e",
        b"\xff",
        b"\x00",
        b"\r",
        b"[",
        b"}",
        b"\\ud800",
        b"1e999",
    ]
)
EDITS: st.SearchStrategy[Edit] = st.tuples(
    st.sampled_from(["flip", "cut", "insert", "delete", "repeat"]), PLACES, BYTES | st.binary(min_size=1, max_size=4)
)


def edited(content: bytes, edits: list[Edit]) -> bytes:
    for kind, place, extra in edits:
        at = int(place * len(content))
        if kind == "cut":
            content = content[:at]
        elif kind == "insert":
            content = content[:at] + extra + content[at:]
        elif kind == "delete":
            content = content[:at] + content[at + len(extra) :]
        elif kind == "repeat":
            content = content[:at] + content[max(at - 8, 0) :]
        else:
            content = content[:at] + extra[:1] + content[at + 1 :]
    return content


def load_edited(layout: str, file: str, edits: list[Edit]) -> None:
    """A dataset, or an error that is meant for the user; anything else fails the test."""
    with TemporaryDirectory() as folder:
        files = FOLDERS[layout] | {file: edited(FOLDERS[layout][file], edits)}
        with contextlib.suppress(DecafError):
            assert isinstance(Dataset.load(write_files(Path(folder), files)), Dataset)


def _files_of(layout: str) -> list[str]:
    """The files of the layout itself, and for the raw one those that every folder may hold."""
    return [name for name in FOLDERS[layout] if layout == "raw" or name not in FOLDERS["raw"]]


@pytest.mark.parametrize("layout", FOLDERS)
@examples(60)
@given(data=st.data(), edits=st.lists(EDITS, min_size=1, max_size=3))
def test_damaged_files_give_a_dataset_or_an_error(layout: str, data: st.DataObject, edits: list[Edit]) -> None:
    load_edited(layout, data.draw(st.sampled_from(_files_of(layout))), edits)


@pytest.mark.parametrize("file", ["filter_labels_train.txt", "filter_labels_test.txt", "dataset.json"])
@examples(60)
@given(edits=st.lists(EDITS, min_size=1, max_size=3))
def test_damaged_files_beside_the_dataset_give_a_dataset_or_an_error(file: str, edits: list[Edit]) -> None:
    load_edited("raw", file, edits)
