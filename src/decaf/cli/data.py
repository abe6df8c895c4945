"""Verbs about datasets, predictions and settings."""

from __future__ import annotations

import dataclasses
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decaf.cli.options import AsJson, Assignments, Data, Layout, Output, Recipe, config_of, load
from decaf.errors import DataError

if TYPE_CHECKING:
    from decaf.config import Config
    from decaf.datasets import Dataset, Statistics

__all__ = ["convert", "inspect", "match", "metrics", "settings", "split"]


def inspect(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A dataset (folder, table or `catalogue`) or a model.")],
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Print what a dataset is like, or what a model is made of."""
    from decaf import console

    with console.session():
        if any(next(Path(path).glob(name), None) for name in ("model.json", "checkpoint", "instance-*.safetensors")):
            from decaf.model import Model

            facts = Model.load(path).facts()
            show = partial(console.show_facts, Path(path).name, facts)
        else:
            counted = _statistics(path, config_of(assignments))
            facts, show = dataclasses.asdict(counted), partial(console.show_statistics, counted)
    if as_json:
        print(json.dumps(facts))
    else:
        show()


def convert(data: Data, output: Output, layout: Layout = None, assignments: Assignments = None) -> None:
    """Write a dataset in another layout; ids, texts, labels, weights and filters stay as they are.

    To the sparse layouts, texts become features; the texts themselves are kept beside them.
    """
    from decaf import console

    with console.session():
        config = config_of(assignments)
        _save(load(data, config), output, layout, config)


def split(data: Data, output: Output, layout: Layout = None, assignments: Assignments = None) -> None:
    """Share documents out at random between training and test, 70:30.

    Labels without a document on both sides are left out, and pairs of a document with itself or the reverse of a
    trained pair are filtered. Change the share with `--set split.train=0.8`, the draw with `--set split.seed=1`.
    """
    from decaf import console

    with console.session():
        config = config_of(assignments)
        dataset = load(data, config)
        parted = dataset.split(config.split)
        _save(parted, output, layout, config)
    labels = dataset.labels.count - parted.labels.count
    documents = dataset.document_count - parted.document_count
    console.say(
        f"left out: {labels:,} labels without a document on both sides, {documents:,} documents without a label"
    )


def match(
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the predictions (.npz).")
    ],
    top: Annotated[int, typer.Option(min=1, help="Labels to keep for each document.")] = 50,
    assignments: Assignments = None,
) -> None:
    """Predict a dataset's test labels by label text alone: the baseline that needs no training."""
    from decaf import console
    from decaf.features import with_features
    from decaf.predictions import save_scores
    from decaf.scoring import LabelTextScorer

    if output.suffix != ".npz" or output.is_dir():
        raise DataError(f"{output}: expected the name of a file that ends in .npz")
    if not os.access(output.parent, os.W_OK):
        raise DataError(f"{output.parent}: is no folder that can be written; choose another")
    with console.session():
        config = config_of(assignments)
        dataset = with_features(_need_test(load(data, config)), config.features)
        predictions = LabelTextScorer(dataset.labels.need_features()).top(dataset.test.documents.need_features(), top)
        save_scores(predictions.to_csr(dataset.labels.count), output)
    console.say(f"wrote {output}; judge it with: decaf metrics {data} {output}")


def metrics(
    data: Data,
    predictions: Annotated[
        Path,
        typer.Argument(metavar="PREDICTIONS", help="Scores of test documents by labels, from scipy.sparse.save_npz."),
    ],
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Judge anybody's predictions for the test documents of a dataset, the filter applied."""
    from decaf import console
    from decaf.metrics import evaluate, frequency_quantiles
    from decaf.predictions import Predictions, drop_pairs, load_scores

    with console.session():
        dataset = _need_test(load(data, config_of(assignments)))
        truth, filters = dataset.test.truth, dataset.test.filters
        scores = drop_pairs(load_scores(predictions, *truth.shape), filters)
        ranked = Predictions.from_csr(scores, top=20)
        figures = evaluate(ranked, truth, dataset.inverse_propensity, filters)
        quantiles = frequency_quantiles(ranked, truth, dataset.frequency, filters)
    if as_json:
        print(json.dumps(figures | {"quantiles": [dataclasses.asdict(quantile) for quantile in quantiles]}))
    else:
        console.show_metrics({predictions.name: figures})
        console.show_quantiles({predictions.name: quantiles})


def settings(
    stage: Annotated[str | None, typer.Argument(metavar="[STAGE]", help="Only those of a stage, e.g. ranker.")] = None,
    recipe: Recipe = "contrastive",
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """List every setting of a recipe with its value and what it does."""
    from decaf import config as configuration
    from decaf import console

    config = configuration.recipe(recipe).with_settings(assignments or [])
    if not as_json:
        console.show_settings(config, stage)
    else:
        print(json.dumps(config.to_json(stage), indent=1))


def _statistics(path: str, config: Config) -> Statistics:
    from decaf.datasets import statistics
    from decaf.features import with_features

    dataset = load(path, config)
    return statistics(with_features(dataset, config.features) if dataset.has_texts else dataset)


def _need_test(dataset: Dataset) -> Dataset:
    if not dataset.test.documents.count:
        raise DataError(f"{dataset.name}: has no test documents; make some with decaf split")
    return dataset


def _save(dataset: Dataset, output: Path, layout: str | None, config: Config) -> None:
    from decaf import console
    from decaf.features import with_features

    layout = layout or ("raw" if dataset.has_texts else "sparse")
    if layout in ("sparse", "single"):
        dataset = with_features(dataset, config.features)
    dataset.save(output, layout)
    console.say(f"wrote {output} ({layout}): {dataset}")
