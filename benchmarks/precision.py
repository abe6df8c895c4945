"""Weights in eight and in four bits beside single precision: how far answers and figures are apart, on datasets.

    python -m benchmarks.precision DATASET... [--recipe contrastive] [--device cpu] [--seed 0] [--model FOLDER]
        [--set ranker.epochs=2]...

A model is trained in single precision and rounded; both answer for all test documents, by the exact scorer and by the
fast one. Writes one file a dataset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.recipes import in_few_bits
from benchmarks.report import parser, write_report
from benchmarks.trial import trained
from decaf import Dataset, Model, Predictions, evaluate, recipe, with_features
from decaf.scoring.exact import ExactScorer
from decaf.scoring.fast import FastScorer

FIGURES = ("P@1", "P@5", "PSP@1", "PSP@5")
TOP = 20


def apart(found: Predictions, expected: Predictions) -> dict[str, float]:
    """How far answers are from the expected ones: the same first label, the same five, chances of the same label."""
    some = expected.ids[:, 0] >= 0
    ids, scores = found.ids[some], found.scores[some]
    wanted, chances = expected.ids[some][:, :5], expected.scores[some][:, :5]
    same = (wanted[:, :, None] == ids[:, None, :]) & (wanted >= 0)[:, :, None]  # [documents, 5, TOP]
    listed = same.any(axis=2)
    difference = np.abs((same * np.where(ids >= 0, scores, 0)[:, None, :]).sum(axis=2) - chances)[listed]
    return {
        "same_first_percent": round(100 * float((ids[:, 0] == wanted[:, 0]).mean()), 3),
        "same_five_percent": round(100 * float(same[:, :, :5].any(axis=2).sum() / (wanted >= 0).sum()), 3),
        "chance_apart_mean": float(f"{difference.mean():.3g}"),
        "chance_apart_p99": float(f"{np.quantile(difference, 0.99):.3g}"),
        "chance_apart_most": float(f"{difference.max():.3g}"),
    }


def compared(whole: Model, dataset: Dataset, device: str) -> dict[str, Any]:
    """Both scorers, all precisions."""
    rows = with_features(dataset, whole.config.features, whole.features).test.documents.need_features()
    truth = (dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    found: dict[str, Any] = {}

    def answers(name: str, model: Model) -> tuple[Predictions, dict[str, float]]:
        scorer = FastScorer(model, threads=2) if name == "fast" else ExactScorer(model, torch.device(device))
        answer = scorer.top(rows, TOP)
        return answer, evaluate(answer, *truth)

    for name in ("exact", "fast"):
        expected, figures = answers(name, whole)
        found[name] = {"float32": {figure: figures[figure] for figure in FIGURES}}
        for precision in ("int8", "int4"):
            answer, of = answers(name, in_few_bits(whole, precision))
            found[name][precision] = apart(answer, expected) | {figure: of[figure] for figure in FIGURES}
            most = max(abs(of[figure] - figures[figure]) for figure in FIGURES)
            found[name][precision]["figures_apart_most"] = round(most, 4)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="+")
    options.add_argument("--recipe", default="contrastive")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--model", type=Path, help="a model in single precision that is there already")
    options.add_argument("--set", action="append", default=[], dest="settings", help="a setting of the training")
    arguments = options.parse_args()
    for path in arguments.datasets:
        dataset = Dataset.load(path)
        if arguments.model is not None:
            whole = Model.load(arguments.model)
        else:
            settings = ["ensemble.instances=1", *arguments.settings, "model.precision=float32"]
            config = recipe(arguments.recipe).with_settings(settings)
            whole, _ = trained(dataset, config, arguments.device, arguments.seed)
        about = {"dataset": dataset.name, "recipe": arguments.recipe}
        if arguments.settings:
            about["settings"] = " ".join(arguments.settings)
        figures = about | compared(whole, dataset, arguments.device)
        write_report(f"precision-{Path(path).name}", arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
