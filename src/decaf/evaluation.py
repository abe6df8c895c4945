"""Judging a model on the test documents of a dataset."""

from __future__ import annotations

import time

import numpy as np

from decaf.datasets import Dataset
from decaf.errors import DataError
from decaf.features import texts_of
from decaf.metrics import evaluate
from decaf.model import Model
from decaf.predictor import Predictor

__all__ = ["evaluate_model"]

_ADVICE = "evaluate on the dataset that it was trained on, or train on this one"


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
    scorer = Predictor(model, device=device, tail=tail, fast=fast, threads=threads).scorer
    # Enough labels that 20 are left when the filter has taken its own.
    top = 20 + int(np.bincount(filters[:, 0], minlength=1).max())
    started = time.perf_counter()
    if model.features is None:
        features = documents.need_features()
        tokens = model.tokens
        if features.shape[1] != tokens:
            raise DataError(f"{dataset.name} has {features.shape[1]} tokens and the model {tokens}")
    else:
        features = model.features.transform(texts_of(documents, model.config.features))
    predictions = scorer.top(features, top)
    seconds = time.perf_counter() - started
    figures = evaluate(predictions, truth, dataset.inverse_propensity, filters)
    return figures | {"ms_per_document": 1000 * seconds / documents.count}
