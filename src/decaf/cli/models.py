"""Verbs that make models and use them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from decaf.cli.options import (
    AsJson,
    Assignments,
    Data,
    Device,
    Fast,
    Kept,
    ModelFolder,
    Recipe,
    Tail,
    Threads,
    Verify,
    checked,
    load,
    use_threads,
)
from decaf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from decaf.batch import BatchSettings
    from decaf.live import LabelView
    from decaf.predictions import Predictions
    from decaf.scoring.explain import Explanation

__all__ = ["demo", "evaluate", "predict", "train"]


def demo(
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Stop after the printout, without the page.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the page; left out: 8000, or one that is free.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MODEL", help="Keep the model in this folder.")
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Train on the embedded catalogue of Debian packages, show what was learned, and serve a page to try it on."""
    from decaf import config as configuration
    from decaf import console
    from decaf.demo import run_demo

    with console.session():
        try:
            run_demo(configuration.recipe().with_settings(assignments or []), output, page=not no_serve, port=port)
        except KeyboardInterrupt:
            console.say("stopped" if output is None else "stopped; run the same command again to go on")
            raise typer.Exit(130) from None


def train(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Folder of the model.")],
    recipe: Recipe = "contrastive",
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of training; split.seed is that of splits.")] = 0,
    precision: Annotated[
        str | None,
        typer.Option(metavar="int4|int8|float32", help="How weights are kept; int4 takes a quarter of the room."),
    ] = None,
    assignments: Assignments = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show warnings alone.")] = False,
) -> None:
    """Train a model. Run again after a stop, the same command goes on where it was.

    `torchrun --nproc-per-node N -m decaf train ...` trains on N GPUs, or in N processes, which share out the labels.
    """
    from decaf import config as configuration
    from decaf import console, training
    from decaf.ranks import joined, launched

    first = launched()[0] == 0  # of several processes; the others are silent
    quiet = quiet or not first
    with console.session(quiet=quiet, silent=not first):
        of_options = [] if precision is None else [f"model.precision={precision}"]
        config = configuration.recipe(recipe).with_settings([*(assignments or []), *of_options])
        dataset = load(data, config)
        try:
            with joined(device) as ranks:
                training.train(dataset, config, seed=seed, device=device, folder=output, ranks=ranks)
        except KeyboardInterrupt:
            if first:
                console.say("stopped; run the same command again to go on")
            raise typer.Exit(130) from None
    if not quiet:
        judged = dataset.test.documents.count > 0
        console.say(
            f"{output} is ready; next: decaf "
            + (f"evaluate {output} {data}" if judged else f'predict {output} "a text"')
        )


def evaluate(
    model: ModelFolder,
    data: Data,
    device: Device = "auto",
    tail: Tail = None,
    fast: Fast = None,
    threads: Threads = None,
    verify: Verify = True,
    as_json: AsJson = False,
) -> None:
    """Predict the test documents of a dataset with a model, and judge the predictions, the filter applied."""
    from decaf import console
    from decaf.evaluation import evaluation_of, keep_evaluation
    from decaf.model import Model
    from decaf.predictor import Predictor

    fast = checked(fast, device)
    with console.session():
        loaded = Model.load(model, verify=verify)
        dataset, count = load(data, loaded.config), use_threads(threads)
        predictor = Predictor(loaded, device=device, tail=tail, fast=fast, threads=count)
        evaluation = evaluation_of(predictor, dataset)
        if tail is None:
            keep_evaluation(evaluation, model)
        figures = evaluation.metrics
    if as_json:
        print(json.dumps(figures))
    else:
        console.show_metrics({model.name: figures})
        console.show_quantiles({model.name: evaluation.quantiles})
        console.out.print(f"{figures['ms_per_document']:.3f} ms a document")


