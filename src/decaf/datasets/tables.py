"""The user's own tables: CSV, JSON lines or Parquet with a text column and a column of labels."""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from decaf.config import TableSettings
from decaf.datasets.columns import ItemColumns, TargetColumns, text_of
from decaf.datasets.files import find_file, most_bytes, read_lines, read_records, too_large
from decaf.datasets.parts import Items, Part, Parts, empty_part, no_pairs
from decaf.errors import DataError
from decaf.progress import progress

__all__ = [
    "ID_COLUMNS",
    "TABLE_SUFFIXES",
    "TEXT_COLUMNS",
    "open_csv",
    "parquet_records",
    "read_tables",
    "table_files",
    "text_cell",
    "usual_column",
    "write_tables",
]

log = logging.getLogger(__name__)

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
TEXT_COLUMNS = ("text", "title", "name", "query", "document")
_LABELS = ("labels", "label", "targets", "target", "tags", "categories")
ID_COLUMNS = ("id", "uid")
_SEPARATORS = ";|,\t"
_QUOTED = 'a cell with the delimiter, a quote or a line break in it stands in quotes, and a quote in it twice: ""'
_ROWS = 1024  # of Parquet, read at a time
_ROW = 64  # bytes that a row takes at the least, however short

_Record = tuple[int, dict[str, Any]]  # line (in Parquet: row) and cells


def table_files(path: Path, settings: TableSettings) -> list[Path]:
    """Documents to train on, documents to test on and the label table, as far as they are there."""
    files = [file for file in _find_tables(path, settings) if file is not None]
    for file in files:
        if not file.is_file():
            raise DataError(f"{file}: there is no such file; check the path")
    return files


def read_tables(path: Path, settings: TableSettings) -> Parts:
    """Read one file of documents, or a folder with train, test and labels files."""
    train_file, test_file, label_file = _find_tables(path, settings)
    if train_file is None:
        raise DataError(f"{path}: expected train.csv, train.jsonl or train.parquet")
    names = _LabelNames() if label_file is None else _LabelNames.read(label_file, settings)
    train, train_targets = _read_documents(train_file, settings, names)
    if not train.count:
        raise DataError(f"{train_file}: is empty; expected a text and its labels in each row")
    test = None if test_file is None else _read_documents(test_file, settings, names)
    labels = names.columns.items()
    if not labels.count:
        raise DataError(f"{train_file}: no row has a label; the labels column is where they belong")
    return Parts(
        Part(train, train_targets.truth(labels.count), no_pairs()),
        empty_part(labels.count) if test is None else Part(test[0], test[1].truth(labels.count), no_pairs()),
        labels,
    )


def write_tables(parts: Parts, folder: Path, suffix: str) -> None:
    """Write train, test and labels; label cells are lists of label ids (JSON arrays in CSV)."""
    write = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}[suffix]
    for name, part in (("train", parts.train), ("test", parts.test)):
        write(folder / f"{name}{suffix}", _item_cells(part.documents) | _target_cells(part, parts.labels))
    write(folder / f"labels{suffix}", _item_cells(parts.labels))


def _find_tables(path: Path, settings: TableSettings) -> tuple[Path | None, Path | None, Path | None]:
    if path.is_file():
        return path, None, Path(settings.label_file) if settings.label_file else None
    train, test, labels = (
        find_file(path, *(f"{stem}{suffix}" for suffix in TABLE_SUFFIXES)) for stem in ("train", "test", "labels")
    )
    return train, test, labels


class _LabelNames:
    """What a cell may call a label: its id, its text where only one label has it, or a new name."""

    def __init__(self, path: Path = Path("labels")) -> None:
        self.columns = ItemColumns(path)
        self._rows: dict[str, int] = {}  # by id
        self._rows_by_text: dict[str, int | None] = {}  # None where several labels share the text

    @classmethod
    def read(cls, path: Path, settings: TableSettings) -> _LabelNames:
        """The labels of a label table, in its order."""
        names = cls(path)
        header, records = _open_table(path)
        text_column = _column(header, "", TEXT_COLUMNS, "label text", path)
        id_column = _id_column(header, settings, path)
        for line, record in records:
            text = text_cell(record, text_column, path, line)
            names._add(line, text if id_column is None else text_cell(record, id_column, path, line), text, record)
        return names

    def row(self, name: str, path: Path, line: int) -> int:
        """The label's row; a name that nobody knows yet becomes a label with that text."""
        row = self._rows.get(name)
        if row is not None:
            return row
        if name not in self._rows_by_text:
            return self._add(-1 - len(self._rows), name, name, {})
        row = self._rows_by_text[name]
        if row is None:
            raise DataError.at(path, line, f"several labels have the text {name!r}; name the label by its id")
        return row

    def _add(self, line: int, name: str, text: str, record: dict[str, Any]) -> int:
        self.columns.add(line, name, text, _content_cell(record, self.columns.path, line))
        row = self._rows[name] = len(self._rows)
        self._rows_by_text[text] = None if text in self._rows_by_text else row
        return row


