"""Weights in eight bits beside single precision: how far answers and figures are apart, on datasets.

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

from benchmarks.recipes import in_eight_bits
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
    """Both scorers, both precisions."""
    rounded = in_eight_bits(whole)
    rows = with_features(dataset, whole.config.features, whole.features).test.documents.need_features()
    found: dict[str, Any] = {}
    for name in ("exact", "fast"):
        answers = []
        for model in (rounded, whole):
            scorer = FastScorer(model, threads=2) if name == "fast" else ExactScorer(model, torch.device(device))
            answers.append(scorer.top(rows, TOP))
        truth = (dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
        figures = [evaluate(answer, *truth) for answer in answers]
        found[name] = apart(*answers) | {
            figure: {"int8": figures[0][figure], "float32": figures[1][figure]} for figure in FIGURES
        }
        found[name]["figures_apart_most"] = round(max(abs(figures[0][f] - figures[1][f]) for f in FIGURES), 4)
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
