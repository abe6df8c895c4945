"""Sparse matrices as text: the fast path against the slow one, odd spacing, and chunks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from decaf.datasets import sparse_text
from decaf.datasets.sparse_text import read_matrix, read_single, write_matrix, write_single
from decaf.errors import DataError

from .helpers import assert_same_matrix, examples, lists, matrices, truth_of

PATH = Path("matrix.txt")
COLUMNS = 12

NUMBERS = (
    st.floats(0, allow_nan=False, allow_infinity=False, width=32).map(str)
    | st.integers(0, 10**12).map(str)
    | st.decimals(0, 1000, places=6).map(str)
    | st.sampled_from("1e3 1E-3 +2 -0 0 .5 5. 1e-60 3.4028235e+38 00.10 2e+00".split())
)
ODD_NUMBERS = st.sampled_from("nan inf -1 1e39 0x1 1_0 infinity 1d2 - e5 . +-1 1,5".split()) | st.just("")
PAIRS = st.tuples(st.integers(0, COLUMNS - 1), NUMBERS).map(lambda pair: f"{pair[0]}:{pair[1]}")
ODD_PAIRS = st.sampled_from(
    "12:1 007:2 00000000003:1 -1:1 1 :1 1: 1:2:3 a:1 1:\x0b2 1:2\r 99999999999:1 é:1".split(" ")
)
ODD_PAIRS |= st.tuples(st.integers(0, COLUMNS), ODD_NUMBERS).map(lambda pair: f"{pair[0]}:{pair[1]}")
TARGETS = st.lists(st.integers(0, COLUMNS - 1), max_size=4, unique=True).map(lambda row: ",".join(map(str, row)))
ODD_TARGETS = st.text("0123,- x", max_size=6)


def _text(rows: list[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def _rows_of(words: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.lists(words, max_size=4).map(" ".join), min_size=1, max_size=5)


def _slow_pairs(text: bytes) -> sparse_text._Rows:
    return sparse_text._slow(text, PATH, 2, lambda row, at: sparse_text._slow_pairs(row, COLUMNS, PATH, at))


def _slow_targets(text: bytes) -> sparse_text._Rows:
    return sparse_text._slow(text, PATH, 2, lambda row, at: sparse_text._slow_targets(row, COLUMNS, PATH, at))


def _assert_same_rows(fast: sparse_text._Rows, slow: sparse_text._Rows) -> None:
    assert fast.lengths.tolist() == slow.lengths.tolist()
    assert fast.columns.tolist() == slow.columns.tolist()
    np.testing.assert_allclose(fast.values, slow.values, rtol=2e-7, atol=1e-44)


def _plain(text: bytes) -> bytes:
    """The text as the fast path gets it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(text)
        with path.open("rb") as stream:
            return b"".join(sparse_text._texts(stream))


@examples(150)
@given(_rows_of(PAIRS | PAIRS | PAIRS | ODD_PAIRS))
def test_pairs_that_the_fast_path_takes_are_the_same_on_the_slow_one(rows: list[str]) -> None:
    text = _plain(_text(rows))
    fast = sparse_text._fast_pairs(text, COLUMNS)
    if fast is not None:
        _assert_same_rows(fast, _slow_pairs(text))


@examples(60)
@given(st.lists(st.dictionaries(st.integers(0, COLUMNS - 1), NUMBERS, max_size=5), min_size=1, max_size=5))
def test_the_fast_path_takes_all_ordinary_pairs(rows: list[dict[int, str]]) -> None:
    text = _text([" ".join(f"{column}:{value}" for column, value in row.items()) for row in rows])
    fast = sparse_text._fast_pairs(text, COLUMNS)
    assert fast is not None
    assert fast.lengths.tolist() == [len(row) for row in rows]
    assert fast.columns.tolist() == [column for row in rows for column in sorted(row)]
    expected = np.array([float(row[column]) for row in rows for column in sorted(row)], dtype=np.float32)
    np.testing.assert_allclose(fast.values, expected, rtol=2e-7, atol=1e-44)


@examples(80)
@given(st.lists(st.tuples(TARGETS | ODD_TARGETS, st.lists(PAIRS, max_size=3)), min_size=1, max_size=5))
def test_targets_that_the_fast_path_takes_are_the_same_on_the_slow_one(rows: list[tuple[str, list[str]]]) -> None:
    text = _plain(_text([f"{targets} {' '.join(pairs)}" for targets, pairs in rows]))
    targets, pairs = sparse_text._cut_targets(text)
    heads = [line.partition(b" ") for line in text.split(b"\n")[:-1]]
    assert targets == b"".join(head + b"\n" for head, _, _ in heads)
    assert pairs == b"".join(tail + b"\n" for _, _, tail in heads)
    fast = sparse_text._fast_targets(targets, COLUMNS)
    if fast is not None:
        _assert_same_rows(fast, _slow_targets(targets))


@examples(40)
@given(st.lists(st.lists(st.integers(0, COLUMNS - 1), max_size=4, unique=True), min_size=1, max_size=5))
def test_the_fast_path_takes_all_ordinary_targets(rows: list[list[int]]) -> None:
    fast = sparse_text._fast_targets(_text([",".join(map(str, row)) for row in rows]), COLUMNS)
    assert fast is not None
    assert fast.lengths.tolist() == [len(row) for row in rows]
    assert fast.columns.tolist() == [column for row in rows for column in sorted(row)]