def predict(
    model: ModelFolder,
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to find labels for.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Labels for each text.")] = 5,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Read texts from a file, one a line; - is standard input. With --output also tables.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Write what is found for --input into a new .jsonl, .csv or .parquet file; stopped, it can go on.",
        ),
    ] = None,
    column: Annotated[
        str, typer.Option("--text", metavar="COLUMN", help="Column of the text; left out: text, title, name, ...")
    ] = "",
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Only labels at least this likely.")] = 0.0,
    tail: Tail = None,
    device: Device = "cpu",
    fast: Fast = None,
    threads: Threads = None,
    kept: Kept = "",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="Who predicts for --output: local, or ray (docs/scaling.md).")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of --engine ray; left out: one for each core.")
    ] = None,
    verify: Verify = True,
    explain: Annotated[bool, typer.Option("--explain", help="Say which parts and tokens carried each score.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Find the few labels that belong to a text; those that `decaf labels` added are among them."""
    from decaf import console
    from decaf.model import Model
    from decaf.predictor import Predictor
    from decaf.stores import kept_changes

    fast = checked(fast, device)
    if output is not None:
        from decaf.batch import BatchSettings

        if texts or source is None or as_json or explain:
            raise DataError(
                "--output goes with --input FILE, without texts, --json and --explain; its suffix is the format"
            )
        settings = BatchSettings(column, top, threshold, tail, device, fast)
        where = (model, source, output, settings, threads)
        _predict_file(*where, labels=kept, engine=engine, workers=workers, verify=verify)
        return
    if engine != "local" or workers is not None:
        raise DataError("--engine and --workers go with --input FILE --output OUT; add these")
    if column:
        raise DataError("--text names a column of a table, which is read for --output OUT; add that")
    with console.session():
        if source is not None and source.suffix in (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"):
            raise DataError(f"{source}: is a table; add --output OUT.csv (or .jsonl, .parquet) to predict its rows")
        wanted = [*(texts or []), *(_lines(source) if source is not None else [])]
        if not wanted and source is not None:
            raise DataError(f"{source}: holds no text; write one a line, or write texts behind the model")
        if not wanted:
            raise DataError("there is no text to predict; write it behind the model, or name a file with --input")
        count, changes = use_threads(threads), kept_changes(model, kept)
        loaded = Model.load(model, verify=verify)
        predictor = Predictor(loaded, device=device, tail=tail, fast=fast, threads=count, changes=changes)
        predictions = predictor.predict(wanted, top=top, threshold=threshold)
        pairs = zip(wanted, predictions, strict=True)
        reasons = [predictor.explain(text, matches) for text, matches in pairs] if explain else None
    labels = predictor.labels
    if predictor.uncalibrated:
        console.say("these scores rank labels but are no chances: see docs/training.md on held-out documents")
    if as_json:
        _print_predictions(wanted, predictions, labels, reasons)
    else:
        console.show_predictions(wanted, predictions, labels, reasons=reasons)


def _print_predictions(
    texts: list[str], predictions: Predictions, labels: LabelView, reasons: list[list[Explanation]] | None
) -> None:
    """One JSON object a text."""
    for at, (text, matches) in enumerate(zip(texts, predictions, strict=True)):
        found: list[dict[str, Any]]
        found = [{"id": labels.id(label), "text": labels.text(label), "score": score} for label, score in matches]
        if reasons is not None:
            found = [one | {"parts": of.parts, "tokens": of.tokens} for one, of in zip(found, reasons[at], strict=True)]
        print(json.dumps({"text": text, "labels": found}, ensure_ascii=False))


def _predict_file(
    model: Path,
    source: Path,
    output: Path,
    settings: BatchSettings,
    threads: int | None,
    *,
    labels: str,
    engine: str,
    workers: int | None,
    verify: bool,
) -> None:
    from decaf import console
    from decaf.batch import here, predict_file
    from decaf.cluster import on_ray

    if engine not in ("local", "ray"):
        raise ConfigError(f"there is no engine {engine!r}; there are: local, ray")
    if engine == "local" and workers is not None:
        raise ConfigError("--workers go with --engine ray; threads of this process are --threads")
    many = engine == "ray"
    with console.session():
        try:
            count = predict_file(
                model,
                source,
                output,
                settings,
                threads=(threads or 1) if many else use_threads(threads),
                labels=labels,
                engine=on_ray(workers) if many else here,
                verify=verify,
            )
        except KeyboardInterrupt:
            console.say("stopped; run the same command again to go on")
            raise typer.Exit(130) from None
    console.say(f"wrote {output}: {count:,} {'document' if count == 1 else 'documents'}")


def _lines(source: Path) -> list[str]:
    """The texts of a file, one a line."""
    from decaf.datasets.files import read_lines

    if str(source) == "-":
        return [line.rstrip("\r\n") for line in sys.stdin]
    return [text.rstrip("\r\n") for _, text in read_lines(source)]
