"""Sparse matrices as text, "column:value column:value" a line: a fast path, and a slow one that names a bad line."""

from __future__ import annotations

import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from decaf.datasets.files import most_bytes, open_bytes, too_large
from decaf.errors import DataError
from decaf.progress import progress

__all__ = ["read_matrix", "read_single", "write_matrix", "write_single"]

_CHUNK = 8 << 20  # bytes of text parsed at a time
_MOST = 2**31 - 1  # rows or columns
_SPACE, _COLON, _NEWLINE, _COMMA = b" :\n,"
_PAIR = re.compile(r"([0-9]{1,18}):([0-9.eE+-]+)")


class _Rows(NamedTuple):
    """Consecutive rows of a matrix."""

    lengths: NDArray[np.int64]  # [rows]
    columns: NDArray[np.int32]  # [entries], ascending in each row
    values: NDArray[np.float32]  # [entries]


def read_matrix(path: Path) -> sparse.csr_array:
    """Read a file whose first line says "rows columns"."""
    with open_bytes(path) as stream:
        rows, columns = _header(stream, path, "rows columns")

        def fast(text: bytes) -> list[_Rows] | None:
            parsed = _fast_pairs(text, columns)
            return None if parsed is None else [parsed]

        def slow(text: bytes, line: int) -> list[_Rows]:
            return [_slow(text, path, line, lambda row, at: _slow_pairs(row, columns, path, at))]

        (chunks,) = _read_chunks(stream, fast, slow, parts=1)
    return _matrix(chunks, rows, columns, path)


def read_single(path: Path) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Read "label,label column:value ..." lines headed "documents features labels" -> features, truth."""
    with open_bytes(path) as stream:
        rows, columns, labels = _header(stream, path, "documents features labels")

        def fast(text: bytes) -> list[_Rows] | None:
            targets, pairs = _cut_targets(text)
            parsed = [_fast_pairs(pairs, columns), _fast_targets(targets, labels)]
            return [part for part in parsed if part is not None] if None not in parsed else None

        def slow(text: bytes, line: int) -> list[_Rows]:
            def features(row: str, at: int) -> dict[int, float]:
                return _slow_pairs(row.partition(" ")[2], columns, path, at)

            def targets(row: str, at: int) -> dict[int, float]:
                return _slow_targets(row.partition(" ")[0], labels, path, at)

            return [_slow(text, path, line, features), _slow(text, path, line, targets)]

        features, truth = _read_chunks(stream, fast, slow, parts=2)
    return _matrix(features, rows, columns, path), _matrix(truth, rows, labels, path)


def write_matrix(matrix: sparse.csr_array, path: Path) -> None:
    """Write what `read_matrix` reads back exactly."""
    with path.open("wb") as out:
        out.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        with progress(f"writing {path.name}", matrix.shape[0]) as advance:
            for _, block in _blocks(matrix):
                out.write("".join(f"{row}\n" for row in _pair_lines(block)).encode())
                advance(block.shape[0])


def write_single(features: sparse.csr_array, truth: sparse.csr_array, path: Path) -> None:
    """Write what `read_single` reads back exactly; the layout holds no label weights."""
    if not np.all(truth.data == 1):
        raise DataError("the single-file layout holds no label weights other than 1; convert to sparse instead")
    with path.open("wb") as out:
        out.write(f"{features.shape[0]} {features.shape[1]} {truth.shape[1]}\n".encode())
        with progress(f"writing {path.name}", features.shape[0]) as advance:
            for start, block in _blocks(features):
                targets = truth[start : start + block.shape[0]]
                bounds, indices = targets.indptr.tolist(), targets.indices.tolist()
                for row, pairs in enumerate(_pair_lines(block)):
                    names = ",".join(map(str, indices[bounds[row] : bounds[row + 1]]))
                    out.write(f"{names} {pairs}\n".encode())
                advance(block.shape[0])


def _blocks(matrix: sparse.csr_array, rows: int = 16384) -> Iterator[tuple[int, sparse.csr_array]]:
    for start in range(0, matrix.shape[0], rows):
        yield start, matrix[start : start + rows]


def _pair_lines(block: sparse.csr_array) -> Iterator[str]:
    bounds, columns = block.indptr.tolist(), block.indices.tolist()
    values = [str(value) for value in block.data]  # the shortest text that reads back as the same float32
    for start, end in pairwise(bounds):
        yield " ".join(f"{columns[at]}:{values[at]}" for at in range(start, end))


def _header(stream: IO[bytes], path: Path, names: str) -> list[int]:
    """The numbers of the first line."""
    line = stream.readline(1000)
    expected = f'expected a header "{names}" of {len(names.split())} whole numbers'
    if not line:
        raise DataError(f"{path}: is empty; {expected}")
    numbers = line.split()
    if len(numbers) != len(names.split()) or not all(re.fullmatch(rb"[0-9]{1,18}", number) for number in numbers):
        raise DataError.at(path, 1, f"{expected}, found {line[:60].decode('utf-8', 'replace').strip()!r}")
    sizes = [int(number) for number in numbers]
    if max(sizes) > _MOST:
        raise DataError.at(path, 1, f"sizes over {_MOST} are not supported, found {max(sizes)}")
    if 8 * max(sizes) > (most := most_bytes(path)):  # what is counted by column takes eight bytes for each
        raise too_large(path, most)
    return sizes


def _matrix(chunks: list[_Rows], rows: int, columns: int, path: Path) -> sparse.csr_array:
    lengths = np.concatenate([chunk.lengths for chunk in chunks]) if chunks else np.empty(0, np.int64)
    if len(lengths) != rows:
        raise DataError(f"{path}: the header promises {rows} rows and the file has {len(lengths)}; is it whole?")
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    index = np.int32 if indptr[-1] <= _MOST else np.int64
    indices = np.concatenate([chunk.columns for chunk in chunks]) if chunks else np.empty(0, np.int32)
    values = np.concatenate([chunk.values for chunk in chunks]) if chunks else np.empty(0, np.float32)
    chunks.clear()  # half of the peak
    matrix = sparse.csr_array((values, indices.astype(index, copy=False), indptr.astype(index)), shape=(rows, columns))
    matrix.has_canonical_format = True
    if not values.all():
        matrix.eliminate_zeros()
    return matrix


def _read_chunks(
    stream: IO[bytes],
    fast: Callable[[bytes], list[_Rows] | None],
    slow: Callable[[bytes, int], list[_Rows]],
    parts: int,
) -> list[list[_Rows]]:
    """Parse a file's rows chunk by chunk on all cores; a chunk that the fast path does not take goes the slow one."""
    results: list[list[_Rows]] = [[] for _ in range(parts)]
    line = 2  # behind the header
    workers = os.cpu_count() or 1
    waiting: deque[tuple[bytes, Future[list[_Rows] | None]]] = deque()

    def collect() -> int:
        text, future = waiting.popleft()
        parsed = future.result()
        if parsed is None:
            parsed = slow(text, line)
        for result, part in zip(results, parsed, strict=True):
            result.append(part)
        return len(parsed[0].lengths)

    with ThreadPoolExecutor(workers) as pool:
        for text in _texts(stream):
            waiting.append((text, pool.submit(fast, text)))
            if len(waiting) > workers:
                line += collect()
        while waiting:
            line += collect()
    return results


