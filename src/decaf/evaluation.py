"""Judging a model on the test documents of a dataset."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from decaf.datasets import Dataset
from decaf.errors import DataError
from decaf.features import texts_of
from decaf.metrics import Quantile, evaluate, frequency_quantiles
from decaf.model import Model
from decaf.predictor import Predictor

__all__ = ["Evaluation", "card_of", "evaluate_model", "evaluation_of", "keep_evaluation", "kept_evaluation"]

_ADVICE = "evaluate on the dataset that it was trained on, or train on this one"


@dataclass(frozen=True)
class Evaluation:
    """How a model fares on the test documents of a dataset."""

    dataset: str
    metrics: dict[str, float]  # in percent, and `ms_per_document`
    quantiles: list[Quantile]


def evaluate_model(
    model: Model,
    dataset: Dataset,
    *,
    device: str = "auto",
    tail: float | None = None,
    fast: bool | None = None,
    threads: int = 1,
) -> dict[str, float]:
    """All figures in percent, the filter applied, and `ms_per_document` from text to labels.

    `fast` and `threads` as for `Predictor`: what is judged is what it would answer.
    """
    return evaluation_of(Predictor(model, device=device, tail=tail, fast=fast, threads=threads), dataset).metrics


def keep_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write how a model fares beside it, for its card; where nothing can be written, it is left out."""
    aside = folder / ".evaluation.json.part"
    with suppress(OSError):
        aside.unlink(missing_ok=True)  # or what came with the folder, such as a link, would be written through
        with aside.open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(evaluation), indent=1) + "\n")
        aside.replace(folder / "evaluation.json")


def kept_evaluation(folder: Path) -> Evaluation | None:
    """What was written there, if it can be read."""
    if not (folder / "evaluation.json").is_file():
        return None
    try:
        content = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
        metrics = {str(name): float(value) for name, value in content["metrics"].items()}
        quantiles = [
            Quantile(int(one["labels"]), float(one["mean_frequency"]), float(one["contribution"]))
            for one in content["quantiles"]
        ]
        return Evaluation(str(content["dataset"]), metrics, quantiles)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


def evaluation_of(predictor: Predictor, dataset: Dataset) -> Evaluation:
    """The same figures, and how much of them comes from rare labels."""
    model, scorer = predictor.model, predictor.scorer
    documents, truth, filters = dataset.test.documents, dataset.test.truth, dataset.test.filters
    if not documents.count:
        raise DataError(f"{dataset.name}: has no test documents; make some with decaf split")
    if dataset.labels.count != model.labels.count:
        counts = f"{dataset.name} has {dataset.labels.count} labels and the model {model.labels.count}"
        raise DataError(f"{counts}; {_ADVICE}")
    for row in range(model.labels.count):
        if dataset.labels.id(row) != model.labels.id(row):
            ids = f"{dataset.labels.id(row)!r} and {model.labels.id(row)!r}"
            raise DataError(f"{dataset.name} and the model have other labels: in row {row}, {ids}; {_ADVICE}")
    # Enough labels that 20 are left when the filter has taken its own.
    top = 20 + int(np.bincount(filters[:, 0], minlength=1).max())
    if model.features is None:
        features = documents.need_features()
        if features.shape[1] != model.tokens:
            raise DataError(f"{dataset.name} has {features.shape[1]} tokens and the model {model.tokens}")
        started = time.perf_counter()
    else:
        texts = texts_of(documents, model.config.features)
        for count in (1, 32):  # loops are compiled, and files read, before times are taken
            scorer.top(model.features.transform(texts[:count]), top)
        started = time.perf_counter()
        features = model.features.transform(texts)
    predictions = scorer.top(features, top)
    seconds = time.perf_counter() - started
    figures = evaluate(predictions, truth, dataset.inverse_propensity, filters)
    quantiles = frequency_quantiles(predictions, truth, dataset.frequency, filters)
    return Evaluation(dataset.name, figures | {"ms_per_document": 1000 * seconds / documents.count}, quantiles)


def card_of(model: Model, folder: Path) -> dict[str, Any]:
    """What is known of a model: its dataset in numbers, and how it fared, where that was judged."""
    kept = kept_evaluation(folder)
    return {
        "statistics": model.about.get("statistics"),
        "metrics": None if kept is None else kept.metrics,
        "quantiles": None if kept is None else [asdict(one) for one in kept.quantiles],
    }
