"""The tour: what the embedded catalogue is like, and what can be predicted on it."""

from __future__ import annotations

from decaf import console
from decaf.config import FeatureSettings
from decaf.datasets import CATALOGUE, Dataset, statistics
from decaf.features import Features, texts_of, with_features
from decaf.metrics import evaluate, frequency_quantiles
from decaf.scoring import LabelTextScorer

__all__ = ["run_demo"]

_NEW = ("python3-neural-parser", "libsparse-matrix-dev")  # names of no Debian package

_NEXT = """
[bold]with your own data[/bold]
  source .venv/bin/activate          puts decaf on your path
  decaf inspect my.csv               a text column and a labels column; docs/datasets.md
  decaf split my.csv my-data         training and test documents, 70:30
  decaf train my-data -o my-model    the paper's recipe; docs/training.md
  decaf evaluate my-model my-data    its figures, beside those of: decaf match, decaf metrics
"""


def run_demo() -> None:
    """Print statistics, the figures of the label-text match, some of its predictions, and what to do next."""
    settings = FeatureSettings()
    dataset = Dataset.load(CATALOGUE)
    features = Features.learn(texts_of(dataset.train.documents, settings), texts_of(dataset.labels, settings), settings)
    dataset = with_features(dataset, settings, features)
    console.show_statistics(statistics(dataset))

    scorer = LabelTextScorer(dataset.labels.need_features())
    truth, filters = dataset.test.truth, dataset.test.filters
    predictions = scorer.top(dataset.test.documents.need_features(), 50).without(filters, dataset.labels.count)
    console.out.print("\n[bold]match by label text, no training[/bold]")
    console.show_metrics({"label text": evaluate(predictions, truth, dataset.inverse_propensity, filters)})
    console.show_quantiles(frequency_quantiles(predictions, truth, dataset.frequency, filters))

    console.out.print("\n[bold]packages of the test part (what is right is ticked), and names of no package[/bold]")
    known = range(0, dataset.test.documents.count, 5000)
    right = [truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist() for row in known]
    console.show_predictions(map(dataset.test.documents.text, known), predictions.take(known, 5), dataset.labels, right)
    console.show_predictions(_NEW, scorer.top(features.transform(_NEW), 5), dataset.labels)
    console.out.print(_NEXT, end="", soft_wrap=True)
