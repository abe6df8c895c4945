"""A file of documents, read one after another: plain texts, CSV, JSON lines or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from decaf.datasets.files import read_lines, read_records
from decaf.datasets.tables import ID_COLUMNS, TEXT_COLUMNS, open_csv, parquet_records, text_cell, usual_column
from decaf.errors import DataError

__all__ = ["INPUTS", "STANDARD_INPUT", "Document", "kind_of", "open_documents"]

INPUTS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
STANDARD_INPUT = Path("-")

Document = tuple[str, str]  # id and text
_Record = tuple[int, dict[str, Any]]  # line (in Parquet: row) and cells
_Columns = tuple[str, str | None]  # of the text and of the id
_PARQUET_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


def kind_of(path: Path, known: Sequence[str]) -> str:
    """The suffix that names the format, `.gz` taken off where the format is a text."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in known or (suffix == ".parquet" and path.suffix == ".gz"):
        raise DataError(f"{path}: cannot tell the format; expected a name in {', '.join(known)} (texts also with .gz)")
    return suffix


def open_documents(source: Path, text: str) -> Generator[Document, None, None]:
    """The documents of a file; whether it has the columns is known at once."""
    kind = ".txt" if source == STANDARD_INPUT else kind_of(source, INPUTS)
    if kind == ".txt":
        if text:
            raise DataError(f"{source}: is read as one text a line and has no column {text!r}; leave --text out")
        return ((str(row), line) for row, line in enumerate(_text_lines(source)))
    if kind == ".parquet":
        file = _open_parquet(source)
        columns = _choose_columns(source, file.schema_arrow.names, text)
        wanted = list(dict.fromkeys(name for name in columns if name is not None))
        return _documents(source, parquet_records(source, file, wanted), columns)
    header, records = _open_json(source) if "json" in kind else open_csv(source, "\t" if kind == ".tsv" else None)
    columns = _choose_columns(source, header, text) if header else ("", None)
    return _documents(source, records, columns)


def _text_lines(source: Path) -> Iterator[str]:
    if source != STANDARD_INPUT:
        yield from (line.rstrip("\r\n") for _, line in read_lines(source))
        return
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"standard input, line {number}: is not UTF-8; convert it first") from error


def _open_json(path: Path) -> tuple[list[str], Iterator[_Record]]:
    """Column names, which are those of the first row, and rows."""
    records = read_records(path)
    first = next(records, None)
    return ([], iter(())) if first is None else (list(first[1]), chain([first], records))


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, buffer_size=1 << 20)  # a row group may be larger than memory
    except _PARQUET_ERRORS as error:
        raise DataError(f"{path}: is not valid Parquet ({error})") from error


def _choose_columns(path: Path, header: Sequence[str], chosen: str) -> _Columns:
    """The column of the text, and that of the id where there is one."""
    text = chosen if chosen in header else None
    if not chosen:
        text = usual_column(header, TEXT_COLUMNS)
    if text is None:
        wanted = f"a column {chosen!r}" if chosen else f"a column of the text ({', '.join(TEXT_COLUMNS)})"
        raise DataError(f"{path}: expected {wanted}, found {', '.join(map(repr, header))}; name it with --text COLUMN")
    return text, usual_column(header, ID_COLUMNS)


def _documents(path: Path, records: Iterable[_Record], columns: _Columns) -> Generator[Document, None, None]:
    """Ids and texts; without an id column, documents are numbered from 0."""
    text, name = columns
    for row, (line, record) in enumerate(records):
        yield str(row) if name is None else text_cell(record, name, path, line), text_cell(record, text, path, line)