def _read_documents(path: Path, settings: TableSettings, names: _LabelNames) -> tuple[Items, TargetColumns]:
    header, records = _open_table(path)
    if not header:
        return Items(0, [], []), TargetColumns(path)
    text_column = _column(header, settings.text, TEXT_COLUMNS, "document text", path)
    label_column = _column(header, settings.labels, _LABELS, "labels", path)
    id_column = _id_column(header, settings, path)
    columns, targets = ItemColumns(path), TargetColumns(path)
    unsplit: Counter[str] = Counter()  # marks in cells that look like several labels, but were not split
    for line, record in records:
        name = str(len(columns.texts)) if id_column is None else text_cell(record, id_column, path, line)
        columns.add(line, name, text_cell(record, text_column, path, line), _content_cell(record, path, line))
        cell = record.get(label_column)
        labels = _label_names(cell, settings.separator, path, line)
        if isinstance(cell, str) and len(labels) == 1 and settings.separator:
            unsplit.update(mark for mark in _SEPARATORS if mark in labels[0])
        rows = [names.row(label, path, line) for label in labels]
        weights = _weights(record.get("weights"), path, line)
        targets.add(line, list(dict.fromkeys(rows)) if weights is None else rows, weights)
    for mark, count in unsplit.most_common(1):
        if count > len(columns.texts) / 2:
            found = (path, label_column, settings.separator, mark, mark)
            log.warning("%s: most %r cells hold no %r but %r; to part labels there, --set table.separator=%r", *found)
    items = columns.items()
    return items if id_column is not None else replace(items, ids=None), targets


def _label_names(cell: object, separator: str, path: Path, line: int) -> list[str]:
    """The labels of one cell: a list, a JSON array or separated text; nothing where it is empty."""
    if cell is None:
        return []
    if isinstance(cell, str):
        listed = _json_list(cell)
        if listed is None:
            parts = cell.split(separator) if separator else [cell]
            cell = [name for name in (part.strip() for part in parts) if name]
        else:
            cell = listed
    names = [str(name) if type(name) is int else name for name in (cell if isinstance(cell, list) else [cell])]
    return [text_of(name, "a label to be a text or a whole number", path, line) for name in names]


def _json_list(cell: str) -> list[Any] | None:
    """The cell as a JSON array, if it is one."""
    if not cell.startswith("["):
        return None
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _weights(cell: object, path: Path, line: int) -> list[Any] | None:
    weights = _json_list(cell) if isinstance(cell, str) else cell
    if cell is None or cell == "":
        return None
    if not isinstance(weights, list):
        raise DataError.at(path, line, f"expected weights, a list of numbers, found {cell!r}")
    return weights


def _column(header: Sequence[str], chosen: str, usual: Sequence[str], what: str, path: Path) -> str:
    """The chosen column, or the first of the usual ones that the table has, in small or capital letters."""
    if chosen in header:
        return chosen
    if not chosen and (found := usual_column(header, usual)) is not None:
        return found
    key = {"document text": "table.text", "labels": "table.labels"}.get(what)
    wanted = f"a column {chosen!r}" if chosen else f"a column for the {what} ({', '.join(usual)})"
    advice = f"; name it with --set {key}=COLUMN" if key else ""
    raise DataError(f"{path}: expected {wanted}, found {', '.join(map(repr, header))}{advice}")


def usual_column(header: Sequence[str], usual: Sequence[str]) -> str | None:
    """The first of the usual names that is there."""
    names = {name.lower(): name for name in reversed(header)}
    return next((names[name] for name in usual if name in names), None)


def _id_column(header: Sequence[str], settings: TableSettings, path: Path) -> str | None:
    return _column(header, settings.id, (), "id", path) if settings.id else usual_column(header, ID_COLUMNS)


def text_cell(record: dict[str, Any], column: str, path: Path, line: int) -> str:
    """A cell that is a text; nothing is an empty one."""
    if column not in record:
        raise DataError.at(
            path, line, f"expected {column!r}, as in the first row; found {', '.join(map(repr, record))}"
        )
    cell = record[column]
    return str(cell) if type(cell) is int else text_of("" if cell is None else cell, repr(column), path, line)


def _content_cell(record: dict[str, Any], path: Path, line: int) -> str:
    return text_cell(record, "content", path, line) if "content" in record else ""


