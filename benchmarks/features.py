"""Text features: titles a second in batch, microseconds for one, and which tokens match label texts best.

    python -m benchmarks.features [DATASET ...]      (by itself: the embedded catalogue)

Tokens are compared on validation documents out of the training part, never on test documents.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.report import parser, write_report
from decaf import Config, Dataset, Features, LabelTextScorer, evaluate, with_features
from decaf.features import texts_of

SEED = 0
VALIDATION_DOCUMENTS = 6_000
VARIANTS = {
    "pieces (default)": [],
    "pieces and whole words": ["features.words=true"],
    "every word seen twice whole": ["features.vocabulary=1000000"],
    "without stop words": ["features.stop_words=true"],
    "5,000 pieces": ["features.vocabulary=5000"],
    "20,000 pieces": ["features.vocabulary=20000"],
    "40,000 pieces": ["features.vocabulary=40000"],
}


def speed(dataset: Dataset) -> dict[str, float]:
    """Batch and single-text speed on the test documents; the best of five, since the machine is shared."""
    settings = Config().features
    start = time.perf_counter()
    features = Features.learn(texts_of(dataset.train.documents, settings), texts_of(dataset.labels, settings), settings)
    learned = time.perf_counter() - start
    texts = list(texts_of(dataset.test.documents, settings))
    batches, singles = [], []
    for _ in range(5):
        start = time.perf_counter()
        features.transform(texts)
        batches.append(time.perf_counter() - start)
    for text in texts[:5_000]:
        start = time.perf_counter()
        features.transform([text])
        singles.append(time.perf_counter() - start)
    return {
        "learn_seconds": round(learned, 2),
        "tokens": features.count,
        "titles_per_second": round(len(texts) / min(batches)),
        "one_text_p50_us": round(float(np.median(singles)) * 1e6, 1),
        "one_text_p99_us": round(float(np.quantile(singles, 0.99)) * 1e6, 1),
    }


def tokens(dataset: Dataset) -> dict[str, dict[str, float]]:
    """The label-text match on validation documents, by kind of token."""
    share = min(VALIDATION_DOCUMENTS / dataset.train.documents.count, 0.2)
    held_out = dataset.validation(Config().with_settings([f"split.validation={share}", f"split.seed={SEED}"]).split)
    results = {}
    for name, assignments in VARIANTS.items():
        featured = with_features(held_out, Config().with_settings(assignments).features)
        labels, documents = featured.labels.need_features(), featured.test.documents.need_features()
        predictions = LabelTextScorer(labels).top(documents, 50)
        scores = evaluate(predictions, featured.test.truth, dataset.inverse_propensity, featured.test.filters)
        shown = {key: round(scores[key], 2) for key in ("P@1", "P@5", "PSP@1", "PSP@5")}
        results[name] = {"tokens": labels.shape[1], **shown}
    return results


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="*", default=["catalogue"], metavar="DATASET")
    arguments = options.parse_args()
    figures: dict[str, Any] = {}
    for path in arguments.datasets:
        dataset = Dataset.load(path)
        figures[dataset.name] = {"speed": speed(dataset), "label_text_match_on_validation": tokens(dataset)}
    write_report("features", SEED, figures, save=arguments.save)


if __name__ == "__main__":
    main()
