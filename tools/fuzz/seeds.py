"""Small valid files of every kind that is read, to be spoiled."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from scipy import sparse

from decaf import Dataset
from decaf.config import FeatureSettings
from decaf.datasets import Items, Part, cache
from decaf.features import with_features
from decaf.labels import add_labels, remove_label
from decaf.modules.checkpoints import Checkpoint
from decaf.stores import open_store
from tools.make_format import kept_models

__all__ = ["CACHED", "FINGERPRINT", "KINDS", "MODELS", "checkpoint_tensors", "make_seeds"]

FINGERPRINT = "of a run"
CACHED = "trn.json"  # the file whose cache is spoiled
MODELS = ("model.json", "tokenizer.json", "features.json", "labels.arrow", "safetensors")
_BESIDE = ("filter_labels_train.txt", "filter_labels_test.txt", "dataset.json")
_LAYOUTS = ("raw", "sparse", "single", "csv", "jsonl", "parquet")
KINDS = (*_LAYOUTS, "beside", "documents", "npz", *MODELS, "sqlite", "cache", "checkpoint")


def make_seeds(folder: Path) -> None:
    """Write folder/KIND/VARIANT/..., and beside the files the names of those that may be spoiled."""
    data = _dataset()
    for layout in _LAYOUTS:
        shown = with_features(data, FeatureSettings()) if layout in ("sparse", "single") else data
        plain = folder / layout / "plain"
        shown.save(plain, layout)
        _victims(plain, [path.name for path in plain.iterdir() if path.name not in _BESIDE])
        if layout != "parquet":
            _packed(plain, folder / layout / "packed")
    data.save(folder / "beside" / "plain", "raw")
    _victims(folder / "beside" / "plain", _BESIDE)
    _documents(folder)
    _scores(folder / "npz", data)
    for kind in MODELS:
        for source in kept_models():
            variant = folder / kind / f"{source.parts[-3]}-{source.parts[-2]}"
            shutil.copytree(source, variant)
            files = [path.name for path in variant.iterdir()]
            _victims(variant, [name for name in files if name == kind or name.endswith(f".{kind}")])
    _store(folder / "sqlite" / "plain", kept_models()[0])
    _cache(folder / "cache" / "plain", data)
    _checkpoint(folder / "checkpoint" / "plain")


def _dataset() -> Dataset:
    def part(first: int, rows: Sequence[Sequence[int]], filters: Sequence[tuple[int, int]]) -> Part:
        texts = [f"Text {first + row}, of müller" for row in range(len(rows))]
        truth = np.zeros((len(rows), 4), dtype=np.float32)
        for row, columns in enumerate(rows):
            truth[row, list(columns)] = 1
        ids = [f"d{first + row}" for row in range(len(rows))]
        documents = Items(len(rows), ids, texts, [f"more {text}" for text in texts])
        return Part(documents, sparse.csr_array(truth), np.array(filters, dtype=np.int64).reshape(-1, 2))

    labels = Items(4, ["x", "y", "z", "7"], ["ex", "why", "zed", "se\u00f1or seven"])
    train = part(0, [[0, 2], [], [1], [3, 0]] * 3, [(0, 1), (2, 2)])
    return Dataset("small", train, part(12, [[1], [0, 3]], [(0, 0)]), labels, about={"task": "test"})


def _victims(folder: Path, names: Sequence[str]) -> None:
    folder.with_name(f"{folder.name}.json").write_text(json.dumps(sorted(names)), encoding="utf-8")


def _packed(plain: Path, target: Path) -> None:
    """The same folder, its larger files gzipped."""
    shutil.copytree(plain, target)
    for path in sorted(target.iterdir()):
        if path.name not in _BESIDE and path.suffix != ".gz":
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()
        elif path.suffix == ".gz":  # the raw layout is written gzipped; here it is plain
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    _victims(target, [path.name for path in target.iterdir() if path.name not in _BESIDE])


def _documents(folder: Path) -> None:
    """Files of documents to predict."""
    for kind in ("csv", "jsonl", "parquet"):
        target = folder / "documents" / kind
        target.mkdir(parents=True)
        shutil.copy(folder / kind / "plain" / f"train.{kind}", target / f"input.{kind}")
        _victims(target, [f"input.{kind}"])
    target = folder / "documents" / "txt"
    target.mkdir()
    (target / "input.txt").write_text("red amber basalt\nblue cedar\n\ngarnet harbour\n", encoding="utf-8")
    _victims(target, ["input.txt"])


def _scores(folder: Path, data: Dataset) -> None:
    scores = sparse.csr_array(np.array([[0.5, 0, 2, 1], [0, 3, 0, 0.25]]))
    for layout in ("csr", "csc", "coo", "bsr", "dia"):
        target = folder / layout
        data.save(target / "data")
        sparse.save_npz(target / "scores.npz", scores.asformat(layout))
        _victims(target, ["scores.npz"])


def _store(folder: Path, model: Path) -> None:
    shutil.copytree(model, folder / "model")
    add_labels(folder / "model", {"new": "amber delta", "L3": "cedar garnet", "other": "kelp"})
    remove_label(folder / "model", "L4")
    with closing(open_store(folder / "model")) as store:
        store.ask_reload()
    _victims(folder, [path.name for path in folder.iterdir() if path.is_file()])


def _cache(folder: Path, data: Dataset) -> None:
    with_features(data, FeatureSettings()).save(folder / "data", "raw")
    parts = with_features(replace(data), FeatureSettings()).parts
    kept = folder / "cache" / "datasets"
    found = cache._key([folder / "data" / f"{CACHED}.gz"], "fuzz")
    (kept / found).mkdir(parents=True)
    cache._store(parts, kept / found)
    _victims(folder, [str(path.relative_to(folder)) for path in (kept / found).rglob("*") if path.is_file()])


def checkpoint_tensors() -> dict[str, torch.Tensor]:
    """What a module keeps."""
    generator = torch.Generator().manual_seed(3)
    return {"table": torch.randn(6, 4, generator=generator), "steps": torch.arange(5)}


def _checkpoint(folder: Path) -> None:
    kept = Checkpoint(folder, FINGERPRINT, torch.device("cpu"))
    kept.result("module I", checkpoint_tensors)
    running = checkpoint_tensors() | {"epochs": torch.tensor([2])}
    save_file(running, folder / "checkpoint" / "module-II.running.safetensors")
    kept.note(epoch=1, loss=0.5)
    _victims(folder, [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()])
