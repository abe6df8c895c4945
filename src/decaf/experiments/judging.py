"""One system trained on a dataset and judged on its test documents."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from decaf.config import Config, recipe
from decaf.datasets import Dataset, Items, Part
from decaf.devices import choose_device, on_gpu
from decaf.experiments.peers import TIMED, featured
from decaf.experiments.systems import ENSEMBLE, FAN_OUT, System
from decaf.features import texts_of
from decaf.metrics import evaluate, frequency_quantiles
from decaf.model import Model
from decaf.modules.shortlister import retrieve
from decaf.predictions import Predictions
from decaf.predictor import Predictor
from decaf.scoring import LabelTextScorer
from decaf.training import train, usual_clusters

__all__ = [
    "BEAMS",
    "device_title",
    "drawn",
    "features_of",
    "figures_of",
    "of_decaf",
    "of_match",
    "reach",
    "settings_of",
]

BEAMS = (1, 2, 5, 10, 20, 50, 100, 200)
_WARM = 2000  # training documents predicted before times are taken
_DEEP = 20  # labels that figures look at
_MATCHED = 50  # labels that the match finds


def drawn(dataset: Dataset, labels: int, seed: int = 0) -> Dataset:
    """So many labels at random, with the documents that have one of them; 0, or more than there are: all."""
    if not labels or labels >= dataset.labels.count:
        return dataset
    rng = np.random.default_rng([seed, 11])
    columns = np.sort(rng.choice(dataset.labels.count, labels, replace=False))

    def chosen(part: Part) -> Part:
        less = part.take_labels(columns)
        return less.take(np.flatnonzero(np.diff(less.truth.indptr)))

    parts = chosen(dataset.train), chosen(dataset.test)
    return dataclasses.replace(dataset, train=parts[0], test=parts[1], labels=dataset.labels.take(columns))


def figures_of(predictions: Predictions, dataset: Dataset) -> dict[str, Any]:
    """All metrics in percent, the filter applied, and who contributes to P@5."""
    truth, filters = dataset.test.truth, dataset.test.filters
    metrics = evaluate(predictions, truth, dataset.inverse_propensity, filters)
    quantiles = frequency_quantiles(predictions, truth, dataset.frequency, filters)
    return {
        "metrics": {name: round(value, 3) for name, value in metrics.items()},
        "quantiles": [dataclasses.asdict(one) for one in quantiles],
    }


def settings_of(system: System, dataset: Dataset) -> Config:
    """The settings of one of our systems for a dataset."""
    quarter = max(1, usual_clusters(int(np.count_nonzero(dataset.frequency))) // 4)
    return recipe(system.recipe).with_settings([name.format(quarter=quarter) for name in system.settings])


def of_match(dataset: Dataset) -> tuple[Predictions, dict[str, Any]]:
    """The label-text match on the default recipe's features."""
    ready, times = featured(dataset)
    scorer = LabelTextScorer(ready.labels.need_features())
    documents = ready.test.documents.need_features()
    scorer.top(documents, TIMED)  # to warm up, as the others are
    began = time.perf_counter()
    scorer.top(documents, TIMED)
    seconds = times.test + time.perf_counter() - began
    found = scorer.top(documents, _MATCHED).without(dataset.test.filters, dataset.labels.count)
    return found, {
        "training_seconds": round(times.training, 2),
        "ms_per_document": round(1000 * seconds / max(1, dataset.test.documents.count), 4),
        "settings": {},
    }


def of_decaf(
    dataset: Dataset, system: System, *, seed: int, device: str, threads: int
) -> tuple[Predictions, dict[str, Any]]:
    """One of our recipes: what it predicts for the test documents, the filter applied, and what it costs."""
    config = settings_of(system, dataset)
    started = time.perf_counter()
    model = train(dataset, config, seed=seed, device=device)
    seconds = time.perf_counter() - started
    predictor = Predictor(model, device=device, threads=threads)
    milliseconds = _milliseconds(predictor, dataset)
    found = _found(predictor, dataset)
    facts = {
        "training_seconds": round(seconds, 2),
        "ms_per_document": round(milliseconds, 4),
        "model_mb": round(_megabytes(model), 2),
        "tokens": model.tokens,
        "settings": {name: value for name, value, _ in model.config.describe()},
        "beam": model.packed[0].beam,
        "clusters": model.config.shortlister.clusters,
    }
    if system.name in ENSEMBLE:
        facts["instances"] = _by_instances(model, dataset, device, threads) | {
            str(len(model.packed)): figures_of(found, dataset)["metrics"]
        }
    if system.name in FAN_OUT:
        facts["reach"] = _reaches(model, dataset, device)
    return found, facts


