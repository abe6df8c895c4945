"""A second load in seconds: parsed datasets as memory-mapped arrays, found by the content of their files."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from decaf.datasets.arrow import read_arrow, write_arrow
from decaf.datasets.files import new_folder
from decaf.datasets.parts import Items, Part, Parts, no_pairs
from decaf.errors import DataError

__all__ = ["cache_folder", "cached"]

log = logging.getLogger(__name__)

_FORMAT = 2  # raise whenever a reader or this file gives another result for the same bytes
_SMALLEST = 32 << 20  # bytes of files below which parsing is as fast as a look-up


def cache_folder() -> Path:
    """Where parsed datasets are kept: $DECAF_CACHE, or the system's place for caches."""
    if chosen := os.environ.get("DECAF_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "decaf" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "decaf"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "decaf"


def cached(files: Sequence[Path], reader: str, read: Callable[[], Parts], *, smallest: int = _SMALLEST) -> Parts:
    """What `read` makes of these files; for large ones, from the cache where it holds the same content.

    `reader` names the reader and its settings. A cache that cannot be written or read back is never an error.
    """
    if sum(file.stat().st_size for file in files) < smallest:
        return read()
    folder = cache_folder() / "datasets" / _key(files, reader)
    if folder.is_dir():
        try:
            return _load(folder)
        except Exception as error:  # whatever bytes a damaged file holds
            log.warning("%s: is damaged and will be made again (%s)", folder, error)
    parts = read()
    try:
        with new_folder(folder, replace=True) as aside:
            _store(parts, aside)
    except (OSError, DataError) as error:
        log.warning("%s: cannot be written, so the next load will parse again (%s)", folder, error)
    return parts


def _key(files: Sequence[Path], reader: str) -> str:
    """A name made of the files' content; where they lie and what they are called plays no part."""
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, files))
    return hashlib.sha256(json.dumps([_FORMAT, reader, digests]).encode()).hexdigest()[:32]


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _store(parts: Parts, folder: Path) -> None:
    for name, items in (("train", parts.train.documents), ("test", parts.test.documents), ("labels", parts.labels)):
        columns = {"ids": items.ids, "texts": items.texts, "contents": items.contents}
        table = pa.table(
            {key: pa.array(column, pa.large_string()) for key, column in columns.items() if column is not None}
        )
        write_arrow(table, folder / f"{name}.arrow")
        if items.features is not None:
            _store_matrix(items.features, folder / f"{name}.features")
    _store_matrix(parts.train.truth, folder / "train.truth")
    _store_matrix(parts.test.truth, folder / "test.truth")
    counts = [parts.train.documents.count, parts.test.documents.count, parts.labels.count]
    (folder / "counts.json").write_text(json.dumps(counts), encoding="ascii")


def _load(folder: Path) -> Parts:
    if not all(path.is_file() or path.is_dir() for path in folder.rglob("*")):
        raise ValueError("holds what is no file")  # a pipe would be waited for
    counts = json.loads((folder / "counts.json").read_text(encoding="ascii"))
    train, test, labels = (_load_items(folder, *of) for of in zip(("train", "test", "labels"), counts, strict=True))
    truths = [_load_matrix(folder / f"{name}.truth") for name in ("train", "test")]
    if any(truth.shape[1] != labels.count for truth in truths):
        raise ValueError("labels and their numbers do not fit")
    return Parts(Part(train, truths[0], no_pairs()), Part(test, truths[1], no_pairs()), labels)


def _load_items(folder: Path, name: str, count: int) -> Items:
    table = read_arrow(folder / f"{name}.arrow")
    if any(column.type != pa.large_string() or column.null_count for column in table.columns):
        raise ValueError("a column holds no texts")
    columns: dict[str, list[str]] = table.to_pydict()
    features = folder / f"{name}.features"
    return Items(count, **columns, features=_load_matrix(features) if features.is_dir() else None)


def _store_matrix(matrix: sparse.csr_array, folder: Path) -> None:
    folder.mkdir()
    for key in ("data", "indices", "indptr"):
        np.save(folder / f"{key}.npy", getattr(matrix, key), allow_pickle=False)
    np.save(folder / "shape.npy", np.array(matrix.shape), allow_pickle=False)


def _load_matrix(folder: Path) -> sparse.csr_array:
    arrays: dict[str, Any] = {
        key: np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False)
        for key in ("data", "indices", "indptr", "shape")
    }
    rows, columns = arrays["shape"].tolist()
    if arrays["data"].dtype != np.float32 or arrays["indices"].dtype.kind != "i" or len(arrays["indptr"]) != rows + 1:
        raise ValueError("is no matrix of ours")
    matrix = sparse.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(rows, columns), copy=False)
    matrix.check_format(full_check=True)  # what computes with it looks nothing up twice
    matrix.has_canonical_format = True
    return matrix