def _open_table(path: Path) -> tuple[list[str], Iterator[_Record]]:
    """Column names and rows; both empty where the file is."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path")
    if suffix in (".csv", ".tsv"):
        return open_csv(path, "\t" if suffix == ".tsv" else None)
    if suffix in (".jsonl", ".ndjson"):
        records = read_records(path)
        first = next(records, None)
        return ([], iter(())) if first is None else (list(first[1]), chain([first], records))
    if suffix == ".parquet":
        return _open_parquet(path)
    raise DataError(f"{path}: is no table; expected one of {', '.join(TABLE_SUFFIXES)}")


def open_csv(path: Path, delimiter: str | None) -> tuple[list[str], Iterator[_Record]]:
    """Column names and rows with their lines; a delimiter that is not given is found out."""
    csv.field_size_limit(2**31 - 1)  # one document may have a hundred thousand labels
    lines = (text for _, text in read_lines(path))
    first = next(lines, "")
    if delimiter is None:
        delimiter = max(",;\t", key=first.count)
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        while True:
            start = reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise DataError.at(path, reader.line_num, f"is not valid CSV ({error}); {_QUOTED}") from error
            if row is None:
                return
            if row:
                yield start, row

    table = rows()
    _, header = next(table, (1, []))
    repeated = sorted(name for name, count in Counter(header).items() if count > 1)
    if repeated:
        raise DataError.at(path, 1, f"column {repeated[0]!r} is there twice")

    def records() -> Iterator[_Record]:
        for line, row in table:
            if len(row) != len(header):
                raise DataError.at(path, line, f"expected {len(header)} cells, found {len(row)}; {_QUOTED}")
            yield line, dict(zip(header, row, strict=True))

    return header, records()


def _open_parquet(path: Path) -> tuple[list[str], Iterator[_Record]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: is not valid Parquet ({error})") from error
    return names, parquet_records(path, file)


def parquet_records(path: Path, file: Any, columns: Sequence[str] | None = None) -> Iterator[_Record]:  # noqa: ANN401
    """The rows of an open Parquet file, a few at a time; what takes far more memory than its size says is refused."""
    import pyarrow as pa

    row = taken = 0
    try:
        most, again = most_bytes(path), "dictionary" in str(file.schema_arrow)  # values may be said again and again
        with file, progress(f"reading {path.name}", file.metadata.num_rows) as advance:
            for batch in file.iter_batches(batch_size=_rows_at_a_time(path, file, most), columns=columns):
                taken += batch.nbytes + _ROW * batch.num_rows
                for record in batch.to_pylist():
                    row += 1
                    taken += _length(list(record.values())) if again else 0
                    if taken > most:
                        raise too_large(path, most)
                    yield row, record
                advance(batch.num_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise DataError.at(path, row + 1, f"cannot be read ({error}); write the file again") from error


def _length(cell: object) -> int:
    """Characters of all texts in a cell."""
    if isinstance(cell, list):
        return sum(map(_length, cell))
    return len(cell) if isinstance(cell, str | bytes) else 0


def _rows_at_a_time(path: Path, file: Any, most: int) -> int:  # noqa: ANN401 - pyarrow has no types
    """So many that they fit, were each of them as long as all that a column holds: few bytes can say it again."""
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    sizes = [group.column(number).total_uncompressed_size for group in groups for number in range(group.num_columns)]
    largest = max(sizes, default=0)
    if largest > most or about.num_rows * _ROW > most:
        raise too_large(path, most)
    return max(1, min(_ROWS, most // max(1, largest)))


def _item_cells(items: Items) -> dict[str, list[Any]]:
    """Column name -> cells, for documents or labels."""
    rows = range(items.count)
    cells: dict[str, list[Any]] = {"id": [items.id(row) for row in rows], "text": [items.text(row) for row in rows]}
    return cells if items.contents is None else cells | {"content": list(items.contents)}


def _target_cells(part: Part, labels: Items) -> dict[str, list[Any]]:
    """The labels column, and a weights column where a weight is not 1."""
    bounds, indices, data = part.truth.indptr.tolist(), part.truth.indices.tolist(), part.truth.data.tolist()
    spans = list(pairwise(bounds))
    cells = {"labels": [[labels.id(row) for row in indices[start:end]] for start, end in spans]}
    return cells if all(w == 1 for w in data) else cells | {"weights": [data[start:end] for start, end in spans]}


def _write_csv(path: Path, cells: dict[str, list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(cells)
        for row in _rows(path, cells):
            writer.writerow([json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell for cell in row])


def _rows(path: Path, cells: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    with progress(f"writing {path.name}", len(cells["id"])) as advance:
        for row in zip(*cells.values(), strict=True):
            yield row
            advance(1)


def _write_jsonl(path: Path, cells: dict[str, list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for row in _rows(path, cells):
            stream.write(json.dumps(dict(zip(cells, row, strict=True)), ensure_ascii=False) + "\n")


def _write_parquet(path: Path, cells: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"labels": pa.list_(pa.string()), "weights": pa.list_(pa.float32())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in cells])
    pq.write_table(pa.table(cells, schema=schema), path, compression="zstd")
