"""The made-up catalogue: the shape that it should have, the same for a seed, and an oracle that is hard to beat."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from decaf import Dataset, LabelTextScorer, Predictions, evaluate, with_features
from decaf.config import FeatureSettings
from decaf.predictions import load_scores

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "make_catalogue.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_catalogue", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_catalogue"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "made"
    script.make(script.Shape(labels=2000, documents=4000, tests=600), place)
    return place


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Dataset:
    return Dataset.load(folder)


def test_it_has_the_shape_of_the_real_one(dataset: Dataset) -> None:
    assert (dataset.labels.count, dataset.train.documents.count, dataset.test.documents.count) == (2000, 4000, 600)
    assert dataset.train.truth.nnz / 4000 == pytest.approx(22.2, rel=0.1)
    assert {len(text.split()) for text in dataset.train.documents.texts or []} == {9}
    frequency = np.sort(dataset.frequency)[::-1]
    assert frequency[:20].sum() > 0.08 * frequency.sum()  # a heavy head: one in a hundred labels
    assert np.median(frequency) < np.mean(frequency) / 1.5


def test_labels_share_words_with_their_documents(dataset: Dataset) -> None:
    ready = with_features(dataset, FeatureSettings())
    found = LabelTextScorer(ready.labels.need_features()).top(ready.test.documents.need_features(), 20)
    chance = 100 * dataset.test.truth.nnz / (600 * 2000)
    figures = evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    assert figures["P@1"] > 3 * chance


def test_a_seed_makes_the_same_and_another_another(script: ModuleType, folder: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 0), ("other", 1)):
        script.make(script.Shape(labels=2000, documents=4000, tests=600, seed=seed), tmp_path / name)
    first, same, other = (Dataset.load(place) for place in (folder, tmp_path / "same", tmp_path / "other"))
    assert first.train.documents.texts == same.train.documents.texts
    assert (first.train.truth != same.train.truth).nnz == 0
    assert first.train.documents.texts != other.train.documents.texts


def test_what_is_likeliest_is_what_training_documents_of_a_kind_have_most(
    script: ModuleType, folder: Path, dataset: Dataset
) -> None:
    world = script.World(script.Shape(labels=2000, documents=4000, tests=600))
    rng = np.random.default_rng(5)
    family, aspect = np.full(4000, 3), np.full(4000, 1)
    _, labels = world.labels_of(family, aspect, rng)
    seen = np.bincount(labels, minlength=2000)
    (said,) = world.likeliest(family[:1], aspect[:1], 10).ids
    assert seen[said[0]] == pytest.approx(seen.max(), rel=0.05)
    assert set(said[:5].tolist()) <= set(np.argsort(-seen)[:12].tolist())
    oracle = Predictions.from_csr(load_scores(folder / "oracle.npz", *dataset.test.truth.shape), 20)
    best = evaluate(oracle, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    frequent = np.tile(np.argsort(-dataset.frequency)[:20], (600, 1))
    plain = Predictions(frequent, np.tile(np.linspace(1, 0, 20, dtype=np.float32), (600, 1)))
    assert (
        best["P@5"] > 2 * evaluate(plain, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)["P@5"]
    )
