"""One query at a time on one thread, text to top 5: the fast scorer beside the exact one, and what effort buys.

    python -m benchmarks.latency MODEL DATASET [--queries 2000] [--documents 0] [--save]

MODEL is a folder that `decaf train DATASET` has made. Accuracy is that of all test documents, or of the first so many.
Times are of this machine; compare those of one run.
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import RESULTS, parser, write_report
from decaf import Dataset, Model
from decaf.metrics import evaluate
from decaf.predictions import Predictions
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer
from decaf.scoring.scorer import Scorer

EFFORTS = (None, 200, 400, 600, 800, 1200, 2400)  # clusters that are looked at in full; None: as a document needs
USUAL = "usual"
TOP = 5


def main() -> None:
    from decaf.experiments.judging import features_of  # and all of training: not in processes that are measured

    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("dataset")
    options.add_argument("--queries", type=int, default=2000)
    options.add_argument("--documents", type=int, default=0, help="test documents that are judged; 0: all")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    model, dataset = Model.load(arguments.model), first_of(Dataset.load(arguments.dataset), arguments.documents)
    assert model.features is not None  # noqa: S101 - trained on texts
    texts = list((dataset.test.documents.texts or [])[: arguments.queries])
    features = features_of(model, dataset.test.documents)
    top = TOP + int(np.bincount(dataset.test.filters[:, 0], minlength=1).max())
    exact = ExactScorer(model, torch.device("cpu"))
    truth = exact.top(features, top)
    figures: dict[str, Any] = {
        "dataset": dataset.name,
        "queries": len(texts),
        "documents": dataset.test.documents.count,
        "clusters": len(model.packed[0].clusters.bias),
        "epochs": model.config.ranker.epochs,
        "features": timed(lambda text: model.features.transform([text]), texts),  # type: ignore[union-attr]
        "exact": timed(asked(model, exact), texts[: len(texts) // 4]) | precision(truth, dataset),
        "fast": {},
    }
    for effort in EFFORTS:
        scorer = FastScorer(model, effort=effort)
        found = scorer.top(features, top)
        result = timed(asked(model, scorer), texts) | precision(found, dataset) | {"agreement": agreement(found, truth)}
        figures["fast"][USUAL if effort is None else str(effort)] = result
        print(effort or USUAL, result, flush=True)
    title = f"latency-{Path(arguments.dataset).name}"
    write_report(title, 0, figures, save=arguments.save)
    if arguments.save:
        draw(figures, RESULTS / f"{title}.png")


def first_of(dataset: Dataset, count: int) -> Dataset:
    """The dataset with the first so many test documents; 0: all."""
    if not 0 < count < dataset.test.documents.count:
        return dataset
    return dataclasses.replace(dataset, test=dataset.test.take(np.arange(count)))


def asked(model: Model, scorer: Scorer) -> Callable[[str], Predictions]:
    """A text in, its best labels out."""
    assert model.features is not None  # noqa: S101 - trained on texts
    features = model.features
    return lambda text: scorer.top(features.transform([text]), TOP)


def timed(ask: Callable[[str], object], texts: list[str]) -> dict[str, float]:
    """Milliseconds a text, one after another."""
    for text in texts[:50]:
        ask(text)
    gc.collect()
    taken = []
    for text in texts:
        started = time.perf_counter()
        ask(text)
        taken.append(1000 * (time.perf_counter() - started))
    return {f"p{share}_ms": round(float(np.percentile(taken, share)), 4) for share in (50, 90, 99)}


def agreement(found: Predictions, truth: Predictions) -> float:
    """Percent of the exact five best labels that are among the five."""
    same = [len({*one[:TOP]} & {*other[:TOP]}) for one, other in zip(found.ids, truth.ids, strict=True)]
    return round(100 * float(np.mean(same)) / TOP, 2)


def precision(found: Predictions, dataset: Dataset) -> dict[str, float]:
    """P@1 and P@5 on the test documents."""
    scores = evaluate(found, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    return {name: round(scores[name], 2) for name in ("P@1", "P@5")}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Agreement against time, one point an effort."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    points = [(of["p50_ms"], of["agreement"], effort) for effort, of in figures["fast"].items()]
    line = [(x, y) for x, y, effort in points if effort != USUAL]
    axes.plot(*zip(*line, strict=True), marker="o", color="#0072B2")
    axes.plot(*next((x, y) for x, y, effort in points if effort == USUAL), marker="*", markersize=12, color="#D55E00")
    for x, y, effort in points:
        axes.annotate(effort, (x, y), textcoords="offset points", xytext=(4, -11), fontsize=8)
    axes.axhline(99, color="0.6", linestyle=":")
    axes.set(xlabel="median ms a query, text to top 5", ylabel="agreement with the exact top 5, %")
    axes.set_title(f"{figures['dataset']}: what effort buys", fontsize=10)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
