"""All metrics for one million documents with 20 predictions each.

python -m benchmarks.metrics [--documents 1000000]
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.reading import random_matrix
from benchmarks.report import parser, write_report
from decaf import Predictions, Propensity, evaluate, frequency_quantiles

SEED = 0
LABELS, LABELS_EACH, TOP = 1_305_265, 5, 20


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=1_000_000)
    arguments = options.parse_args()
    documents: int = arguments.documents
    rng = np.random.default_rng(SEED)
    truth = random_matrix(documents, LABELS, LABELS_EACH, rng, ones=True)
    ids = (LABELS * rng.random((documents, TOP)) ** 3).astype(np.int64)
    # Half of the documents get a true label right.
    right = np.flatnonzero(rng.random(documents) < 0.5)
    ids[right, 0] = truth.indices[truth.indptr[right]]
    predictions = Predictions(ids, -np.sort(-rng.random(ids.shape, dtype=np.float32), axis=1))
    filters = np.column_stack([np.arange(0, documents, 2), ids[::2, 1]])
    frequency = np.bincount(truth.indices, minlength=LABELS)

    start = time.perf_counter()
    inverse = Propensity().inverse(frequency, documents)
    scores = evaluate(predictions, truth, inverse, filters)
    frequency_quantiles(predictions, truth, frequency, filters)
    ranked = time.perf_counter() - start
    start = time.perf_counter()
    Predictions.from_csr(predictions.to_csr(LABELS), TOP)
    ranking = time.perf_counter() - start
    figures = {
        "documents": documents,
        "predictions_each": TOP,
        "seconds": round(ranked, 2),
        "seconds_to_rank_a_sparse_matrix": round(ranking, 2),
        "P@1": round(scores["P@1"], 2),
    }
    write_report("metrics", SEED, figures, save=arguments.save)


if __name__ == "__main__":
    main()
