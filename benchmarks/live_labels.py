"""How often labels that were added by their text alone are found, beside the same labels trained.

    python -m benchmarks.live_labels DATASET [--device cuda] [--share 0.1] [--seed 0] [--save]

A model is trained without a share of the labels, which are then added live; another is trained with all of them.
Both are judged on the test documents by how often those labels are among the first five, and on all labels as ever.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import parser, write_report
from benchmarks.trial import device_name, trained
from decaf import Dataset, Model, Predictor, recipe
from decaf.features import texts_of
from decaf.metrics import evaluate
from decaf.predictions import Predictions
from decaf.stores import Change

TOP = 50


def without_labels(dataset: Dataset, gone: NDArray[np.bool_]) -> Dataset:
    """The dataset without these labels, and without documents that have no other."""
    rows = np.flatnonzero(~gone)
    parts = []
    for part in (dataset.train, dataset.test):
        fewer = part.take_labels(rows)
        parts.append(fewer.take(np.flatnonzero(np.diff(fewer.truth.indptr) > 0)))
    return dataclasses.replace(dataset, train=parts[0], test=parts[1], labels=dataset.labels.take(rows))


def found(predictions: Predictions, dataset: Dataset, labels: NDArray[np.bool_], top: int) -> float:
    """Percent of the test pairs of these labels whose label is among the first ones."""
    truth = dataset.test.truth.tocoo()
    wanted = labels[truth.col]
    ids = predictions.ids[:, :top]
    hits = (ids[truth.row[wanted]] == truth.col[wanted][:, None]).any(axis=1)
    return round(100 * float(hits.mean()), 2)


def judged(predictions: Predictions, dataset: Dataset, labels: NDArray[np.bool_]) -> dict[str, Any]:
    """How often these labels are found, and the usual figures."""
    predictions = predictions.without(dataset.test.filters, dataset.labels.count)
    figures = evaluate(predictions, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    shares = {f"found in {top}": found(predictions, dataset, labels, top) for top in (1, 5, 20)}
    return shares | {name: round(figures[name], 2) for name in ("P@1", "P@5", "PSP@1", "PSP@5")}


def predicted(model: Model, dataset: Dataset, changes: list[Change]) -> Predictions:
    """The test documents' labels, as rows of the dataset."""
    predictor = Predictor(model, threads=2, changes=changes)
    texts = texts_of(dataset.test.documents, model.config.features)
    predictions = predictor.predict(texts, top=TOP)
    rows = np.append([int(predictor.labels.id(row)) for row in range(predictor.labels.count)], -1)
    return Predictions(rows[predictions.ids], predictions.scores)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("dataset")
    options.add_argument("--device", default="cpu")
    options.add_argument("--share", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args()
    dataset = Dataset.load(arguments.dataset)
    names = [str(row) for row in range(dataset.labels.count)]
    dataset = dataclasses.replace(dataset, labels=dataclasses.replace(dataset.labels, ids=names))
    gone = np.random.default_rng(arguments.seed).random(dataset.labels.count) < arguments.share
    whole, _ = trained(dataset, recipe(), arguments.device, arguments.seed)
    part, _ = trained(without_labels(dataset, gone), recipe(), arguments.device, arguments.seed)
    changes = [Change(str(row), dataset.labels.text(row), "") for row in np.flatnonzero(gone).tolist()]
    figures: dict[str, Any] = {
        "dataset": dataset.name,
        "device": device_name(arguments.device),
        "labels": dataset.labels.count,
        "left out": int(gone.sum()),
        "trained": judged(predicted(whole, dataset, []), dataset, gone),
        "added live": judged(predicted(part, dataset, changes), dataset, gone),
        "not added": judged(predicted(part, dataset, []), dataset, gone),
    }
    write_report(f"live-labels-{dataset.name}", arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
