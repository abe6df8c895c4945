"""The Extreme Classification Repository's raw text: one JSON object a line in trn, tst and lbl.json, gzipped or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from decaf.datasets.columns import ItemColumns, TargetColumns, text_of
from decaf.datasets.files import find_file, read_records
from decaf.datasets.parts import Items, Part, Parts, empty_part, no_pairs
from decaf.errors import DataError
from decaf.progress import progress

__all__ = ["item_record", "raw_files", "read_items", "read_raw", "write_raw"]

_NAMES = ("trn.json", "tst.json", "lbl.json")


def raw_files(folder: Path) -> list[Path]:
    """The files of this layout, or none where the folder holds another."""
    found = [find_file(folder, name) for name in _NAMES]
    return [path for path in found if path is not None] if found[0] and found[2] else []


def read_raw(folder: Path) -> Parts:
    """Read trn.json, tst.json and lbl.json; a set without test documents has an empty test part."""
    train_file, test_file, label_file = (find_file(folder, name) for name in _NAMES)
    if train_file is None or label_file is None:
        raise DataError(f"{folder}: expected trn.json.gz and lbl.json.gz")
    labels = read_items(label_file)
    if labels.count == 0:
        raise DataError(f"{label_file}: is empty; expected one JSON object with uid and title a line")
    train = _read_part(train_file, labels.count)
    if train.documents.count == 0:
        raise DataError(f"{train_file}: is empty; expected one JSON object with uid, title and target_ind a line")
    return Parts(train, empty_part(labels.count) if test_file is None else _read_part(test_file, labels.count), labels)


def write_raw(parts: Parts, folder: Path) -> None:
    """Write trn.json.gz, tst.json.gz and lbl.json.gz."""
    for name, part in (("trn", parts.train), ("tst", parts.test)):
        with (
            _packed(folder / f"{name}.json.gz") as stream,
            progress(f"writing {name}", part.documents.count) as advance,
        ):
            for row in range(part.documents.count):
                start, end = part.truth.indptr[row], part.truth.indptr[row + 1]
                record = item_record(part.documents, row) | {
                    "target_ind": part.truth.indices[start:end].tolist(),
                    "target_rel": part.truth.data[start:end].tolist(),
                }
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")
                advance(1)
    with _packed(folder / "lbl.json.gz") as stream:
        for row in range(parts.labels.count):
            stream.write(json.dumps(item_record(parts.labels, row), ensure_ascii=False) + "\n")


def item_record(items: Items, row: int) -> dict[str, Any]:
    """What this layout says of a document or label, but for its targets."""
    record = {"uid": items.id(row)}
    if items.texts is not None:
        record["title"] = items.texts[row]
    return record if items.contents is None else record | {"content": items.contents[row]}


def read_items(path: Path, *, need_titles: bool = True) -> Items:
    """Ids and texts of one file of documents or labels."""
    columns = ItemColumns(path)
    titles = 0
    for line, record in read_records(path):
        titles += "title" in record
        _add_item(columns, line, record if need_titles else {"title": ""} | record)
    items = columns.items()
    return items if titles or need_titles or not items.count else replace(items, texts=None)


def _read_part(path: Path, labels: int) -> Part:
    columns, targets = ItemColumns(path), TargetColumns(path)
    for line, record in read_records(path):
        _add_item(columns, line, record)
        indices, weights = record.get("target_ind"), record.get("target_rel")
        if not isinstance(indices, list):
            raise DataError.at(path, line, f"expected target_ind, a list of label numbers, found {indices!r}")
        if weights is not None and not isinstance(weights, list):
            raise DataError.at(path, line, f"expected target_rel, a list of weights, found {weights!r}")
        for label in indices:
            if type(label) is not int or not 0 <= label < labels:
                raise DataError.at(path, line, f"label {label!r} is out of range; there are {labels} labels (0-based)")
        targets.add(line, indices, weights)
    return Part(columns.items(), targets.truth(labels), no_pairs())


def _add_item(columns: ItemColumns, line: int, record: dict[str, Any]) -> None:
    uid = record.get("uid")
    if type(uid) is int:
        uid = str(uid)
    columns.add(
        line,
        text_of(uid, "uid", columns.path, line),
        text_of(record.get("title"), "title", columns.path, line),
        text_of(record.get("content", ""), "content", columns.path, line),
    )


@contextmanager
def _packed(path: Path) -> Iterator[TextIO]:
    """A gzipped text file without a time stamp: the same dataset gives the same bytes."""
    with (
        path.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        yield stream
