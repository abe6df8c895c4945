"""Filter pairs: predictions that count neither for nor against, as files and by the paper's rule."""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from decaf.datasets.files import read_bytes
from decaf.datasets.parts import Items, Pairs, Parts, no_pairs
from decaf.errors import DataError

__all__ = ["read_pairs", "with_pair_filters", "write_pairs"]


def read_pairs(path: Path, documents: int, labels: int) -> Pairs:
    """Read "document label" lines, sorted and without duplicates."""
    data = read_bytes(path)
    if not data.strip():
        return no_pairs()
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
    train_labels = _own_labels(parts.train.documents, parts.labels)
    test_labels = _own_labels(parts.test.documents, parts.labels)
    train_self, test_self = _self_pairs(train_labels), _self_pairs(test_labels)
    # Training pair A->B forbids the test pair B->A: label rows of A by label rows of B.
    truth = parts.train.truth.tocoo()
    source, target = train_labels[truth.row], truth.col.astype(np.int64)
    target, source = target[source >= 0], source[source >= 0]
    document_of_label = np.full(parts.labels.count, -1, dtype=np.int64)
    document_of_label[test_self[:, 1]] = test_self[:, 0]
    reverse = np.column_stack([document_of_label[target], source])
    test_pairs = np.concatenate([test_self, reverse[reverse[:, 0] >= 0]])
    return Parts(
        replace(parts.train, filters=train_self),
        replace(parts.test, filters=np.unique(test_pairs, axis=0)),
        parts.labels,
    )


def _own_labels(documents: Items, labels: Items) -> NDArray[np.int64]:
    """For each document the label that is the same thing, or -1."""
    for column, names in ((documents.ids, labels.ids), (documents.texts, labels.texts)):
        if column is None or names is None:
            continue
        rows = {name: row for row, name in enumerate(names)}
        own = np.array([rows.get(name, -1) for name in column], dtype=np.int64)
        if np.any(own >= 0):
            return own
    return np.full(documents.count, -1, dtype=np.int64)


def _self_pairs(own: NDArray[np.int64]) -> Pairs:
    documents = np.flatnonzero(own >= 0)
    return np.column_stack([documents, own[documents]])


def _bad_line(data: bytes, path: Path, documents: int, labels: int) -> DataError:
    """The error for the first line that is no pair of numbers within the limits."""
    for number, line in enumerate(data.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not all(re.fullmatch(rb"[0-9]+", word) for word in words):
            shown = line[:40].decode("utf-8", "replace")
            return DataError.at(path, number, f'expected "document label", two whole numbers, found {shown!r}')
        if int(words[0]) >= documents or int(words[1]) >= labels:
            shown = line[:40].decode()
            limits = f"{documents} documents and {labels} labels (0-based)"
            return DataError.at(path, number, f"{shown!r} is out of range; there are {limits}")
    return DataError(f'{path}: expected lines of "document label"')
