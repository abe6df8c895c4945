"""The tour: train the default recipe on the embedded catalogue, and show what it has learned."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from decaf import console
from decaf.config import Config, FeatureSettings
from decaf.datasets import CATALOGUE, Dataset, statistics
from decaf.errors import ConfigError
from decaf.evaluation import Evaluation, keep_evaluation
from decaf.features import with_features
from decaf.metrics import evaluate, frequency_quantiles
from decaf.predictor import Predictor
from decaf.scoring import LabelTextScorer
from decaf.training import train

__all__ = ["run_demo"]

_NEW = ("python3-neural-parser", "libsparse-matrix-dev")  # names of no Debian package
_SHOWN = range(0, 14_000, 4000)  # test documents

_WHAT = """[bold]the catalogue[/bold]: names of Debian packages (documents), and the packages that each depends on,
recommends, suggests or enhances (labels)
"""
_LEAN = "what the figures are: docs/metrics.md; --tail leans from frequent labels to rare ones (PSP)"
_NEXT = """
[bold]with your own data[/bold]
  source .venv/bin/activate          puts decaf on your path
  decaf inspect my.csv               a text column and a labels column; docs/datasets.md
  decaf split my.csv my-data         training and test documents, 70:30
  decaf train my-data -o my-model    the recipe you have just seen; docs/training.md
  decaf evaluate my-model my-data    its figures on the test documents
  decaf predict my-model "a text"    its labels, with the chance of each
  decaf serve my-model               the same over HTTP, with a page; docs/serving.md
"""


def run_demo(config: Config, output: Path | None = None, *, page: bool = False, port: int | None = None) -> None:
    """Print statistics, train, print the figures beside those of the label-text match, and some predictions.

    With a folder, the model is kept there. With `page` it is served until it is stopped.
    """
    with TemporaryDirectory(prefix="decaf-") as passing:
        folder = output or Path(passing) / CATALOGUE
        _tour(config, folder, kept=output is not None)
        if page:
            _serve(folder, port)


def _serve(folder: Path, port: int | None) -> None:
    from decaf.serving import ServeSettings, serve  # web frameworks and all

    console.out.print("\n[bold]the page[/bold]: type a name and see; Ctrl-C ends it", soft_wrap=True)
    try:
        serve(folder, ServeSettings() if port is None else ServeSettings(port=port), announce=console.say)
    except ConfigError:
        if port is not None:
            raise
        serve(folder, ServeSettings(port=0), announce=console.say)  # somebody else listens at the usual one


def _tour(config: Config, folder: Path, *, kept: bool) -> None:
    console.out.print(_WHAT, end="", soft_wrap=True)
    dataset = Dataset.load(CATALOGUE)
    ready = with_features(dataset, FeatureSettings())
    console.show_statistics(statistics(ready))
    truth, filters, gains = dataset.test.truth, dataset.test.filters, dataset.inverse_propensity
    matched = LabelTextScorer(ready.labels.need_features()).top(ready.test.documents.need_features(), 50)
    matched = matched.without(filters, dataset.labels.count)

    console.say("\ntraining the default recipe: one to three minutes on two cores")
    predictor = Predictor(train(dataset, config, device="cpu", folder=folder))
    found = predictor.predict(dataset.test.documents.texts or [], top=50).without(filters, dataset.labels.count)

    console.out.print("\n[bold]on the test packages, in percent[/bold]")
    systems = {"label text alone": matched, "decaf": found}
    figures = {name: evaluate(of, truth, gains, filters) for name, of in systems.items()}
    rare = {name: frequency_quantiles(of, truth, dataset.frequency, filters) for name, of in systems.items()}
    console.show_metrics(figures)
    console.show_quantiles(rare)
    keep_evaluation(Evaluation(CATALOGUE, figures["decaf"], rare["decaf"]), folder)
    console.out.print(_LEAN, soft_wrap=True)

    console.out.print("\n[bold]packages of the test part: what they relate to (what is right is ticked)[/bold]")
    right = [truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist() for row in _SHOWN]
    console.show_predictions(map(dataset.test.documents.text, _SHOWN), found.take(_SHOWN, 5), dataset.labels, right)
    console.out.print("\n[bold]names of no package[/bold]")
    console.show_predictions(_NEW, predictor.predict(_NEW), dataset.labels)
    if kept:
        console.out.print(f"\nthe model is in {folder}; try: decaf predict {folder} python3-my-name", soft_wrap=True)
    else:
        console.out.print("\nto keep the model: decaf demo -o demo-model", soft_wrap=True)
    console.out.print(_NEXT, end="", soft_wrap=True)