def _found(predictor: Predictor, dataset: Dataset) -> Predictions:
    """The best labels of the test documents, enough that 20 are left when the filter has taken its own."""
    filters = dataset.test.filters
    top = _DEEP + int(np.bincount(filters[:, 0], minlength=1).max())
    features = features_of(predictor.model, dataset.test.documents)
    found = predictor.scorer.top(features, top).without(filters, dataset.labels.count)
    return Predictions(found.ids[:, :_DEEP], found.scores[:, :_DEEP])


def features_of(model: Model, documents: Items) -> sparse.csr_array:
    """The features of documents as a model takes them."""
    if model.features is None:
        return documents.need_features()
    return model.features.transform(texts_of(documents, model.config.features))


def _milliseconds(predictor: Predictor, dataset: Dataset) -> float:
    """From text to five labels, for a document of all test documents at once, which are met for the first time."""
    model, scorer = predictor.model, predictor.scorer
    for count in (1, _WARM):  # few and many are scored by loops of their own
        some = dataset.train.documents.take(np.arange(min(count, dataset.train.documents.count)))
        scorer.top(features_of(model, some), TIMED)
    started = time.perf_counter()
    scorer.top(features_of(model, dataset.test.documents), TIMED)
    return 1000 * (time.perf_counter() - started) / max(1, dataset.test.documents.count)


def _megabytes(model: Model) -> float:
    """Size on disk."""
    with TemporaryDirectory(prefix="decaf-") as place:
        model.save(Path(place) / "model")
        return sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file()) / 1e6


def _by_instances(model: Model, dataset: Dataset, device: str, threads: int) -> dict[str, Any]:
    """Metrics with the first instances alone, by their number."""
    return {
        str(count): figures_of(_found(Predictor(part, device=device, threads=threads), dataset), dataset)["metrics"]
        for count in range(1, len(model.packed))
        for part in [dataclasses.replace(model, packed=model.packed[:count])]
    }


def _reaches(model: Model, dataset: Dataset, device: str) -> dict[str, Any]:
    """How many percent of the true labels are in the clusters looked into, by beam, in training and test."""
    parts = {"training": dataset.train, "test": dataset.test}
    shares = {
        name: reach(model, features_of(model, part.documents), part.truth, BEAMS, device=device)
        for name, part in parts.items()
    }
    labels_each = len(model.kept) / model.config.shortlister.clusters
    return {
        "beams": [beam for beam in BEAMS if beam <= model.config.shortlister.clusters],
        "labels_in_a_cluster": round(labels_each, 2),
        **{name: [round(value, 2) for value in values] for name, values in shares.items()},
    }


def reach(
    model: Model, documents: sparse.csr_array, truth: sparse.csr_array, beams: Sequence[int], *, device: str
) -> list[float]:
    """Percent of the true pairs whose label is in the best clusters of the first instance, for each beam."""
    where = choose_device(device)
    shortlister = model.instances[0].to(where).shortlister
    count = len(shortlister.bias)
    beams = [beam for beam in beams if beam <= count]
    members = shortlister.members.cpu().numpy()
    there = members >= 0
    cluster = np.full(truth.shape[1], -1)
    cluster[model.kept[members[there]]] = np.nonzero(there)[0]
    pairs = truth.tocoo()
    clusters = retrieve(shortlister, documents, max(beams)).cpu().numpy()
    places = _places(clusters, pairs.row.astype(np.int64), cluster[pairs.col])
    return [100 * float(np.mean(places < beam)) if len(places) else 0.0 for beam in beams]


def _places(
    clusters: NDArray[np.int32], rows: NDArray[np.int64], wanted: NDArray[np.int64], most: int = 100_000
) -> NDArray[np.int64]:
    """At which place of its row's clusters each wanted one stands; far behind where it is not there."""
    places = np.full(len(rows), np.iinfo(np.int64).max)
    for start in range(0, len(rows), most):
        part = slice(start, start + most)
        same = clusters[rows[part]] == wanted[part, None]
        places[part] = np.where(same.any(axis=1), same.argmax(axis=1), places[part])
    return places


def device_title(device: str, threads: int) -> str:
    """What a device is called in tables."""
    where = choose_device(device)
    if on_gpu(where):
        return torch.cuda.get_device_name(where)
    return f"{threads} CPU core{'s' if threads > 1 else ''}"
