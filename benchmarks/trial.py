"""Train once, judge once: what the benchmarks of recipes, variants and ablations have in common."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from decaf import Config, Dataset, Model, evaluate_model, train
from decaf.experiments.judging import features_of, reach
from decaf.modules.blend import reliability
from decaf.predictions import Predictions
from decaf.scoring.exact import ExactScorer

__all__ = ["device_name", "judged", "measure", "reliability_of", "trained"]


def device_name(device: str) -> str:
    """What the device is called."""
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def trained(dataset: Dataset, config: Config, device: str, seed: int) -> tuple[Model, float]:
    """A model on the device, and the seconds of its training, features included."""
    started = time.perf_counter()
    model = train(dataset, config, seed=seed, device=device)
    return model, time.perf_counter() - started


def measure(dataset: Dataset, config: Config, device: str, seed: int) -> dict[str, Any]:
    """Train and judge: all figures of `decaf evaluate`, times, sizes, shortlist recall."""
    model, seconds = trained(dataset, config, device, seed)
    return judged(model, dataset, device) | {"training_seconds": round(seconds, 1)}


def judged(model: Model, dataset: Dataset, device: str) -> dict[str, Any]:
    """All that is said of a trained model."""
    figures = evaluate_model(model, dataset, device=device)
    digits = {name: 4 if name == "ms_per_document" else 2 for name in figures}
    return {name: round(value, digits[name]) for name, value in figures.items()} | {
        "beam": model.packed[0].beam,
        "shortlist_recall": round(_recall(model, dataset, device), 2),
        "tail": model.config.blend.tail,
        "labels": dataset.labels.count,
        "training_documents": dataset.train.documents.count,
        "parameters_mb": round(model.facts()["bytes"] / 1e6, 1),
    }


def _recall(model: Model, dataset: Dataset, device: str) -> float:
    """Percent of the test pairs whose label is in the shortlist of the first instance."""
    test = dataset.test
    return reach(model, features_of(model, test.documents), test.truth, [model.packed[0].beam], device=device)[0]


def reliability_of(model: Model, dataset: Dataset, device: str, top: int = 5) -> dict[str, Any]:
    """How often labels of a chance are right, on the test documents, and by how much chances are off in the mean."""
    scorer = ExactScorer(model, torch.device(device))
    predictions: Predictions = scorer.top(features_of(model, dataset.test.documents), top)
    predictions = predictions.without(dataset.test.filters, dataset.labels.count)
    there = predictions.ids >= 0
    rows = np.repeat(np.arange(len(predictions)), top).reshape(there.shape)
    right = np.asarray(dataset.test.truth[rows[there], predictions.ids[there]]).ravel() > 0
    bins = reliability(predictions.scores[there].astype(np.float64), right)
    error = sum(abs(chance - share) * count for chance, share, count in bins) / max(1, len(right))
    return {"calibration_error": round(100 * error, 2), "bins": [(round(c, 4), round(s, 4), n) for c, s, n in bins]}
