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

__all__ = ["pair_matrix", "read_pairs", "reverse_pairs", "with_pair_filters", "write_pairs"]


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
    test_pairs = np.concatenate([_pairs_of(test_own), _reversed(test_own, parts.train.truth, train_own)])
    return Parts(
        replace(parts.train, filters=_pairs_of(train_own)),
        replace(parts.test, filters=np.unique(test_pairs, axis=0)),
        parts.labels,
    )


def reverse_pairs(own: Pairs, documents: int, truth: sparse.csr_array, trained_own: Pairs) -> Pairs:
    """The reverse of training pairs, for documents that are a label: (B, A) where training document A has label B.

    Which documents are which labels, these and the training ones, is told by pairs, as the paper's filters do.
    """
    return _reversed(pair_matrix(own, (documents, truth.shape[1])), truth, pair_matrix(trained_own, truth.shape))


def _reversed(own: sparse.csr_array, truth: sparse.csr_array, trained_own: sparse.csr_array) -> Pairs:
    """Documents that are B [documents, labels], times labels A of the training documents that have B."""
    trained = truth.astype(bool).astype(np.float32)
    return _pairs_of(sparse.csr_array(own @ (trained.T @ trained_own)))


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
    return pair_matrix(np.array(pairs, dtype=np.int64).reshape(-1, 2), (documents.count, labels.count))


def pair_matrix(pairs: Pairs, shape: tuple[int, int]) -> sparse.csr_array:
    """A one for every (document, label) pair."""
    return sparse.csr_array((np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])), shape=shape)


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
