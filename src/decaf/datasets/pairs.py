"""Filter pairs: predictions that count neither for nor against, as files and by the paper's rule."""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from scipy import sparse

from decaf.datasets.files import read_bytes
from decaf.datasets.parts import Items, Pairs, Parts, no_pairs
from decaf.errors import DataError

__all__ = ["read_pairs", "with_pair_filters", "write_pairs"]


def read_pairs(path: Path, documents: int, labels: int) -> Pairs:
    """Read "document label" lines, sorted and without duplicates."""
    data = read_bytes(path)
    if not data.strip():
        return no_pairs()
    if re.search(rb"[^0-9 \t\r\n]", data):
        raise _bad_line(data, path, documents, labels)
    try:
        pairs: Pairs = np.loadtxt(BytesIO(data), dtype=np.int64, comments=None, ndmin=2)
    except (ValueError, OverflowError):
        pairs = np.empty((0, 0), dtype=np.int64)
    if pairs.shape[1] != 2 or np.any(pairs < 0) or np.any(pairs >= [documents, labels]):
        raise _bad_line(data, path, documents, labels)
    return np.unique(pairs, axis=0)


def write_pairs(pairs: Pairs, path: Path) -> None:
    """Write what `read_pairs` reads back."""
    with path.open("w", encoding="ascii", newline="\n") as stream:
        stream.writelines(f"{document} {label}\n" for document, label in pairs.tolist())


def with_pair_filters(parts: Parts) -> Parts:
    """Set both parts' filters by the paper's rule.

    A document never counts for the label that is the document itself; a test document B never counts for label A
    where training document A has label B. Documents and labels are the same thing when they share an id,
    or their text where no id is shared at all.
    """
    column = _shared_column(parts)
    train_own, test_own = (_own_labels(part.documents, parts.labels, column) for part in (parts.train, parts.test))
    # Training pair A->B forbids the test pair B->A: test documents that are B, times label rows of A.
    trained = parts.train.truth.astype(bool).astype(np.int64)
    reverse = test_own @ (trained.T @ train_own)  # [test documents, labels A]
    return Parts(
        replace(parts.train, filters=_pairs_of(train_own)),
        replace(parts.test, filters=_pairs_of(sparse.csr_array(test_own + reverse))),
        parts.labels,
    )


def _shared_column(parts: Parts) -> str | None:
    """What documents and labels are recognised by: ids where any is shared, or texts."""
    for column in ("ids", "texts"):
        names = set(getattr(parts.labels, column) or ())
        for part in (parts.train, parts.test):
            if names.intersection(getattr(part.documents, column) or ()):
                return column
    return None


def _own_labels(documents: Items, labels: Items, column: str | None) -> sparse.csr_array:
    """Which documents are which labels -> [documents, labels]."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate((getattr(labels, column) if column else None) or ()):
        rows.setdefault(name, []).append(row)
    names = (getattr(documents, column) if column else None) or ()
    pairs = [(at, row) for at, name in enumerate(names) for row in rows.get(name, ())]
    at = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return sparse.csr_array((np.ones(len(at), np.int64), (at[:, 0], at[:, 1])), shape=(documents.count, labels.count))


def _pairs_of(matrix: sparse.csr_array) -> Pairs:
    matrix.sort_indices()
    return np.column_stack(matrix.nonzero()).astype(np.int64)  # rows in order, columns sorted


def _bad_line(data: bytes, path: Path, documents: int, labels: int) -> DataError:
    """The error for the first line that is no pair of numbers within the limits."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not all(re.fullmatch(rb"[0-9]+", word) for word in words):
            shown = line[:40].decode("utf-8", "replace")
            return DataError.at(path, number, f'expected "document label", two whole numbers, found {shown!r}')
        if max(map(len, words)) > 18 or int(words[0]) >= documents or int(words[1]) >= labels:
            shown = line[:40].decode()
            limits = f"{documents} documents and {labels} labels (0-based)"
            return DataError.at(path, number, f"{shown!r} is out of range; there are {limits}")
    return DataError(f'{path}: expected lines of "document label"')
