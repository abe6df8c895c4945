"""Tiny datasets to test on: hand-made, made by hypothesis, and as the bytes of small valid folders."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from scipy import sparse

from decaf.datasets import Dataset, Items, Part, Parts, Propensity
from decaf.datasets.parts import no_pairs

TEXT_LAYOUTS = ("raw", "csv", "jsonl", "parquet")


def examples(count: int) -> settings:
    """So many examples, always the same ones."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def truth_of(rows: Sequence[Sequence[int]], labels: int) -> sparse.csr_array:
    """Lists of labels -> the matrix, all weights 1."""
    dense = np.zeros((len(rows), labels), dtype=np.float32)
    for row, columns in enumerate(rows):
        dense[row, list(columns)] = 1
    return sparse.csr_array(dense)


def make_parts(train: Sequence[Sequence[int]], test: Sequence[Sequence[int]], labels: int) -> Parts:
    """Documents a0, a1, ... to train on, b0, b1, ... to test on, with these labels out of l0, l1, ..."""

    def items(letter: str, count: int) -> Items:
        names = [f"{letter}{row}" for row in range(count)]
        return Items(count, names, [f"text of {name}" for name in names])

    return Parts(
        Part(items("a", len(train)), truth_of(train, labels), no_pairs()),
        Part(items("b", len(test)), truth_of(test, labels), no_pairs()),
        items("l", labels),
    )


def make_dataset() -> Dataset:
    """Three documents to train on, two to test on, three labels."""
    return Dataset("small", *make_parts([[0, 1], [], [2]], [[1], [0, 2]], 3))


def lists(truth: sparse.csr_array) -> list[list[int]]:
    """The labels of each row."""
    return [truth.indices[a:b].tolist() for a, b in zip(truth.indptr, truth.indptr[1:], strict=False)]


def ids_of(items: Items) -> list[str]:
    return [items.id(row) for row in range(items.count)]


def assert_same_matrix(left: sparse.csr_array, right: sparse.csr_array) -> None:
    assert left.shape == right.shape
    assert lists(left) == lists(right)
    assert left.data.tolist() == right.data.tolist()


def assert_same_items(left: Items, right: Items) -> None:
    """Equal but for how nothing is written: no contents and empty ones, no ids and row numbers."""
    assert left.count == right.count
    assert ids_of(left) == ids_of(right)
    assert list(left.contents or [""] * left.count) == list(right.contents or [""] * right.count)
    if left.count:
        assert (left.texts is None) == (right.texts is None)
    assert list(left.texts or []) == list(right.texts or [])


def assert_same_features(left: Items, right: Items) -> None:
    assert left.features is not None
    assert right.features is not None
    assert_same_matrix(left.features, right.features)


def assert_same_parts(left: Parts, right: Parts) -> None:
    assert_same_items(left.labels, right.labels)
    for a, b in ((left.train, right.train), (left.test, right.test)):
        assert_same_items(a.documents, b.documents)
        assert_same_matrix(a.truth, b.truth)
        assert a.filters.tolist() == b.filters.tolist()


def assert_same(left: Dataset, right: Dataset) -> None:
    """Equal in everything but the features."""
    assert_same_parts(left.parts, right.parts)
    assert (left.name, left.about, left.propensity) == (right.name, right.about, right.propensity)