def _texts(stream: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, about a chunk at a time, each ended by one newline, with single spaces between words."""
    while text := stream.read(_CHUNK):
        text += stream.readline()
        if not text.endswith(b"\n"):
            text += b"\n"
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        if b"\t" in text:
            text = text.replace(b"\t", b" ")
        if b"  " in text:
            text = re.sub(rb" {2,}", b" ", text)
        yield text.replace(b" \n", b"\n")


def _fast_pairs(text: bytes, columns: int) -> _Rows | None:
    """Rows of "column:value" pairs, or None where anything is out of the ordinary."""
    data = np.frombuffer(text.replace(b"\n ", b"\n").removeprefix(b" "), dtype=np.uint8)
    ends = np.flatnonzero((data == _SPACE) | (data == _COLON) | (data == _NEWLINE))  # of words
    kinds = data[ends]
    starts = np.concatenate([[0], ends[:-1] + 1])
    line_start = np.concatenate([[True], kinds[:-1] == _NEWLINE])
    word = ~(line_start & (kinds == _NEWLINE) & (starts == ends))  # all but the end of an empty row
    starts, word_ends, word_kinds = starts[word], ends[word], kinds[word]
    if len(starts) % 2 or np.any(word_kinds[0::2] != _COLON) or np.any(word_kinds[1::2] == _COLON):
        return None
    indices = _integers(data, starts[0::2], word_ends[0::2], columns)
    values = _floats(data, starts[1::2], word_ends[1::2])
    if indices is None or values is None:
        return None
    pairs_before = np.cumsum(kinds == _COLON)[kinds == _NEWLINE]
    return _sorted_rows(np.diff(pairs_before, prepend=0), indices, values)


def _fast_targets(text: bytes, labels: int) -> _Rows | None:
    """Rows of "label,label", or None where anything is out of the ordinary."""
    data = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero((data == _COMMA) | (data == _NEWLINE))
    kinds = data[ends]
    starts = np.concatenate([[0], ends[:-1] + 1])
    line_start = np.concatenate([[True], kinds[:-1] == _NEWLINE])
    word = ~(line_start & (kinds == _NEWLINE) & (starts == ends))
    indices = _integers(data, starts[word], ends[word], labels)
    if indices is None:
        return None
    words_before = np.cumsum(word)[kinds == _NEWLINE]
    return _sorted_rows(np.diff(words_before, prepend=0), indices, np.ones(len(indices), dtype=np.float32))


def _cut_targets(text: bytes) -> tuple[bytes, bytes]:
    """Lines of "label,label column:value ..." -> lines of the labels, lines of the pairs."""
    data = np.frombuffer(text, dtype=np.uint8)
    line_ends = np.flatnonzero(data == _NEWLINE)
    line_starts = np.concatenate([[0], line_ends[:-1] + 1])
    spaces = np.concatenate([np.flatnonzero(data == _SPACE), [len(data)]])
    cuts = np.minimum(spaces[np.searchsorted(spaces, line_starts)], line_ends)  # first space, or the line's end
    target = np.zeros(len(data) + 1, dtype=np.int8)
    np.add.at(target, line_starts, 1)
    np.add.at(target, cuts, -1)
    in_target = np.cumsum(target[:-1], dtype=np.int8).astype(bool)
    newline = data == _NEWLINE
    pairs = ~in_target
    pairs[cuts[cuts < line_ends]] = False  # the space between the two
    return data[in_target | newline].tobytes(), data[pairs].tobytes()


def _integers(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], limit: int
) -> NDArray[np.int32] | None:
    """The whole numbers at these places, or None unless all are plain digits and below the limit."""
    sizes = ends - starts
    if not len(sizes):
        return np.empty(0, dtype=np.int32)
    if sizes.min() < 1 or sizes.max() > 10:
        return None
    numbers = np.zeros(len(sizes), dtype=np.int64)
    for place in range(int(sizes.max())):
        there = sizes > place
        digits = data[np.where(there, starts + place, starts)].astype(np.int64) - ord("0")
        if np.any((digits < 0) | (digits > 9)):
            return None
        numbers = np.where(there, numbers * 10 + digits, numbers)
    return numbers.astype(np.int32) if numbers.max() < limit else None


def _floats(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """The numbers at these places, or None unless all are finite and not negative."""
    inside = np.zeros(len(data) + 1, dtype=np.int8)
    inside[starts] = 1
    inside[ends] -= 1
    letters = data[np.cumsum(inside[:-1], dtype=np.int8).astype(bool)]
    offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int32)
    words = pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    try:
        values: NDArray[np.float32] = words.cast(pa.float32()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return values if np.all(np.isfinite(values) & (values >= 0)) else None


def _sorted_rows(lengths: NDArray[np.int64], columns: NDArray[np.int32], values: NDArray[np.float32]) -> _Rows | None:
    """The rows with ascending columns, or None where a row names a column twice."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    same_row = row[1:] == row[:-1]
    if np.any(same_row & (columns[1:] <= columns[:-1])):
        order = np.lexsort((columns, row))
        columns, values = columns[order], values[order]
        if np.any(same_row & (columns[1:] == columns[:-1])):
            return None
    return _Rows(lengths, columns, values)


def _slow(text: bytes, path: Path, line: int, parse: Callable[[str, int], dict[int, float]]) -> _Rows:
    """Line by line, with an error that names the line."""
    lengths: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for at, row_bytes in enumerate(text.split(b"\n")[:-1], start=line):
        try:
            row = parse(row_bytes.decode("ascii"), at)
        except UnicodeDecodeError as error:
            raise DataError.at(path, at, f"byte {error.object[error.start]:#04x} is not a digit") from error
        lengths.append(len(row))
        columns.extend(sorted(row))
        values.extend(row[column] for column in sorted(row))
    return _Rows(np.array(lengths, np.int64), np.array(columns, np.int32), np.array(values, np.float32))


def _slow_pairs(row: str, columns: int, path: Path, line: int) -> dict[int, float]:
    pairs: dict[int, float] = {}
    for word in row.split():
        match = _PAIR.fullmatch(word)
        try:
            value = float(match[2]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            raise DataError.at(path, line, f'expected "column:value", found {word[:40]!r}')
        column = int(match[1])
        if column >= columns:
            raise DataError.at(path, line, f"column {column} is out of range; the header says {columns} (0-based)")
        if not 0 <= value < 3.4028235677973366e38:  # from there on float32 rounds to infinity
            raise DataError.at(path, line, f"value {match[2]!r} must be a finite number, 0 or more")
        if column in pairs:
            raise DataError.at(path, line, f"column {column} is there twice")
        pairs[column] = value
    return pairs


def _slow_targets(word: str, labels: int, path: Path, line: int) -> dict[int, float]:
    targets: dict[int, float] = {}
    for name in word.split(",") if word else []:
        if not re.fullmatch("[0-9]{1,18}", name):
            raise DataError.at(path, line, f'expected "label,label" before the features, found {word[:40]!r}')
        if int(name) >= labels:
            raise DataError.at(path, line, f"label {name} is out of range; the header says {labels} (0-based)")
        if int(name) in targets:
            raise DataError.at(path, line, f"label {name} is there twice")
        targets[int(name)] = 1.0
    return targets
