"""What is left of a model's accuracy when test texts come in lower case, or in capitals.

    python -m benchmarks.case DATASET MODEL... [--save]

MODEL is a folder that `decaf train DATASET` has made, with `--set features.compounds=false` for comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from benchmarks.recipes import FIGURES
from benchmarks.report import parser, write_report
from decaf import Dataset, Model, evaluate_model

WRITTEN: dict[str, Callable[[str], str]] = {"as they are": str, "lower case": str.lower, "capitals": str.upper}


def rewritten(dataset: Dataset, write: Callable[[str], str]) -> Dataset:
    """The dataset with its test texts written another way."""
    test = dataset.test
    documents = dataclasses.replace(test.documents, texts=[write(text) for text in test.documents.texts or []])
    return dataclasses.replace(dataset, test=dataclasses.replace(test, documents=documents))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("dataset")
    options.add_argument("models", nargs="+", type=Path)
    arguments = options.parse_args()
    dataset = Dataset.load(arguments.dataset)
    models = []
    for folder in arguments.models:
        model = Model.load(folder)
        found = {how: evaluate_model(model, rewritten(dataset, write)) for how, write in WRITTEN.items()}
        rounded = {how: {name: round(of[name], 2) for name in FIGURES} for how, of in found.items()}
        models.append({"compounds": model.config.features.compounds, "written": rounded})
        print(folder, rounded, flush=True)
    title = f"case-{Path(arguments.dataset).name}"
    write_report(title, 0, {"dataset": dataset.name, "models": models}, save=arguments.save)


if __name__ == "__main__":
    main()
