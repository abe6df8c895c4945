"""Both recipes, one instance each, on datasets: accuracy, training time, size, and how far chances can be trusted.

    python -m benchmarks.recipes DATASET... [--recipes contrastive,paper] [--device cuda] [--seed 0] [--seeds 3]
        [--keep FOLDER]

Writes one file a dataset and device; recipes measured before stay in it. Of several seeds the first is told in full.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from benchmarks.report import commit, figures_before, parser, write_report
from benchmarks.trial import device_name, judged, measure, reliability_of, trained
from decaf import Config, Dataset, Model, recipe
from decaf.packed import Packed

FIGURES = ("P@1", "P@5", "PSP@1", "PSP@5")


def in_few_bits(model: Model, precision: str = Config().model.precision) -> Model:
    """The same model as it is kept by default, or in another precision."""
    config = model.config.with_settings([f"model.precision={precision}"])
    packed = tuple(Packed.of(instance, precision) for instance in model.instances)
    return dataclasses.replace(model, config=config, packed=packed)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="+")
    options.add_argument("--recipes", default="contrastive,paper", help="recipes, separated by commas")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    options.add_argument("--keep", type=Path, help="folder to keep the models in, as RECIPE-DATASET")
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
            in_whole = config.with_settings(["model.precision=float32"])
            whole, seconds = trained(dataset, in_whole, arguments.device, arguments.seed)
            model = in_few_bits(whole)
            if arguments.keep is not None:
                model.save(arguments.keep / f"{name}-{Path(path).name}")
            result = judged(model, dataset, arguments.device)
            result |= {"training_seconds": None if arguments.shared else round(seconds, 1)}
            result |= reliability_of(model, dataset, arguments.device)
            of_whole = judged(whole, dataset, arguments.device)
            result["float32"] = {key: of_whole[key] for key in (*FIGURES, "parameters_mb")}
            found = [{key: result[key] for key in FIGURES}]
            for seed in range(arguments.seed + 1, arguments.seed + arguments.seeds):
                of_seed = measure(dataset, config, arguments.device, seed)
                found.append({key: of_seed[key] for key in FIGURES})
            result["seeds"] = found
            print(name, result, flush=True)
            figures["recipes"][name] = result | {"commit": commit()}
        write_report(title, arguments.seed, figures, save=arguments.save)


if __name__ == "__main__":
    main()