@examples(80)
@given(st.binary(max_size=30) | st.text("0123:., \n\t\re+-", max_size=30).map(str.encode))
def test_any_bytes_give_a_matrix_or_a_data_error(body: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.txt"
        rows = body.count(b"\n") + (not body.endswith(b"\n") and bool(body))
        path.write_bytes(f"{rows} 4\n".encode() + body)
        with contextlib.suppress(DataError):
            assert read_matrix(path).shape == (rows, 4)
        path.write_bytes(f"{rows} 4 3\n".encode() + body)
        with contextlib.suppress(DataError):
            assert [matrix.shape for matrix in read_single(path)] == [(rows, 4), (rows, 3)]


def test_a_long_number_is_read_whatever_else_is_in_its_chunk(tmp_path: Path) -> None:
    long = "0." + "1" * 70
    path = tmp_path / "matrix.txt"
    path.write_text(f"2 4\n1:{long}\n1:2\x0c\n")  # a form feed sends the chunk the slow way
    np.testing.assert_allclose(read_matrix(path).toarray()[:, 1], [float(long), 2], rtol=1e-7)


@pytest.mark.parametrize(
    "body",
    [
        b"0:1 2:0.5\n\n1:3\n",
        b"0:1 2:0.5\n\n1:3",
        b"0:1 2:0.5\r\n\r\n1:3\r\n",
        b"0:1\t2:0.5\n\n1:3\n",
        b"0:1   2:0.5\n\n1:3\n",
        b"0:1 2:0.5  \n \n1:3 \n",
        b"  0:1 2:0.5\n\t\n 1:3\n",
        b"2:0.5 0:1\n\n1:3\n",
        b" \t0:1\t \t2:0.5 \t\r\n \r\n1:3\t",
    ],
)
def test_line_ends_and_spacing_do_not_matter(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "matrix.txt"
    path.write_bytes(b"3 4\r\n" + body)
    assert read_matrix(path).toarray().tolist() == [[1, 0, 0.5, 0], [0, 0, 0, 0], [0, 3, 0, 0]]


@pytest.mark.parametrize(
    "body",
    [
        b"0,2 1:1 3:2\n 0:1\n\n1\n",
        b"0,2 1:1 3:2\r\n 0:1\r\n\r\n1",
        b"2,0\t1:1  3:2 \n\t0:1\n \n1 \n",
    ],
)
def test_line_ends_and_spacing_do_not_matter_beside_labels(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"4 4 3\n" + body)
    features, truth = read_single(path)
    assert features.toarray().tolist() == [[0, 1, 0, 2], [1, 0, 0, 0], [0] * 4, [0] * 4]
    assert truth.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_a_row_of_one_empty_line_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_bytes(b"1 4\n\n")
    assert read_matrix(path).toarray().tolist() == [[0] * 4]


def test_no_rows_give_an_empty_matrix(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_bytes(b"0 4\n")
    assert read_matrix(path).shape == (0, 4)


def test_a_value_of_zero_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_bytes(b"2 4\n0:0 1:2\n2:0.0\n")
    assert lists(read_matrix(path)) == [[1], []]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
def test_many_chunks_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    matrix = sparse.random_array((50, 9), density=0.3, format="csr", dtype=np.float32, rng=1)
    write_matrix(matrix, tmp_path / "matrix.txt")
    monkeypatch.setattr(sparse_text, "_CHUNK", chunk)
    assert_same_matrix(read_matrix(tmp_path / "matrix.txt"), matrix)


@pytest.mark.parametrize("chunk", [1, 10, 1 << 20])
@pytest.mark.parametrize("bad", [2, 17, 41])
def test_the_error_names_the_line_in_a_later_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, bad: int
) -> None:
    monkeypatch.setattr(sparse_text, "_CHUNK", chunk)
    lines = ["40 5", *["1:1 2:1", ""] * 20]
    lines[bad - 1] = "1:1 5:1"
    (tmp_path / "matrix.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=rf"matrix\.txt, line {bad}: column 5 is out of range"):
        read_matrix(tmp_path / "matrix.txt")


def test_the_first_of_several_bad_lines_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_CHUNK", 1)
    (tmp_path / "train.txt").write_text("4 5 3\n1 1:1\n9 1:1\n1 9:1\nx\n")
    with pytest.raises(DataError, match=r"train\.txt, line 3: label 9"):
        read_single(tmp_path / "train.txt")


def test_odd_chunks_and_ordinary_ones_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_CHUNK", 1)
    (tmp_path / "matrix.txt").write_bytes(b"4 3\n0:1\n00000000001:2\n\n2:3\x0c\n")  # lines 3 and 5 go the slow way
    assert read_matrix(tmp_path / "matrix.txt").toarray().tolist() == [[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 3]]


@examples(60)
@given(matrices(4, 6))
def test_a_written_matrix_is_read_back_exactly(matrix: sparse.csr_array) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.txt"
        write_matrix(matrix, path)
        assert_same_matrix(read_matrix(path), matrix)


@examples(40)
@given(matrices(4, 6), matrices(4, 3, st.just(1.0)))
def test_written_features_and_labels_are_read_back_exactly(features: sparse.csr_array, truth: sparse.csr_array) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        write_single(features, truth, path)
        read_features, read_truth = read_single(path)
        assert_same_matrix(read_features, features)
        assert_same_matrix(read_truth, truth)


def test_the_one_file_layout_refuses_weights(tmp_path: Path) -> None:
    truth = truth_of([[0], [1]], 2) * np.float32(0.5)
    with pytest.raises(DataError, match="no label weights"):
        write_single(truth, truth, tmp_path / "train.txt")
