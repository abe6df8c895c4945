"""The paper's recipe and its variants on a dataset: accuracy, training time, shortlist recall.

    python -m benchmarks.paper DATASET [--device cuda] [--seed 0] [--only paper,paper-3]

Each variant is one setting; the direction that the paper reports stands beside ours.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import parser, write_report
from decaf import Dataset, Model, evaluate_model, train
from decaf.config import Config
from decaf.features import texts_of
from decaf.modules.shortlister import retrieve

ONE = ["ensemble.instances=1"]
# Name -> settings, and how the paper's table 6 compares P@1 and PSP@1 with DECAF on LF-AmazonTitles-131K.
VARIANTS: dict[str, tuple[list[str], str]] = {
    "paper": (ONE, ""),
    "paper-3": (["ensemble.instances=3"], "higher"),
    "paper-lite": ([*ONE, "model.lite=true"], "-1.1, -1.1"),
    "no-init": ([*ONE, "ranker.from_text=false"], "-0.6, -1.0"),
    "z1": ([*ONE, "model.refinement=false"], "-4.9, -2.8"),
    "z2": ([*ONE, "model.text=false"], "-2.4, -3.5"),
    "fixed-embeddings": ([*ONE, "tokens.learned=false", "model.lite=true"], "-6.0, -5.4"),
    "small-fan-out": ([*ONE, "shortlister.clusters=2048"], "-2.1, -1.8"),
    "neighbours": ([*ONE, "shortlister.kind=neighbours"], "-1.7, -1.3"),
    "tree": ([*ONE, "shortlister.kind=tree"], "-6.3, -6.0"),
    "forced-positives": ([*ONE, "ranker.forced=true"], ""),
}
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@20")


def shortlist_recall(model: Model, dataset: Dataset) -> float:
    """Percent of the test pairs whose label is in the shortlist of the first instance."""
    instance = model.instances[0]
    if model.features is None:
        documents = dataset.test.documents.need_features()
    else:
        documents = model.features.transform(texts_of(dataset.test.documents, model.config.features))
    clusters = retrieve(instance.shortlister, documents, instance.beam).cpu().numpy()
    members = instance.shortlister.members.cpu().numpy()
    cluster = np.full(dataset.labels.count, -1)
    for number, labels in enumerate(members):
        cluster[model.kept[labels[labels >= 0]]] = number
    pairs = dataset.test.truth.tocoo()
    return 100 * float(np.mean((clusters[pairs.row] == cluster[pairs.col][:, None]).any(axis=1)))


def measure(dataset: Dataset, assignments: list[str], device: str, seed: int) -> dict[str, Any]:
    """Train and evaluate one variant."""
    started = time.perf_counter()
    model = train(dataset, Config().with_settings(assignments), seed=seed, device=device)
    seconds = time.perf_counter() - started
    where = torch.device(device)
    model = dataclasses.replace(model, instances=tuple(instance.to(where) for instance in model.instances))
    figures = evaluate_model(model, dataset, device=device)
    return {
        **{name: round(figures[name], 2) for name in SHOWN},
        "training_seconds": round(seconds, 1),
        "ms_per_document": round(figures["ms_per_document"], 4),
        "beam": model.instances[0].beam,
        "shortlist_recall": round(shortlist_recall(model, dataset), 2),
        "parameters_mb": round(model.facts()["bytes"] / 1e6, 1),
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("dataset")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default=",".join(VARIANTS), help="variants, separated by commas")
    options.add_argument("--set", dest="assignments", action="append", default=[], help="a setting for all variants")
    arguments = options.parse_args()
    dataset = Dataset.load(arguments.dataset)
    device_name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
    figures: dict[str, Any] = {"dataset": dataset.name, "device": device_name, "variants": {}}
    for name in arguments.only.split(","):
        assignments, direction = VARIANTS[name]
        result = measure(dataset, [*assignments, *arguments.assignments], arguments.device, arguments.seed)
        figures["variants"][name] = {**result, "paper": direction}
        print(name, result, flush=True)
    write_report(f"paper-{Path(arguments.dataset).name}", arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
