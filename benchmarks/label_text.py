"""The label-text match on the test documents of datasets: accuracy, and time for a document.

python -m benchmarks.label_text [DATASET ...]    (by itself: the embedded catalogue)
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.report import parser, write_report
from decaf import Config, Dataset, LabelTextScorer, evaluate, with_features


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="*", default=["catalogue"], metavar="DATASET")
    arguments = options.parse_args()
    figures: dict[str, Any] = {}
    for path in arguments.datasets:
        dataset = with_features(Dataset.load(path), Config().features)
        truth, filters = dataset.test.truth, dataset.test.filters
        scorer = LabelTextScorer(dataset.labels.need_features())
        start = time.perf_counter()
        predictions = scorer.top(dataset.test.documents.need_features(), 50)
        seconds = time.perf_counter() - start
        scores = evaluate(predictions, truth, dataset.inverse_propensity, filters)
        unfiltered = evaluate(predictions, truth, dataset.inverse_propensity, filters[:0])
        figures[dataset.name] = {
            **{name: round(score, 2) for name, score in scores.items()},
            "unfiltered P@1": round(unfiltered["P@1"], 2),
            "unfiltered PSP@1": round(unfiltered["PSP@1"], 2),
            "ms_per_document": round(1000 * seconds / len(predictions), 4),
        }
    write_report("label_text", 0, figures, save=arguments.save)


if __name__ == "__main__":
    main()
