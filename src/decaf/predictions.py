"""Predictions: the labels chosen for each document, best first. The one result type."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from decaf.datasets.files import most_bytes, too_large
from decaf.datasets.parts import Pairs, pair_keys
from decaf.errors import DataError

__all__ = ["Match", "Predictions", "drop_pairs", "load_scores", "save_scores"]

_BLOCK = 1 << 22  # entries ranked at a time
_UNREADABLE = (
    *(OSError, ValueError, KeyError, IndexError, EOFError, TypeError, AttributeError, RuntimeError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


class Match(NamedTuple):
    """One label chosen for a document."""

    label: int
    score: float


@dataclass(frozen=True, eq=False)
class Predictions:
    """For each document its best labels: ids and scores, best first; -1 where a document has fewer."""

    ids: NDArray[np.int64]  # [documents, top]
    scores: NDArray[np.float32]  # [documents, top], descending; -inf where the id is -1

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.scores.shape:
            raise ValueError(
                f"ids {self.ids.shape} and scores {self.scores.shape} must be of one two-dimensional shape"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, document: int) -> list[Match]:
        there = self.ids[document] >= 0
        pairs = zip(self.ids[document][there].tolist(), self.scores[document][there].tolist(), strict=True)
        return [Match(label, score) for label, score in pairs]

    def __iter__(self) -> Iterator[list[Match]]:
        return (self[document] for document in range(len(self)))

    @property
    def top(self) -> int:
        """The most labels that a document can have."""
        return int(self.ids.shape[1])

    @classmethod
    def from_csr(cls, scores: sparse.csr_array, top: int) -> Predictions:
        """The `top` best stored entries of each row; of equal scores, the label with the higher number goes first."""
        scores = sparse.csr_array(scores)
        if not scores.has_sorted_indices:
            scores = scores.sorted_indices()
        ids = np.full((scores.shape[0], top), -1, dtype=np.int64)
        best = np.full((scores.shape[0], top), -np.inf, dtype=np.float32)
        lengths = np.diff(scores.indptr)
        # Rows of like length together, so that padding them to one width costs little.
        order = np.argsort(lengths, kind="stable")
        start = int(np.searchsorted(lengths[order], 1))
        while start < len(order):
            width = max(1, int(lengths[order[start]]))
            end = start + max(1, _BLOCK // (2 * width))
            end = min(end, int(np.searchsorted(lengths[order], 2 * width, side="right")))
            rows = order[start:end]
            ids[rows], best[rows] = _rank_rows(scores, rows, top)
            start = end
        return cls(ids, best)

    def to_csr(self, labels: int) -> sparse.csr_array:
        """Scores as a matrix -> [documents, labels]."""
        there = self.ids >= 0
        indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        matrix = sparse.csr_array((self.scores[there], self.ids[there], indptr), shape=(len(self), labels))
        matrix.sort_indices()
        return matrix

    def take(self, documents: Sequence[int], top: int) -> Predictions:
        """The `top` best labels of these documents."""
        return Predictions(self.ids[documents, :top], self.scores[documents, :top])

    def above(self, threshold: float) -> Predictions:
        """The same predictions without labels that score less."""
        kept = self.scores >= threshold
        return Predictions(np.where(kept, self.ids, -1), np.where(kept, self.scores, np.float32(-np.inf)))

    def without(self, pairs: Pairs, labels: int) -> Predictions:
        """The same predictions with these (document, label) pairs taken out; what was behind them moves up."""
        rows = np.unique(pairs[:, 0])
        before = self.ids[rows]
        kept = (before >= 0) & ~_among(pair_keys(rows[:, None], before, labels), pairs, labels)
        order = np.argsort(~kept, axis=1, kind="stable")
        ids, scores = self.ids.copy(), self.scores.copy()
        ids[rows] = np.take_along_axis(np.where(kept, before, -1), order, axis=1)
        scores[rows] = np.take_along_axis(np.where(kept, self.scores[rows], np.float32(-np.inf)), order, axis=1)
        return Predictions(ids, scores)


def drop_pairs(matrix: sparse.csr_array, pairs: Pairs) -> sparse.csr_array:
    """The matrix without the entries at these (document, label) pairs."""
    if not len(pairs):
        return matrix
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    kept = ~_among(pair_keys(rows, matrix.indices.astype(np.int64), matrix.shape[1]), pairs, matrix.shape[1])
    lengths = np.bincount(rows[kept], minlength=matrix.shape[0])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_array((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)


def load_scores(path: Path, documents: int, labels: int) -> sparse.csr_array:
    """Read anybody's predictions: a sparse matrix [documents, labels] as scipy.sparse.save_npz writes it."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path (decaf match writes such a one)")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is no .npz file; expected a sparse matrix as scipy.sparse.save_npz writes it")
    try:
        with path.open("rb") as stream:
            shape = _stored_shape(path, stream)
            if shape != (documents, labels):
                found = " x ".join(map(str, shape))
                raise DataError(f"{path}: is {found}; expected {documents} documents x {labels} labels")
            stream.seek(0)
            scores = _as_csr(sparse.load_npz(stream))
        scores.sum_duplicates()
    except _UNREADABLE as error:
        advice = "expected a sparse matrix as scipy.sparse.save_npz writes it"
        raise DataError(f"{path}: cannot be read ({error}); {advice}") from error
    if scores.dtype.kind not in "fiub" or np.any(np.isnan(scores.data)):
        raise DataError(
            f"{path}: expected real numbers as scores, found {scores.dtype} with values that are not numbers"
        )
    return scores


