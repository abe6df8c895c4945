"""The command line: verbs only; the work is done elsewhere, and imported when a verb is called."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from decaf import __version__
from decaf.errors import ConfigError, DataError, DecafError
from decaf.serving import ServeSettings

if TYPE_CHECKING:
    from decaf.batch import BatchSettings
    from decaf.config import Config
    from decaf.datasets import Dataset, Statistics
    from decaf.live import LabelView
    from decaf.predictions import Predictions
    from decaf.scoring.explain import Explanation

__all__ = ["app", "main"]

app = typer.Typer(
    name="decaf",
    epilog="Begin with `decaf demo`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

SERVED = ServeSettings()
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
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a trained model.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")]
Recipe = Annotated[
    str,
    typer.Option(metavar="NAME", help="contrastive, paper, or paper-lite (token embeddings as module I left them)."),
]
Tail = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="From 0, frequent labels first, to 1, rare ones; left out: as the model was made."),
]
Fast = Annotated[
    bool | None,
    typer.Option(
        "--fast/--exact", help="Compiled loops on the CPU, or every cluster looked at; left out: fast on the CPU."
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU; left out: one for each core.")]
Verify = Annotated[
    bool,
    typer.Option("--verify/--no-verify", help="Compare the model's files with their checksums, which takes a while."),
]
Kept = Annotated[
    str,
    typer.Option(
        "--labels",
        metavar="WHERE",
        envvar="DECAF_LABELS",
        help="Where live labels are kept, a file or postgresql://...; left out: MODEL.labels.sqlite.",
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


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"decaf {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which few of a million labels belong to this short text?"""


@app.command()
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


@app.command()
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
        dataset = _load(data, config)
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


@app.command()
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

    fast = _checked(fast, device)
    with console.session():
        loaded = Model.load(model, verify=verify)
        dataset, count = _load(data, loaded.config), _use_threads(threads)
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


@app.command()
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

    fast = _checked(fast, device)
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
        if not wanted:
            raise DataError("there is no text to predict; write it behind the model, or name a file with --input")
        count, changes = _use_threads(threads), kept_changes(model, kept)
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


@app.command()
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
            counted = _statistics(path, _config(assignments))
            facts, show = dataclasses.asdict(counted), partial(console.show_statistics, counted)
    if as_json:
        print(json.dumps(facts))
    else:
        show()


