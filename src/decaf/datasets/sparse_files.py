"""The repository's sparse files: ready features and labels as numbers, in several files or in one for each part."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from scipy import sparse

from decaf.datasets.files import find_file, read_lines
from decaf.datasets.parts import Items, Part, Parts, empty_matrix, empty_part, no_pairs
from decaf.datasets.raw import item_record, read_items
from decaf.datasets.sparse_text import read_matrix, read_single, write_matrix, write_single
from decaf.errors import DataError

__all__ = [
    "read_single_files",
    "read_sparse",
    "single_files",
    "sparse_files",
    "write_single_files",
    "write_sparse",
]

_ROW_FILES = ("trn_X.jsonl", "tst_X.jsonl", "lbl_X.jsonl")  # ids and texts of the rows, where there are any
_LABEL_FILES = ("lbl_X_Xf.txt", "Yf.txt")


def sparse_files(folder: Path) -> list[Path]:
    """The files of the many-file layout, or none where the folder holds another."""
    return _present(folder, ("trn_X_Xf.txt", "trn_X_Y.txt"), ("tst_X_Xf.txt", "tst_X_Y.txt"))


def single_files(folder: Path) -> list[Path]:
    """The files of the one-file layout, or none where the folder holds another."""
    return _present(folder, ("train.txt",), ("test.txt",))


def read_sparse(folder: Path) -> Parts:
    """Read trn_X_Xf, trn_X_Y, tst_X_Xf and tst_X_Y, with lbl_X_Xf and Yf for the labels."""

    def part(prefix: str) -> Part | None:
        features_file = find_file(folder, f"{prefix}_X_Xf.txt")
        truth_file = find_file(folder, f"{prefix}_X_Y.txt")
        if features_file is None and truth_file is None:
            return None
        if features_file is None or truth_file is None:
            raise DataError(f"{folder}: expected both {prefix}_X_Xf.txt and {prefix}_X_Y.txt")
        features, truth = read_matrix(features_file), read_matrix(truth_file)
        _same(features.shape[0], truth.shape[0], "rows", features_file, truth_file)
        return _part(folder, prefix, features_file, features, truth)

    return _parts(folder, part("trn"), part("tst"))


def read_single_files(folder: Path) -> Parts:
    """Read train.txt and test.txt, with lbl_X_Xf and Yf for the labels."""

    def part(name: str, prefix: str) -> Part | None:
        path = find_file(folder, f"{name}.txt")
        return None if path is None else _part(folder, prefix, path, *read_single(path))

    return _parts(folder, part("train", "trn"), part("test", "tst"))


def write_sparse(parts: Parts, folder: Path) -> None:
    """Write the many-file layout; texts and ids go beside the numbers."""
    for prefix, part in (("trn", parts.train), ("tst", parts.test)):
        features, truth = _features(part, parts.train), part.truth
        write_matrix(features, folder / f"{prefix}_X_Xf.txt")
        write_matrix(truth, folder / f"{prefix}_X_Y.txt")
    _write_rows(parts, folder)


def write_single_files(parts: Parts, folder: Path) -> None:
    """Write the one-file layout; texts and ids go beside the numbers."""
    for name, part in (("train", parts.train), ("test", parts.test)):
        write_single(_features(part, parts.train), part.truth, folder / f"{name}.txt")
    _write_rows(parts, folder)


def _features(part: Part, train: Part) -> sparse.csr_array:
    """The features of a part; one without documents needs none."""
    if part.documents.features is None and not part.documents.count:
        return empty_matrix(train.documents.need_features().shape[1])
    return part.documents.need_features()


def _present(folder: Path, needed: tuple[str, ...], more: tuple[str, ...]) -> list[Path]:
    found = [find_file(folder, name) for name in needed]
    found += [find_file(folder, name) for name in (*more, *_LABEL_FILES, *_ROW_FILES)]
    return [path for path in found if path is not None] if any(found[: len(needed)]) else []


def _part(folder: Path, prefix: str, file: Path, features: sparse.csr_array, truth: sparse.csr_array) -> Part:
    rows = find_file(folder, f"{prefix}_X.jsonl")
    documents = Items(features.shape[0]) if rows is None else read_items(rows, need_titles=False)
    if rows is not None:
        _same(documents.count, features.shape[0], "rows", rows, file)
    return Part(replace(documents, features=features), truth, no_pairs())


def _parts(folder: Path, train: Part | None, test: Part | None) -> Parts:
    """Fit the parts together: one vocabulary, one set of labels."""
    if train is None:
        raise DataError(f"{folder}: there are no training documents")
    train_features, labels = train.documents.need_features(), train.truth.shape[1]
    if test is None:
        test = empty_part(labels)
        test = replace(test, documents=Items(0, features=empty_matrix(train_features.shape[1])))
    _same(
        train_features.shape[1],
        test.documents.need_features().shape[1],
        "features",
        _file(folder, "trn_X_Xf.txt", "train.txt"),
        _file(folder, "tst_X_Xf.txt", "test.txt"),
    )
    trained = _file(folder, "trn_X_Y.txt", "train.txt")
    _same(labels, test.truth.shape[1], "labels", trained, _file(folder, "tst_X_Y.txt", "test.txt"))
    features_file, texts_file = (find_file(folder, name) for name in _LABEL_FILES)
    rows = find_file(folder, _ROW_FILES[2])
    items = Items(labels)
    if rows is not None:
        items = read_items(rows, need_titles=False)
        _same(items.count, labels, "labels", rows, trained)
    elif texts_file is not None:
        texts = [text.rstrip("\r\n") for _, text in read_lines(texts_file)]
        _same(len(texts), labels, "labels", texts_file, trained)
        items = Items(labels, texts=texts)
    if features_file is not None:
        features = read_matrix(features_file)
        _same(features.shape[0], labels, "labels", features_file, trained)
        _same(
            features.shape[1],
            train_features.shape[1],
            "features",
            features_file,
            _file(folder, "trn_X_Xf.txt", "train.txt"),
        )
        items = replace(items, features=features)
    return Parts(train, test, items)


def _file(folder: Path, *names: str) -> Path:
    return find_file(folder, *names) or folder / names[0]


def _write_rows(parts: Parts, folder: Path) -> None:
    """Label features and texts, and the ids and texts of all rows, as far as there are any."""
    if parts.labels.features is not None:
        write_matrix(parts.labels.features, folder / "lbl_X_Xf.txt")
    if parts.labels.texts is not None:
        with (folder / "Yf.txt").open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(" ".join(text.splitlines()) + "\n" for text in parts.labels.texts)
    for name, items in zip(_ROW_FILES, (parts.train.documents, parts.test.documents, parts.labels), strict=True):
        if items.ids is not None or items.texts is not None:
            with (folder / name).open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(
                    json.dumps(item_record(items, row), ensure_ascii=False) + "\n" for row in range(items.count)
                )


def _same(left: int, right: int, what: str, left_name: Path, right_name: Path) -> None:
    if left != right:
        raise DataError(f"{left_name} has {left} {what} and {right_name} has {right}; both must be the same")
