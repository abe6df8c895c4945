"""The command line: verbs only; the work is done elsewhere, and imported when a verb is called."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decaf.errors import DataError, DecafError

if TYPE_CHECKING:
    from decaf.config import Config
    from decaf.datasets import Dataset

__all__ = ["app", "main"]

app = typer.Typer(
    name="decaf",
    help="Which few of a million labels belong to this short text?",
    epilog="Begin with `decaf demo`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset: a folder, a table, or `catalogue`, the embedded one.")
]
Output = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not exist yet.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="STAGE.KEY=VALUE", help="Change a setting, as often as needed; see `decaf settings`."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Layout = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="LAYOUT",
        help="raw, sparse, single, csv, jsonl or parquet  [default: raw; sparse without texts]",
    ),
]


@app.command()
def demo(
    no_serve: Annotated[
        bool, typer.Option("--no-serve", help="Stop after the printout (there is no page to serve yet).")
    ] = False,
) -> None:
    """Show what DECAF does on the embedded catalogue of Debian packages."""
    from decaf import console
    from decaf.demo import run_demo

    with console.session():
        run_demo()


@app.command()
def inspect(data: Data, assignments: Assignments = None, as_json: AsJson = False) -> None:
    """Print what a dataset is like: its sizes, and how often its labels occur."""
    from decaf import console
    from decaf.datasets import statistics
    from decaf.features import with_features

    with console.session():
        config = _config(assignments)
        dataset = _load(data, config)
        facts = statistics(with_features(dataset, config.features) if dataset.has_texts else dataset)
    if as_json:
        print(json.dumps(dataclasses.asdict(facts)))
    else:
        console.show_statistics(facts)


@app.command()
def convert(data: Data, output: Output, layout: Layout = None, assignments: Assignments = None) -> None:
    """Write a dataset in another layout, without loss.

    To the sparse layouts, texts become features; the texts themselves are kept beside them.
    """
    from decaf import console

    with console.session():
        config = _config(assignments)
        _save(_load(data, config), output, layout, config)


@app.command()
def split(data: Data, output: Output, layout: Layout = None, assignments: Assignments = None) -> None:
    """Share documents out at random between training and test, 70:30.

    Labels without a document on both sides are left out, and pairs of a document with itself or the reverse of a
    trained pair are filtered. Change the share with `--set split.train=0.8`, the draw with `--set split.seed=1`.
    """
    from decaf import console

    with console.session():
        config = _config(assignments)
        _save(_load(data, config).split(config.split), output, layout, config)


@app.command()
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

    if not output.parent.is_dir():
        raise DataError(f"{output.parent}: there is no such folder; make it first")
    with console.session():
        config = _config(assignments)
        dataset = with_features(_load(data, config), config.features)
        predictions = LabelTextScorer(dataset.labels.need_features()).top(dataset.test.documents.need_features(), top)
        save_scores(predictions.to_csr(dataset.labels.count), output)
    console.errors.print(f"wrote {output}; judge it with: decaf metrics {data} {output}", markup=False)


@app.command()
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
        dataset = _load(data, _config(assignments))
        truth, filters = dataset.test.truth, dataset.test.filters
        scores = drop_pairs(load_scores(predictions, *truth.shape), filters)
        ranked = Predictions.from_csr(scores, top=20)
        figures = evaluate(ranked, truth, dataset.inverse_propensity, filters)
        quantiles = frequency_quantiles(ranked, truth, dataset.frequency, filters)
    if as_json:
        print(json.dumps(figures | {"quantiles": [dataclasses.asdict(quantile) for quantile in quantiles]}))
    else:
        console.show_metrics({predictions.name: figures})
        console.show_quantiles(quantiles)


@app.command()
def settings(assignments: Assignments = None, as_json: AsJson = False) -> None:
    """List every setting with its value and what it does."""
    from decaf import console

    config = _config(assignments)
    if as_json:
        print(json.dumps(config.to_json(), indent=1))
    else:
        console.show_settings(config)


def _config(assignments: list[str] | None) -> Config:
    from decaf.config import Config

    return Config().with_settings(assignments or [])


def _load(data: str, config: Config) -> Dataset:
    from decaf.datasets import Dataset

    return Dataset.load(data, table=config.table)


def _save(dataset: Dataset, output: Path, layout: str | None, config: Config) -> None:
    from decaf import console
    from decaf.features import with_features

    layout = layout or ("raw" if dataset.has_texts else "sparse")
    if layout in ("sparse", "single"):
        dataset = with_features(dataset, config.features)
    dataset.save(output, layout)
    console.errors.print(f"wrote {output} ({layout}): {dataset}", markup=False)


def main() -> None:
    """Run a verb; what goes wrong on purpose is one line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except DecafError as error:
        sys.exit(f"decaf: {error}")
    except OSError as error:
        sys.exit(f"decaf: {error.filename or 'input or output'}: {error.strerror or error}")
