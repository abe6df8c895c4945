"""Batch prediction: a file of documents in, a file of their labels out; what was stopped goes on."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from decaf import __version__
from decaf.config import TableSettings
from decaf.datasets.files import new_folder, read_json, read_lines, read_records
from decaf.datasets.tables import ID_COLUMNS, TEXT_COLUMNS, open_csv, text_cell, usual_column
from decaf.errors import DataError
from decaf.header import read_header
from decaf.model import Model
from decaf.predictor import Predictor
from decaf.progress import Advance, progress, showing
from decaf.store import Change, kept_changes

__all__ = ["INPUTS", "OUTPUTS", "BatchSettings", "predict_file"]

log = logging.getLogger(__name__)

INPUTS = (".txt", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
OUTPUTS = (".jsonl", ".csv", ".parquet")
_CHUNK = 10_000  # documents predicted at a time, and written as one part
_STANDARD_INPUT = Path("-")
_SEPARATOR = TableSettings().separator

_Document = tuple[str, str]  # id and text
_Record = tuple[int, dict[str, Any]]  # line (in Parquet: row) and cells
_Columns = tuple[str, str | None]  # of the text and of the id
_PARQUET_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True)
class BatchSettings:
    """What a run is made with; a run that was stopped goes on only with the same."""

    text: str = ""  # column of the text; empty: the first usual one that is there
    top: int = 5
    threshold: float = 0.0
    tail: float | None = None  # None: as the model was made
    device: str = "cpu"
    fast: bool | None = None


class _Row(NamedTuple):
    """A document with its labels, best first."""

    id: str
    text: str
    labels: list[str]
    label_texts: list[str]
    scores: list[float]


_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("label_texts", pa.list_(pa.string())),
        ("scores", pa.list_(pa.float32())),
    ]
)


def predict_file(
    model: Path, source: Path, output: Path, settings: BatchSettings | None = None, *, threads: int = 1
) -> int:
    """Predict every document of a file into another file, and return how many there are.

    Suffixes name the formats; `-` reads standard input, one text a line. Memory holds one chunk of documents. Finished
    chunks lie in a folder beside the output, named as it is with `.parts` behind, until the output is whole: called
    again after a stop, the same call goes on behind them. `threads` are used by the fast scorer alone.
    """
    settings = settings or BatchSettings()
    kind = _check_output(output)
    folder = output.with_name(f"{output.name}.parts")
    changes = kept_changes(model)
    state = _state(model, source, settings, changes)
    finished = _finished_parts(folder, kind, state, again=source != _STANDARD_INPUT)
    count = 0
    with closing(_open_documents(source, settings.text)) as documents:
        predictor = Predictor(
            Model.load(model),
            device=settings.device,
            tail=settings.tail,
            fast=settings.fast,
            threads=threads,
            changes=changes,
        )
        if not (folder / "state.json").is_file():
            with new_folder(folder) as aside:
                (aside / "state.json").write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        for number, chunk in enumerate(_chunks(documents)):
            count += len(chunk)
            if number >= finished:
                with _whole_file(_part(folder, number, kind)) as stream:
                    stream.write(_WRITERS[kind](_rows(predictor, chunk, settings)))
    _join_parts(folder, kind, output)
    return count


def _check_output(output: Path) -> str:
    """The format of the output, if it can be written."""
    kind = _kind(output, OUTPUTS)
    if output.exists():
        raise DataError(f"{output}: is already there; remove it or choose another name")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise DataError(f"{output.parent}: is no folder that can be written; make it or choose another")
    return kind


def _kind(path: Path, known: Sequence[str]) -> str:
    """The suffix that names the format, `.gz` taken off where the format is a text."""
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in known or (suffix == ".parquet" and path.suffix == ".gz"):
        raise DataError(f"{path}: cannot tell the format; expected a name in {', '.join(known)} (texts also with .gz)")
    return suffix


def _state(model: Path, source: Path, settings: BatchSettings, changes: Sequence[Change]) -> dict[str, Any]:
    """Everything that decides what the parts hold."""
    read_header(model)
    state: dict[str, Any] = {"decaf": __version__, "chunk": _CHUNK, "input": str(source)}
    if source != _STANDARD_INPUT:
        if not source.is_file():
            raise DataError(f"{source}: there is no such file")
        _kind(source, INPUTS)
        facts = source.stat()
        state |= {"input": str(source.resolve()), "input size": facts.st_size, "input time": facts.st_mtime_ns}
    digest = hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    if changes:
        state["live labels"] = hashlib.sha256(json.dumps(changes).encode()).hexdigest()
    return state | {"model": digest} | asdict(settings)


def _finished_parts(folder: Path, kind: str, state: dict[str, Any], *, again: bool) -> int:
    """How many parts an earlier run has left; one made otherwise is refused, one that cannot go on is removed."""
    if not (folder / "state.json").is_file():
        return 0
    advice = f"remove the folder {folder} to begin anew"
    try:
        found = read_json(folder / "state.json")
    except DataError as error:
        raise DataError(f"{error}; {advice}") from error
    changed = [key for key in state | found if state.get(key) != found.get(key)]
    if changed and not _parts(folder, kind):  # nothing is lost
        shutil.rmtree(folder)
        return 0
    if changed:
        begun = f"holds an unfinished run with another {', '.join(changed)}"
        raise DataError(f"{folder}: {begun}; go on as then, or {advice}")
    if not again:
        log.info("standard input cannot be read twice; beginning anew")
        shutil.rmtree(folder)
        return 0
    finished = len(_parts(folder, kind))
    log.info("going on behind %d finished parts of %d documents", finished, _CHUNK)
    return finished


def _part(folder: Path, number: int, kind: str) -> Path:
    return folder / f"part-{number:06d}{kind}"


def _parts(folder: Path, kind: str) -> list[Path]:
    """The parts that are there, up to the first that is not."""
    count = 0
    while _part(folder, count, kind).is_file():
        count += 1
    return [_part(folder, number, kind) for number in range(count)]


def _chunks(documents: Iterator[_Document]) -> Iterator[list[_Document]]:
    while chunk := list(islice(documents, _CHUNK)):
        yield chunk


def _open_documents(source: Path, text: str) -> Generator[_Document, None, None]:
    """The documents of a file; whether it has the columns is known at once."""
    kind = ".txt" if source == _STANDARD_INPUT else _kind(source, INPUTS)
    if kind == ".txt":
        if text:
            raise DataError(f"{source}: is read as one text a line and has no column {text!r}; leave --text out")
        return ((str(row), line) for row, line in enumerate(_text_lines(source)))
    if kind == ".parquet":
        file = _open_parquet(source)
        columns = _choose_columns(source, file.schema_arrow.names, text)
        return _documents(source, _parquet_records(source, file, columns), columns)
    header, records = _open_json(source) if "json" in kind else open_csv(source, "\t" if kind == ".tsv" else None)
    columns = _choose_columns(source, header, text) if header else ("", None)
    return _documents(source, records, columns)


def _text_lines(source: Path) -> Iterator[str]:
    if source != _STANDARD_INPUT:
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


def _parquet_records(path: Path, file: pq.ParquetFile, columns: _Columns) -> Iterator[_Record]:
    row = 0
    wanted = list(dict.fromkeys(name for name in columns if name is not None))
    try:
        with file, progress(f"reading {path.name}", file.metadata.num_rows) as advance:
            for batch in file.iter_batches(batch_size=_CHUNK, columns=wanted):
                for record in batch.to_pylist():
                    row += 1
                    yield row, record
                advance(batch.num_rows)
    except _PARQUET_ERRORS as error:
        raise DataError.at(path, row + 1, f"cannot be read ({error})") from error


def _choose_columns(path: Path, header: Sequence[str], chosen: str) -> _Columns:
    """The column of the text, and that of the id where there is one."""
    text = chosen if chosen in header else None
    if not chosen:
        text = usual_column(header, TEXT_COLUMNS)
    if text is None:
        wanted = f"a column {chosen!r}" if chosen else f"a column of the text ({', '.join(TEXT_COLUMNS)})"
        raise DataError(f"{path}: expected {wanted}, found {', '.join(map(repr, header))}; name it with --text COLUMN")
    return text, usual_column(header, ID_COLUMNS)


def _documents(path: Path, records: Iterable[_Record], columns: _Columns) -> Generator[_Document, None, None]:
    """Ids and texts; without an id column, documents are numbered from 0."""
    text, name = columns
    for row, (line, record) in enumerate(records):
        yield str(row) if name is None else text_cell(record, name, path, line), text_cell(record, text, path, line)


def _rows(predictor: Predictor, chunk: Sequence[_Document], settings: BatchSettings) -> Iterator[_Row]:
    with showing(_silent):  # the file's own progress is shown
        predictions = predictor.predict([text for _, text in chunk], top=settings.top, threshold=settings.threshold)
    labels = predictor.labels
    for (name, text), matches in zip(chunk, predictions, strict=True):
        found = [match.label for match in matches]
        scores = [match.score for match in matches]
        yield _Row(name, text, [labels.id(at) for at in found], [labels.text(at) for at in found], scores)


def _silent(_title: str, _total: int) -> AbstractContextManager[Advance]:
    return nullcontext(lambda _: None)


def _jsonl_part(rows: Iterable[_Row]) -> bytes:
    lines = []
    for row in rows:
        named = zip(row.labels, row.label_texts, row.scores, strict=True)
        found = [{"id": label, "text": text, "score": score} for label, text, score in named]
        lines.append(json.dumps({"id": row.id, "text": row.text, "labels": found}, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


def _csv_part(rows: Iterable[_Row]) -> bytes:
    return _csv_lines(
        [row.id, row.text, _joined(row.labels), _joined(row.label_texts), _joined([str(score) for score in row.scores])]
        for row in rows
    )


def _csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue().encode()


def _joined(names: list[str]) -> str:
    """A list in one cell, as tables have it: separated, or a JSON array where a name would not survive that."""
    cell = _SEPARATOR.join(names)
    simple = all(name and name == name.strip() and _SEPARATOR not in name for name in names)
    return cell if simple and not cell.startswith("[") else json.dumps(names, ensure_ascii=False)


def _parquet_part(rows: Iterable[_Row]) -> bytes:
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, _SCHEMA, compression="zstd") as writer:
        writer.write_table(pa.Table.from_pylist([row._asdict() for row in rows], schema=_SCHEMA))
    return stream.getvalue()


_WRITERS: dict[str, Callable[[Iterable[_Row]], bytes]] = {
    ".jsonl": _jsonl_part,
    ".csv": _csv_part,
    ".parquet": _parquet_part,
}


@contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, at its place only when it is whole and on the disk."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    aside.replace(path)


def _join_parts(folder: Path, kind: str, output: Path) -> None:
    """Put the parts together, and remove their folder."""
    join = _join_parquet if kind == ".parquet" else _join_texts
    with _whole_file(folder / output.name) as file:
        packed = output.suffix == ".gz"
        stream: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else nullcontext(file)
        with stream as opened:
            join(_parts(folder, kind), kind, opened)
    (folder / output.name).replace(output)
    shutil.rmtree(folder)


def _join_texts(parts: Sequence[Path], kind: str, stream: IO[bytes]) -> None:
    if kind == ".csv":
        stream.write(_csv_lines([_Row._fields]))
    for part in parts:
        with part.open("rb") as opened:
            shutil.copyfileobj(opened, stream)


def _join_parquet(parts: Sequence[Path], _kind: str, stream: IO[bytes]) -> None:
    with pq.ParquetWriter(stream, _SCHEMA, compression="zstd") as writer:
        for part in parts:
            with pq.ParquetFile(part) as opened:
                writer.write_table(opened.read())
