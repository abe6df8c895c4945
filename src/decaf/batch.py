"""Batch prediction: a file of documents in, a file of their labels out; what was stopped goes on."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from decaf import __version__
from decaf.config import TableSettings
from decaf.datasets.files import is_full, read_json
from decaf.documents import INPUTS, STANDARD_INPUT, Document, kind_of, open_documents
from decaf.errors import DataError
from decaf.header import read_header
from decaf.model import Model
from decaf.predictor import Predictor
from decaf.progress import Advance, showing
from decaf.stores import Change, kept_changes

__all__ = ["OUTPUTS", "BatchSettings", "Chunk", "Engine", "PartMaker", "PartSettings", "here", "predict_file"]

log = logging.getLogger(__name__)

OUTPUTS = (".jsonl", ".csv", ".parquet")
_CHUNK = 10_000  # documents predicted at a time, and written as one part
_SEPARATOR = TableSettings().separator
_ASIDE = ".aside"  # behind the names of files that are being written


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


@dataclass(frozen=True)
class PartSettings:
    """What a process needs to know to make parts of an output."""

    model: str
    settings: BatchSettings
    kind: str  # suffix of the output
    threads: int
    changes: tuple[Change, ...]
    verify: bool = True


class PartMaker:
    """Makes parts of an output; one in a process."""

    def __init__(self, of: PartSettings) -> None:
        settings = of.settings
        self._settings, self._write = settings, _WRITERS[of.kind]
        self._predictor = Predictor(
            Model.load(of.model, verify=of.verify),
            device=settings.device,
            tail=settings.tail,
            fast=settings.fast,
            threads=of.threads,
            changes=of.changes,
        )

    def make(self, chunk: Sequence[Document]) -> bytes:
        """The part that holds these documents."""
        return self._write(_rows(self._predictor, chunk, self._settings))


Chunk = tuple[int, list[Document]]  # its number, and what is in it
# Makes parts of chunks, in any order: their numbers, and what is to be written.
Engine = Callable[[PartSettings, Iterator[Chunk]], Iterator[tuple[int, bytes]]]


def here(settings: PartSettings, chunks: Iterator[Chunk]) -> Iterator[tuple[int, bytes]]:
    """One part after another, in this process."""
    maker = PartMaker(settings)
    return ((number, maker.make(chunk)) for number, chunk in chunks)


def predict_file(
    model: Path,
    source: Path,
    output: Path,
    settings: BatchSettings | None = None,
    *,
    threads: int = 1,
    labels: str | Path = "",
    engine: Engine = here,
    verify: bool = True,
) -> int:
    """Predict every document of a file into another file, and return how many there are.

    Suffixes name the formats; `-` reads standard input, one text a line. Memory holds one chunk of documents. Finished
    chunks lie in a folder beside the output, named as it is with `.parts` behind, until the output is whole: called
    again after a stop, the same call does only what is missing. `threads` are used by the fast scorer alone;
    `labels` says where live labels are kept, if not beside the model; `verify` compares its files with their checksums.
    """
    settings = settings or BatchSettings()
    kind = kind_of(output, OUTPUTS)
    folder = output.with_name(f"{output.name}.parts")
    mark = output.with_name(f".{output.name}.done")  # says which file is the whole output, until the parts are gone
    if output.exists() and (source == STANDARD_INPUT or not mark.is_file()):
        raise _is_there(output)
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise DataError(f"{output.parent}: is no folder that can be written; make it or choose another")
    changes = kept_changes(model, labels)
    state = _state(model, source, settings, changes)
    if output.exists():
        return _tidied(folder, mark, output, state)
    finished = _finished_parts(folder, kind, state, again=source != STANDARD_INPUT)
    count = 0

    def missing(documents: Iterator[Document]) -> Iterator[Chunk]:
        nonlocal count
        for number, chunk in enumerate(_chunks(documents)):
            count += len(chunk)
            if number not in finished:
                yield number, chunk

    with closing(open_documents(source, settings.text)) as documents:
        made = engine(PartSettings(str(model), settings, kind, threads, tuple(changes), verify), missing(documents))
        _begin(folder, mark, state)
        for number, content in made:
            with _whole_file(folder / f"part-{number:06d}-{_checksum(content)}{kind}") as stream:
                stream.write(content)
    _join_parts(folder, kind, output)
    done = {"count": count, "state": state, "output": _identity(folder / output.name)}
    with _whole_file(mark) as stream:
        stream.write(json.dumps(done).encode())
    (folder / output.name).replace(output)
    shutil.rmtree(folder)
    mark.unlink()
    return count


def _is_there(path: Path) -> DataError:
    return DataError(f"{path}: is already there; remove it or choose another name")


def _tidied(folder: Path, mark: Path, output: Path, state: dict[str, Any]) -> int:
    """The end of a run that was killed when its output was whole; how many documents are in it."""
    try:
        done = read_json(mark)
    except DataError:
        done = {}
    if (done.get("state"), done.get("output")) != (state, _identity(output)):
        raise _is_there(output)
    log.info("%s is whole already", output)
    shutil.rmtree(folder, ignore_errors=True)
    mark.unlink()
    return int(done["count"])


def _identity(file: Path) -> list[int]:
    """What stays the same when a file is moved, and not when it is written."""
    facts = file.stat()
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns]


def _begin(folder: Path, mark: Path, state: dict[str, Any]) -> None:
    """The folder of the parts, with what decides them; one of somebody else is refused."""
    if (folder / "state.json").is_file():
        return
    if mark.is_file():  # of a run that was killed at its very end
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists() and (not folder.is_dir() or any(path.suffix != _ASIDE for path in folder.iterdir())):
        raise _is_there(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    with _whole_file(folder / "state.json") as stream:
        stream.write((json.dumps(state, indent=1) + "\n").encode())


def _state(model: Path, source: Path, settings: BatchSettings, changes: Sequence[Change]) -> dict[str, Any]:
    """Everything that decides what the parts hold."""
    read_header(model)
    state: dict[str, Any] = {"decaf": __version__, "chunk": _CHUNK, "input": str(source)}
    if source != STANDARD_INPUT:
        if not source.is_file():
            raise DataError(f"{source}: there is no such file; check the path")
        kind_of(source, INPUTS)
        facts = source.stat()
        state |= {"input": str(source.resolve()), "input size": facts.st_size, "input time": facts.st_mtime_ns}
    digest = hashlib.sha256((model / "model.json").read_bytes()).hexdigest()
    if changes:
        state["live labels"] = hashlib.sha256(json.dumps(changes).encode()).hexdigest()
    return state | {"model": digest} | asdict(settings)


def _finished_parts(folder: Path, kind: str, state: dict[str, Any], *, again: bool) -> set[int]:
    """The parts that an earlier run has left; one made otherwise is refused, one that cannot go on is removed."""
    if not (folder / "state.json").is_file():
        return set()
    advice = f"remove the folder {folder} to begin anew"
    try:
        found = read_json(folder / "state.json")
    except DataError as error:
        raise DataError(f"{error}; {advice}") from error
    changed = [key for key in state | found if state.get(key) != found.get(key)]
    if changed and not _parts(folder, kind):  # nothing is lost
        shutil.rmtree(folder)
        return set()
    if changed:
        begun = f"holds an unfinished run with another {', '.join(changed)}"
        raise DataError(f"{folder}: {begun}; go on as then, or {advice}")
    if not again:
        log.info("standard input cannot be read twice; beginning anew")
        shutil.rmtree(folder)
        return set()
    for path in folder.glob(f".*{_ASIDE}"):  # what was being written
        path.unlink(missing_ok=True)
    for part in _parts(folder, kind).values():
        if _checksum(part.read_bytes()) not in part.name:
            log.warning("%s: is damaged and will be made again", part)
            part.unlink()
    finished = set(_parts(folder, kind))
    log.info("going on behind %d finished parts of %d documents", len(finished), _CHUNK)
    return finished


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _parts(folder: Path, kind: str) -> dict[int, Path]:
    """The parts that are there, by number, in order."""
    names = re.compile(rf"part-(\d+)-[0-9a-f]{{16}}{re.escape(kind)}")
    found = {int(match[1]): path for path in folder.iterdir() if (match := names.fullmatch(path.name))}
    return dict(sorted(found.items()))


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    while chunk := list(islice(documents, _CHUNK)):
        yield chunk


def _rows(predictor: Predictor, chunk: Sequence[Document], settings: BatchSettings) -> Iterator[_Row]:
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
    aside = path.with_name(f".{path.name}.{os.getpid()}{_ASIDE}")
    try:
        with aside.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _cannot_write(path, error) from error
        raise


def _cannot_write(path: Path, error: OSError) -> DataError:
    again = "make room and run the same command again: it goes on from here"
    advice = again if is_full(error) else "choose another place"
    return DataError(f"{path}: cannot be written ({error.strerror or error}); {advice}")


def _join_parts(folder: Path, kind: str, output: Path) -> None:
    """Put the parts together, in their folder."""
    join = _join_parquet if kind == ".parquet" else _join_texts
    with _whole_file(folder / output.name) as file:
        packed = output.suffix == ".gz"
        stream: Any = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else nullcontext(file)
        with stream as opened:
            join(list(_parts(folder, kind).values()), kind, opened)


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
