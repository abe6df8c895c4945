"""The pieces every reader makes and every writer takes: documents, labels, and which belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.errors import DataError

__all__ = [
    "Items",
    "Pairs",
    "Part",
    "Parts",
    "Rows",
    "empty_matrix",
    "empty_part",
    "no_pairs",
    "pair_keys",
    "truth_matrix",
]

Rows = NDArray[np.int64]  # row numbers
Pairs = NDArray[np.int64]  # [pairs, 2]: document row, label row


@dataclass(frozen=True, eq=False)
class Items:
    """Documents or labels: each has text, or ready features, or both; without ids, the row number is the id."""

    count: int
    ids: Sequence[str] | None = None
    texts: Sequence[str] | None = None  # titles
    contents: Sequence[str] | None = None  # the longer text behind a title, where a dataset has it
    features: sparse.csr_array | None = None  # [count, tokens]

    def __post_init__(self) -> None:
        for name in ("ids", "texts", "contents"):
            column = getattr(self, name)
            if column is not None and len(column) != self.count:
                raise DataError(f"{len(column)} {name} for {self.count} rows; there must be one for each")
        if self.features is not None and self.features.shape[0] != self.count:
            raise DataError(f"{self.features.shape[0]} feature rows for {self.count} rows; there must be one for each")

    def id(self, row: int) -> str:
        """The user's name for a row."""
        return str(row) if self.ids is None else self.ids[row]

    def text(self, row: int) -> str:
        """What a person reads for a row: its text, or its id where there is none."""
        return self.id(row) if self.texts is None else self.texts[row]

    def need_features(self) -> sparse.csr_array:
        """The features, or an error where there are none."""
        if self.features is None:
            raise DataError("these documents or labels have no features; make them with decaf.with_features")
        return self.features

    def take(self, rows: Rows) -> Items:
        """These rows, in this order; ids are kept, so a row keeps its name."""

        def pick(column: Sequence[str] | None) -> list[str] | None:
            return None if column is None else [column[row] for row in rows]

        return Items(
            count=len(rows),
            ids=[str(row) for row in rows] if self.ids is None else pick(self.ids),
            texts=pick(self.texts),
            contents=pick(self.contents),
            features=None if self.features is None else self.features[rows],
        )


@dataclass(frozen=True, eq=False)
class Part:
    """Documents with their labels: the training part of a dataset, or its test part."""

    documents: Items
    truth: sparse.csr_array  # [documents, labels], float32; a stored entry is a label of the document
    filters: Pairs  # predictions that count neither for nor against: a page with itself, B->A where A->B was trained

    def __post_init__(self) -> None:
        if self.truth.shape[0] != self.documents.count:
            raise DataError(
                f"{self.documents.count} documents but labels for {self.truth.shape[0]}; both files must list the same"
            )

    def take(self, rows: Rows) -> Part:
        """These documents, in this order, with their labels and filters."""
        position = np.full(self.documents.count, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        kept = self.filters[position[self.filters[:, 0]] >= 0]
        filters = np.column_stack([position[kept[:, 0]], kept[:, 1]])
        return Part(self.documents.take(rows), self.truth[rows], filters[np.lexsort((filters[:, 1], filters[:, 0]))])

    def take_labels(self, columns: Rows) -> Part:
        """The same documents with these labels only, renumbered in this order."""
        position = np.full(self.truth.shape[1], -1, dtype=np.int64)
        position[columns] = np.arange(len(columns))
        kept = self.filters[position[self.filters[:, 1]] >= 0]
        truth = self.truth[:, columns]
        truth.sort_indices()
        return replace(self, truth=truth, filters=np.column_stack([kept[:, 0], position[kept[:, 1]]]))


class Parts(NamedTuple):
    """What a reader returns: a dataset without its name and constants."""

    train: Part
    test: Part
    labels: Items


def empty_part(labels: int) -> Part:
    """No documents at all."""
    return Part(Items(0, [], []), empty_matrix(labels), no_pairs())


def empty_matrix(columns: int) -> sparse.csr_array:
    """A matrix without rows."""
    return truth_matrix([0], [], [], columns)


def no_pairs() -> Pairs:
    """An empty list of filter pairs."""
    return np.empty((0, 2), dtype=np.int64)


def pair_keys(rows: Rows, columns: Rows, labels: int) -> Rows:
    """One sortable number for each (document, label) pair."""
    return rows * np.int64(max(labels, 1)) + columns


def truth_matrix(
    indptr: Sequence[int], indices: Sequence[int], weights: Sequence[float], labels: int
) -> sparse.csr_array:
    """Label lists in row order -> CSR with sorted rows, zero weights dropped; the lists must hold no duplicates."""
    matrix = sparse.csr_array(
        (
            np.asarray(weights, dtype=np.float32),
            np.asarray(indices, dtype=np.int64),
            np.asarray(indptr, dtype=np.int64),
        ),
        shape=(len(indptr) - 1, labels),
    )
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix
