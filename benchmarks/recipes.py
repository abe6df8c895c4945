"""Both recipes, one instance each, on datasets: accuracy, training time, size, and how far chances can be trusted.

    python -m benchmarks.recipes DATASET... [--recipes contrastive,paper] [--device cuda] [--seed 0]

Writes one file a dataset and device; recipes measured before stay in it.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.report import commit, figures_before, parser, write_report
from benchmarks.trial import device_name, judged, reliability_of, trained
from decaf import Dataset, recipe


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="+")
    options.add_argument("--recipes", default="contrastive,paper", help="recipes, separated by commas")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--set", dest="assignments", action="append", default=[], help="a setting for all recipes")
    arguments = options.parse_args()
    for path in arguments.datasets:
        dataset = Dataset.load(path)
        title = f"recipes-{Path(path).name}-{arguments.device}"
        before = figures_before(title)
        figures = {
            "dataset": dataset.name,
            "device": device_name(arguments.device),
            "recipes": before.get("recipes", {}),
        }
        for name in arguments.recipes.split(","):
            config = recipe(name).with_settings(["ensemble.instances=1", *arguments.assignments])
            model, seconds = trained(dataset, config, arguments.device, arguments.seed)
            result = judged(model, dataset, arguments.device) | {"training_seconds": round(seconds, 1)}
            result |= reliability_of(model, dataset, arguments.device)
            print(name, result, flush=True)
            figures["recipes"][name] = result | {"commit": commit()}
        write_report(title, arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
