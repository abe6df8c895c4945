"""The cache: found by content, mapped into memory, and never the reason of a failure."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from decaf.config import FeatureSettings, SplitSettings
from decaf.datasets import Dataset, Items, Parts, cache, dataset
from decaf.datasets.cache import cached
from decaf.errors import DataError
from decaf.features import with_features

from .helpers import FOLDERS, assert_same, assert_same_features, assert_same_parts, lists, make_dataset, write_files


class Reader:
    """Gives these parts and counts how often it was asked."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.calls = 0

    def __call__(self) -> Parts:
        self.calls += 1
        return self.parts


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to key on, with the cache beside it."""
    monkeypatch.setenv("DECAF_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "source"
    path.write_text("content")
    return path


@pytest.fixture
def everything_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dataset.load with a cache for the smallest dataset."""
    monkeypatch.setenv("DECAF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(dataset, "cached", partial(cached, smallest=0))
    return tmp_path / "cache"


def _parts() -> Parts:
    made = with_features(make_dataset(), FeatureSettings()).parts
    return made._replace(labels=replace(made.labels, contents=["c\n", "", "é"]))


def _is_mapped(array: object) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def test_a_second_load_does_not_read_again(source: Path) -> None:
    reader = Reader(_parts())
    first = cached([source], "raw", reader, smallest=0)
    second = cached([source], "raw", reader, smallest=0)
    assert reader.calls == 1
    assert_same_parts(first, reader.parts)
    assert_same_parts(second, reader.parts)
    assert_same_features(second.train.documents, reader.parts.train.documents)
    assert_same_features(second.labels, reader.parts.labels)


def test_cached_arrays_are_mapped_into_memory(source: Path) -> None:
    for _ in range(2):
        parts = cached([source], "raw", _parts, smallest=0)
    for matrix in (parts.train.truth, parts.test.truth, parts.train.documents.features, parts.labels.features):
        assert matrix is not None
        assert all(_is_mapped(array) for array in (matrix.data, matrix.indices, matrix.indptr))
    assert not _is_mapped(_parts().train.truth.data)


def test_items_without_names_come_back_without_names(source: Path) -> None:
    parts = _parts()._replace(labels=Items(3))
    for _ in range(2):
        labels = cached([source], "raw", Reader(parts), smallest=0).labels
    assert (labels.count, labels.ids, labels.texts, labels.features) == (3, None, None, None)


def test_small_files_are_not_cached(source: Path, tmp_path: Path) -> None:
    reader = Reader(_parts())
    for _ in range(2):
        cached([source], "raw", reader, smallest=8)
    assert reader.calls == 2
    assert not (tmp_path / "cache").exists()


def test_files_count_together(source: Path) -> None:
    reader = Reader(_parts())
    for _ in range(2):
        cached([source, source], "raw", reader, smallest=14)
    assert reader.calls == 1


def test_another_reader_does_not_hit(source: Path) -> None:
    reader = Reader(_parts())
    for name in ("raw", "sparse"):
        cached([source], name, reader, smallest=0)
    assert reader.calls == 2


def test_another_format_does_not_hit(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(_parts())
    cached([source], "raw", reader, smallest=0)
    monkeypatch.setattr(cache, "_FORMAT", cache._FORMAT + 1)
    cached([source], "raw", reader, smallest=0)
    assert reader.calls == 2


def _store(source: Path) -> tuple[Reader, Path]:
    reader = Reader(_parts())
    cached([source], "raw", reader, smallest=0)
    (folder,) = (source.parent / "cache" / "datasets").iterdir()
    return reader, folder


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FILES = [
    "counts.json",
    *(f"{name}.arrow" for name in ("train", "test", "labels")),
    *(
        f"{matrix}/{array}.npy"
        for matrix in ("train.truth", "test.features", "labels.features")
        for array in ("data", "indices", "indptr", "shape")
    ),
]
DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": _half,
    "garbage": lambda path: path.write_bytes(b"0123456789" * 20),
    "a number": lambda path: path.write_bytes(b"5"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_cache_is_made_again(source: Path, caplog: pytest.LogCaptureFixture, file: str, damage: str) -> None:
    reader, folder = _store(source)
    DAMAGES[damage](folder / file)
    with caplog.at_level(logging.WARNING, "decaf"):
        assert_same_parts(cached([source], "raw", reader, smallest=0), reader.parts)
    assert reader.calls == 2
    assert "is damaged and will be made again" in caplog.text
    caplog.clear()
    assert_same_parts(cached([source], "raw", reader, smallest=0), reader.parts)
    assert reader.calls == 2
    assert caplog.records == []


def test_a_cache_of_other_columns_is_made_again(source: Path) -> None:
    reader, folder = _store(source)
    other = Reader(reader.parts._replace(labels=Items(3, ["1", "2", "3"])))
    source.write_text("other")
    cached([source], "raw", other, smallest=0)
    (other_folder,) = set(folder.parent.iterdir()) - {folder}
    bytes_of = (other_folder / "labels.arrow").read_bytes()
    (other_folder / "labels.arrow").write_bytes(bytes_of.replace(b"ids", b"abc"))
    assert_same_parts(cached([source], "raw", other, smallest=0), other.parts)


def test_a_cache_that_cannot_be_written_only_warns(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DECAF_CACHE", str(source))  # a file, so no folder can be made in it
    reader = Reader(_parts())
    for _ in range(2):
        assert_same_parts(cached([source], "raw", reader, smallest=0), reader.parts)
    assert reader.calls == 2
    assert "cannot be written" in caplog.text


def test_an_error_of_the_reader_passes_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def fail() -> Parts:
        raise DataError("bad line")

    with pytest.raises(DataError, match="bad line"):
        cached([source], "raw", fail, smallest=0)
    assert not (tmp_path / "cache").exists()


def test_the_cache_lies_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DECAF_CACHE", str(tmp_path))
    assert cache.cache_folder() == tmp_path
    monkeypatch.delenv("DECAF_CACHE")
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder() == tmp_path / "xdg" / "decaf"


@pytest.mark.parametrize("layout", FOLDERS)
def test_a_dataset_of_any_layout_comes_from_the_cache(tmp_path: Path, everything_cached: Path, layout: str) -> None:
    folder = write_files(tmp_path / "set", FOLDERS[layout])
    first = Dataset.load(folder)
    assert not _is_mapped(first.train.truth.data)
    second = Dataset.load(folder)
    assert _is_mapped(second.train.truth.data)
    assert_same(second, first)


def test_a_moved_dataset_still_hits(tmp_path: Path, everything_cached: Path) -> None:
    first = Dataset.load(write_files(tmp_path / "set", FOLDERS["sparse"]))
    shutil.move(tmp_path / "set", tmp_path / "moved")
    second = Dataset.load(tmp_path / "moved")
    assert _is_mapped(second.train.truth.data)
    assert_same(second, first)


def test_changed_content_misses(tmp_path: Path, everything_cached: Path) -> None:
    folder = write_files(tmp_path / "set", FOLDERS["sparse"])
    Dataset.load(folder)
    (folder / "trn_X_Y.txt").write_bytes(b"2 3\n0:1 2:0.5\n1:1\n")
    assert lists(Dataset.load(folder).train.truth) == [[0, 2], [1]]


def test_files_that_change_places_miss(tmp_path: Path, everything_cached: Path) -> None:
    files = dict(FOLDERS["csv"])
    Dataset.load(write_files(tmp_path / "set", files))
    files["train.csv"], files["test.csv"] = files["test.csv"], files["train.csv"]
    dataset = Dataset.load(write_files(tmp_path / "other", files | {"filter_labels_train.txt": b""}))
    assert dataset.train.documents.ids == ["c"]


def test_filters_are_read_anew(tmp_path: Path, everything_cached: Path) -> None:
    folder = write_files(tmp_path / "set", FOLDERS["raw"])
    Dataset.load(folder)
    (folder / "filter_labels_train.txt").write_text("1 1\n")
    assert Dataset.load(folder).train.filters.tolist() == [[1, 1]]


def test_the_same_bytes_under_another_suffix_are_read_anew(tmp_path: Path, everything_cached: Path) -> None:
    content = "text,labels,a\ttext\tlabels\none,p,x\ttwo\tq\n"  # a table with commas as well as with tabs
    for name, text in (("docs.csv", "one"), ("docs.tsv", "two")):
        (tmp_path / name).write_text(content)
        assert Dataset.load(tmp_path / name).train.documents.texts == [text]


def test_a_dataset_from_the_cache_can_be_split_and_saved(tmp_path: Path, everything_cached: Path) -> None:
    rows = "".join(f"{row},t{row},{row % 3};{row % 2}\n" for row in range(40))
    write_files(tmp_path / "set", {"train.csv": b"id,text,labels\n" + rows.encode()})
    for _ in range(2):
        loaded = Dataset.load(tmp_path / "set")
    split = loaded.split(SplitSettings())
    split.validation(SplitSettings()).save(tmp_path / "split", "parquet")
    assert Dataset.load(tmp_path / "split").labels.count == 3