def _stored_shape(path: Path, stream: IO[bytes]) -> tuple[int, ...]:
    """The shape of a stored matrix, when no part of it takes more memory than it has bytes, nor all too much."""
    with zipfile.ZipFile(stream) as stored:
        sizes = {member.filename: member.file_size for member in stored.infolist()}
        if sum(sizes.values()) > (most := most_bytes(path)):
            raise too_large(path, most)
        for name, size in sizes.items():
            with stored.open(name) as member:
                count, dtype = _npy_header(member)
                if count * dtype.itemsize > size - member.tell():
                    raise ValueError(f"{name} promises more than it holds")
        with stored.open("shape.npy") as member:
            shape = np.lib.format.read_array(member, allow_pickle=False)
    return tuple(int(size) for size in shape.ravel())


def _as_csr(stored: Any) -> sparse.csr_array:  # noqa: ANN401 - a matrix of any layout
    """The matrix by rows; its numbers are looked at first, as what rewrites it looks nothing up twice."""
    if stored.format == "dia" and not np.all((stored.offsets > -stored.shape[0]) & (stored.offsets < stored.shape[1])):
        raise ValueError("a diagonal lies outside")
    if stored.format in ("csr", "csc", "bsr"):
        stored.check_format(full_check=True)
    scores = sparse.csr_array(stored)
    scores.check_format(full_check=True)
    return scores


def _npy_header(stream: IO[bytes]) -> tuple[int, np.dtype[Any]]:
    """How many values an array has, and of which type."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(stream)
    except (SyntaxError, tokenize.TokenError) as error:
        raise ValueError(f"its header is damaged ({error})") from error
    if any(size < 0 for size in shape):
        raise ValueError("an array has less than nothing")
    return math.prod(shape), dtype


def save_scores(scores: sparse.csr_array, path: Path) -> None:
    """Write what `load_scores` reads; a file that is there is replaced only by a whole one."""
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as stream:
            sparse.save_npz(stream, scores)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _rank_rows(
    scores: sparse.csr_array, rows: NDArray[np.int64], top: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The best entries of these rows of like length -> ids and scores, [rows, top]."""
    starts = scores.indptr[rows].astype(np.int64)[:, None]
    lengths = np.diff(scores.indptr)[rows][:, None]
    width = int(lengths.max())
    at = np.arange(width)
    there = at < lengths
    places = np.where(there, starts + at, 0)
    values = np.where(there, scores.data[places], -np.inf)
    # Ascending and stable, then reversed: ties end with the higher label first; padding, at the row's end, goes ahead
    # of a stored -inf, so such a score is no prediction.
    order = np.argsort(values, axis=1, kind="stable")[:, ::-1][:, :top]
    chosen = np.take_along_axis(values, order, axis=1)
    found = np.take_along_axis(np.where(there, scores.indices[places], -1), order, axis=1)
    ids = np.full((len(rows), top), -1, dtype=np.int64)
    best = np.full((len(rows), top), -np.inf, dtype=np.float32)
    ids[:, : order.shape[1]] = np.where(np.isneginf(chosen), -1, found)
    limit = np.finfo(np.float32).max
    best[:, : order.shape[1]] = np.where(np.isfinite(chosen), np.clip(chosen, -limit, limit), chosen)
    return ids, best


def _among(keys: NDArray[np.int64], pairs: Pairs, labels: int) -> NDArray[np.bool_]:
    """Whether each key is one of these pairs."""
    if not len(pairs):
        return np.zeros(keys.shape, dtype=bool)
    wanted = np.sort(pair_keys(pairs[:, 0], pairs[:, 1], labels))
    place = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    found: NDArray[np.bool_] = wanted[place] == keys
    return found
