"""The paper's recipe and its variants on a dataset: accuracy, training time, shortlist recall.

    python -m benchmarks.paper DATASET [--device cuda] [--seed 0] [--only paper,paper-3]

Each variant is one setting; the direction that the paper reports stands beside ours. Variants measured before stay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.report import commit, figures_before, parser, write_report
from benchmarks.trial import device_name, measure
from decaf import Dataset, recipe

ONE = ["ensemble.instances=1"]
# Name -> settings, and how the paper's table 6 compares P@1 and PSP@1 with DECAF on LF-AmazonTitles-131K.
VARIANTS: dict[str, tuple[list[str], str]] = {
    "paper": (ONE, ""),
    "paper-3": (["ensemble.instances=3"], "higher"),
    "paper-lite": ([*ONE, "model.lite=true"], "-1.1, -1.1"),
    "no-init": ([*ONE, "ranker.from_text=false"], "-0.6, -1.0"),
    "z1": ([*ONE, "model.refinement=false"], "-4.9, -2.8"),
    "z2": ([*ONE, "model.text=false"], "-2.4, -3.5"),
    "fixed-embeddings": ([*ONE, "tokens.kind=fixed"], "-6.0, -5.4"),
    "small-fan-out": ([*ONE, "shortlister.clusters=2048"], "-2.1, -1.8"),
    "hnsw": ([*ONE, "shortlister.kind=hnsw"], "-1.7, -1.3"),
    "neighbours": ([*ONE, "shortlister.kind=neighbours"], ""),
    "tree": ([*ONE, "shortlister.kind=tree"], "-6.3, -6.0"),
    "forced-positives": ([*ONE, "ranker.forced=true"], ""),
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
    title = f"paper-{Path(arguments.dataset).name}"
    variants = figures_before(title).get("variants", {})
    figures: dict[str, Any] = {"dataset": dataset.name, "device": device_name(arguments.device), "variants": variants}
    for name in arguments.only.split(","):
        assignments, direction = VARIANTS[name]
        config = recipe("paper").with_settings([*assignments, *arguments.assignments])
        result = measure(dataset, config, arguments.device, arguments.seed)
        result |= {"training_seconds": None, "ms_per_document": None} if arguments.shared else {}
        variants[name] = {**result, "paper": direction, "commit": commit()}
        print(name, result, flush=True)
    figures["variants"] = {name: variants[name] for name in VARIANTS if name in variants}
    write_report(title, arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