@app.command()
def convert(data: Data, output: Output, layout: Layout = None, assignments: Assignments = None) -> None:
    """Write a dataset in another layout; ids, texts, labels, weights and filters stay as they are.

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
        dataset = _load(data, config)
        parted = dataset.split(config.split)
        _save(parted, output, layout, config)
    labels = dataset.labels.count - parted.labels.count
    documents = dataset.document_count - parted.document_count
    console.say(
        f"left out: {labels:,} labels without a document on both sides, {documents:,} documents without a label"
    )


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

    if output.suffix != ".npz" or output.is_dir():
        raise DataError(f"{output}: expected the name of a file that ends in .npz")
    if not os.access(output.parent, os.W_OK):
        raise DataError(f"{output.parent}: is no folder that can be written; choose another")
    with console.session():
        config = _config(assignments)
        dataset = with_features(_need_test(_load(data, config)), config.features)
        predictions = LabelTextScorer(dataset.labels.need_features()).top(dataset.test.documents.need_features(), top)
        save_scores(predictions.to_csr(dataset.labels.count), output)
    console.say(f"wrote {output}; judge it with: decaf metrics {data} {output}")


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
        dataset = _need_test(_load(data, _config(assignments)))
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


@app.command()
def settings(recipe: Recipe = "contrastive", assignments: Assignments = None, as_json: AsJson = False) -> None:
    """List every setting of a recipe with its value and what it does."""
    from decaf import config as configuration
    from decaf import console

    config = configuration.recipe(recipe).with_settings(assignments or [])
    if as_json:
        print(json.dumps(config.to_json(), indent=1))
    else:
        console.show_settings(config)


@app.command()
def serve(
    model: ModelFolder,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is all of them.")] = SERVED.host,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: one that is free.")] = SERVED.port,
    workers: Annotated[int, typer.Option(min=1, help="Processes that answer.")] = SERVED.workers,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker's scorer.")] = SERVED.threads,
    labels: Kept = "",
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Load another model when it stands there.")
    ] = SERVED.watch,
    verify: Verify = SERVED.verify,
    read_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="DECAF_READ_KEY", show_envvar=True, help="Who asks must send this key."),
    ] = None,
    write_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="DECAF_WRITE_KEY", show_envvar=True, help="Who changes must send this key."),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages of this origin ask, as often as needed.")
    ] = None,
    body_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = SERVED.body_bytes,
    texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = SERVED.texts,
    text_length: Annotated[int, typer.Option(min=1, help="Characters of a text.")] = SERVED.text_length,
    top: Annotated[int, typer.Option(min=1, help="Most labels for each text.")] = SERVED.top,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a CSV file.")] = SERVED.rows,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait to be scored.")] = SERVED.queue,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once, in each worker.")] = SERVED.concurrency,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request.")] = SERVED.timeout,
    drain: Annotated[float, typer.Option(min=0.001, help="Seconds for running requests after SIGTERM.")] = SERVED.drain,
    idle: Annotated[float, typer.Option(min=0.001, help="Seconds that a connection may do nothing.")] = SERVED.idle,
    connections: Annotated[int, typer.Option(min=1, help="Connections at once, in each worker.")] = SERVED.connections,
    head_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of a request's address and headers.")
    ] = SERVED.head_bytes,
    unsent_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of answers that clients leave unread, in each worker.")
    ] = SERVED.unsent_bytes,
) -> None:
    """Answer over HTTP, with a page to try the model on."""
    from decaf import console
    from decaf.serving import serve as run

    for name in ("READ", "WRITE"):  # a variable that was forgotten must not open the door
        if os.environ.get(f"DECAF_{name}_KEY") == "":
            raise ConfigError(f"DECAF_{name}_KEY is empty; set a key, or unset the variable")
    if read_key == "" or write_key == "":
        raise ConfigError("a key is empty; set one, or leave the option out")
    settings = ServeSettings(
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        labels=labels,
        watch=watch,
        verify=verify,
        read_key=read_key or "",
        write_key=write_key or "",
        cors=tuple(cors or ()),
        body_bytes=body_bytes,
        texts=texts,
        text_length=text_length,
        top=top,
        rows=rows,
        queue=queue,
        concurrency=concurrency,
        timeout=timeout,
        drain=drain,
        idle=idle,
        connections=connections,
        head_bytes=head_bytes,
        unsent_bytes=unsent_bytes,
    )
    with console.session():
        run(model, settings, announce=console.say)


labels_app = typer.Typer(
    no_args_is_help=True,
    help="Labels that come and go after training, kept beside the model in MODEL.labels.sqlite.",
)
app.add_typer(labels_app, name="labels")
LabelId = Annotated[str, typer.Argument(metavar="ID", help="The id of a label.")]


@labels_app.command("add")
def add_label(
    model: ModelFolder,
    label: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of a label.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Its text.")] = None,
    source: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Many at once: a CSV file with columns id and text.")
    ] = None,
    kept: Kept = "",
) -> None:
    """Add a label by its text alone, give one another text, or bring a hidden one back.

    It is predicted from now on, also by a service that runs on the model. Train again when there is time: a label with
    documents of its own is found far more often.
    """
    from decaf import console
    from decaf.labels import add_labels, read_labels

    with console.session():
        if (source is None) == (label is None or text is None):
            raise DataError("write the id and the text behind the model, or name a table with --input")
        wanted = {label or "": text or ""} if source is None else read_labels(source)
        count = add_labels(model, wanted, kept)
    console.say(f"{count:,} {'label' if count == 1 else 'labels'} added or changed")


@labels_app.command("remove")
def remove_label(model: ModelFolder, label: LabelId, kept: Kept = "") -> None:
    """Take an added label away, or hide one that was trained; `decaf labels add` brings it back."""
    from decaf import console
    from decaf.labels import remove_label as remove

    with console.session():
        hidden = remove(model, label, kept)
    console.say(f"{label} is {'hidden' if hidden else 'gone'}")


@labels_app.command("list")
def list_labels(model: ModelFolder, kept: Kept = "", as_json: AsJson = False) -> None:
    """List what was changed since training; as JSON, one object a line."""
    from decaf import console
    from decaf.header import read_header
    from decaf.stores import kept_changes, to_lines

    with console.session():
        changes = kept_changes(model, kept)
        if not changes:
            read_header(model)  # or there is no such model either
    if as_json:
        for line in to_lines(changes):
            print(line)
    else:
        console.show_changes(changes)


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
                threads=(threads or 1) if many else _use_threads(threads),
                labels=labels,
                engine=on_ray(workers) if many else here,
                verify=verify,
            )
        except KeyboardInterrupt:
            console.say("stopped; run the same command again to go on")
            raise typer.Exit(130) from None
    console.say(f"wrote {output}: {count:,} {'document' if count == 1 else 'documents'}")


def _checked(fast: bool | None, device: str) -> bool | None:
    """The wanted scorer, if it can work on that device."""
    if fast and device == "cuda":
        raise ConfigError("--fast scores on the CPU; leave it out, or leave out --device cuda")
    return fast


def _use_threads(threads: int | None) -> int:
    """How many threads there are to work with, after this choice."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def _lines(source: Path) -> list[str]:
    """The texts of a file, one a line."""
    from decaf.datasets.files import read_lines

    if str(source) == "-":
        return [line.rstrip("\r\n") for line in sys.stdin]
    return [text.rstrip("\r\n") for _, text in read_lines(source)]


def _statistics(path: str, config: Config) -> Statistics:
    from decaf.datasets import statistics
    from decaf.features import with_features

    dataset = _load(path, config)
    return statistics(with_features(dataset, config.features) if dataset.has_texts else dataset)


def _config(assignments: list[str] | None) -> Config:
    from decaf.config import Config

    return Config().with_settings(assignments or [])


def _load(data: str, config: Config) -> Dataset:
    from decaf.datasets import Dataset

    return Dataset.load(data, table=config.table)


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