TEXTS = st.text(
    st.sampled_from("ab,;:\"'[]{}\\\n\r\t é漢🎉\0\u2028\x85\ufeff") | st.characters(exclude_categories=["Cs"]),
    max_size=8,
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
_WEIGHTS = st.just(1.0) | st.floats(min_value=2.0**-140, max_value=2.0**127, width=32)


@st.composite
def _items(draw: st.DrawFn, least: int, most: int) -> Items:
    ids = draw(st.lists(TEXTS, min_size=least, max_size=most, unique=True))
    column = st.lists(TEXTS, min_size=len(ids), max_size=len(ids))
    return Items(len(ids), ids, draw(column), draw(st.none() | column))


@st.composite
def matrices(
    draw: st.DrawFn, rows: int, columns: int, weights: st.SearchStrategy[float] = _WEIGHTS
) -> sparse.csr_array:
    dense = np.zeros((rows, columns), dtype=np.float32)
    for row in range(rows):
        for column in draw(st.sets(st.integers(0, columns - 1), max_size=3)):
            dense[row, column] = draw(weights)
    return sparse.csr_array(dense)


@st.composite
def datasets(draw: st.DrawFn, *, weighted: bool = True) -> Dataset:
    """Datasets with texts, and all that a folder can hold beside them."""
    labels = draw(_items(1, 4))

    def part(least: int) -> Part:
        documents = draw(_items(least, 4))
        truth = draw(matrices(documents.count, labels.count, _WEIGHTS if weighted else st.just(1.0)))
        cells = [(row, column) for row in range(documents.count) for column in range(labels.count)]
        filters = sorted(draw(st.sets(st.sampled_from(cells), max_size=3))) if cells else []
        return Part(documents, truth, np.array(filters, dtype=np.int64).reshape(-1, 2))

    constants = st.floats(0, 10)
    about = draw(st.dictionaries(TEXTS.filter(lambda key: key not in ("name", "propensity")), _JSON, max_size=2))
    propensity = Propensity(draw(constants), draw(constants))
    return Dataset(draw(TEXTS), part(1), part(0), labels, propensity, about)


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def json_lines(*records: Any) -> bytes:  # noqa: ANN401 - JSON values
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def parquet(columns: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def _pack(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}


_LABELS = json_lines({"uid": "x", "title": "ex"}, {"uid": "y", "title": "why"}, {"uid": "z", "title": "zed"})
_RAW = {
    "trn.json": json_lines(
        {"uid": "a", "title": "one", "target_ind": [0, 2], "target_rel": [1.0, 0.5]},
        {"uid": "b", "title": "two", "content": "more", "target_ind": []},
    ),
    "tst.json": json_lines({"uid": "c", "title": "drei", "target_ind": [1]}),
    "lbl.json": _LABELS,
}
_SPARSE = {
    "trn_X_Xf.txt": b"2 4\n0:1 3:0.5\n1:2\n",
    "trn_X_Y.txt": b"2 3\n0:1 2:0.5\n\n",
    "tst_X_Xf.txt": b"1 4\n2:1\n",
    "tst_X_Y.txt": b"1 3\n1:1\n",
    "lbl_X_Xf.txt": b"3 4\n0:1\n1:1\n2:1\n",
    "Yf.txt": b"ex\nwhy\nzed\n",
    "trn_X.jsonl": json_lines({"uid": "a", "title": "one"}, {"uid": "b", "title": "two"}),
    "lbl_X.jsonl": _LABELS,
}
_SINGLE = {
    "train.txt": b"2 4 3\n0,2 0:1 3:0.5\n 1:2\n",
    "test.txt": b"1 4 3\n1 2:1\n",
    "Yf.txt": b"ex\nwhy\nzed\n",
    "trn_X.jsonl": json_lines({"uid": "a", "title": "one"}, {"uid": "b", "title": "two"}),
}
_CSV = {
    "train.csv": b'id,text,labels,weights\na,"on\ne",x;z,\nb,two,"[""y""]",[0.5]\n',
    "test.csv": b"id,text,labels\nc,drei,y\n",
    "labels.csv": b"id,text\nx,ex\ny,why\nz,zed\n",
}
_JSONL = {
    "train.jsonl": json_lines(
        {"id": "a", "text": "one", "labels": ["x", "z"], "weights": [1, 0.5]}, {"id": 7, "text": "two", "labels": "y"}
    ),
    "test.jsonl": json_lines({"id": "c", "text": "drei", "labels": ["y"]}),
    "labels.jsonl": json_lines({"id": "x", "text": "ex"}, {"id": "y", "text": "why"}, {"id": "z", "text": "zed"}),
}
_PARQUET = {
    "train.parquet": parquet({"id": ["a", "b"], "text": ["one", "two"], "labels": [["x", "z"], []]}),
    "test.parquet": parquet({"id": ["c"], "text": ["drei"], "labels": [["y"]]}),
    "labels.parquet": parquet({"id": ["x", "y", "z"], "text": ["ex", "why", "zed"]}),
}
_BESIDE = {
    "filter_labels_train.txt": b"0 1\n1 2\n",
    "filter_labels_test.txt": b"0 0\n",
    "dataset.json": b'{"name": "small", "propensity": {"A": 0.5, "B": 1.5}, "task": "test"}',
}

# Small valid folders: two training documents, one test document and three labels each.
FOLDERS = {
    "raw": _RAW | _BESIDE,
    "raw.gz": _pack(_RAW) | _BESIDE,
    "sparse": _SPARSE | _BESIDE,
    "sparse.gz": _pack(_SPARSE) | _BESIDE,
    "single": _SINGLE | _BESIDE,
    "single.gz": _pack(_SINGLE) | _BESIDE,
    "csv": _CSV | _BESIDE,
    "csv.gz": _pack(_CSV) | _BESIDE,
    "jsonl": _JSONL | _BESIDE,
    "jsonl.gz": _pack(_JSONL) | _BESIDE,
    "parquet": _PARQUET | _BESIDE,
}
