"""The nearest clusters of one document at a time, one thread: the fast scorer's search beside indexes of FAISS.

    python -m benchmarks.search MODEL DATASET [--queries 400] [--save]

All look for the clusters that a model of MODEL looks into, from ready vectors; recall is the share of the exact ones
that is found. Times are of this machine; compare those of one run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.report import parser, write_report
from decaf import Dataset, Model
from decaf.experiments.judging import features_of
from decaf.packed import Floats, Ints, whole
from decaf.scoring.arithmetic import Vectors
from decaf.scoring.fast import FastScorer, _documents

WIDER = (256, 1024)  # neighbours that HNSW keeps while it looks
PROBES = (8, 32)  # lists of IVF that are looked into


def main() -> None:
    options = parser(__doc__)
    options.add_argument("model", type=Path)
    options.add_argument("dataset")
    options.add_argument("--queries", type=int, default=400)
    arguments = options.parse_args()
    faiss.omp_set_num_threads(1)
    model, dataset = Model.load(arguments.model), Dataset.load(arguments.dataset)
    rows = features_of(model, dataset.test.documents)
    chosen = np.random.default_rng(0).choice(rows.shape[0], min(arguments.queries, rows.shape[0]), replace=False)
    instance, clusters = FastScorer(model)._instances[0], model.packed[0].clusters
    vectors = instance._encoded(_documents(rows[np.sort(chosen)]), instance._near)
    # A bias is one more direction, in which every document is 1 long.
    asked = np.c_[vectors.floats(len(instance._near.gate)), np.ones(len(chosen))].astype(np.float32)
    table = np.c_[whole(clusters.weights, clusters.scales), clusters.bias].astype(np.float32)
    beam = min(model.packed[0].beam, len(table))
    wanted = np.argpartition(-(asked @ table.T), beam - 1, axis=1)[:, :beam]

    def measured(search: Callable[[int], Ints]) -> dict[str, float]:
        taken, shares = [], []
        for query, of in enumerate(wanted):
            started = time.perf_counter()
            found = search(query)
            taken.append(1e6 * (time.perf_counter() - started))
            shares.append(len(np.intersect1d(found, of)) / beam)
        return {"recall": round(100 * float(np.mean(shares)), 2), "p50_us": round(float(np.median(taken)), 1)}

    found: dict[str, Any] = {"decaf": measured(lambda query: instance._nearest(_one(vectors, query))[0])}
    for name, index in _indexes(table):
        found[name] = measured(lambda query, index=index: index.search(asked[query : query + 1], beam)[1])  # type: ignore[misc]
    figures = {"dataset": dataset.name, "clusters": len(table), "beam": beam, "queries": len(chosen), "search": found}
    write_report(f"search-{Path(arguments.dataset).name}", 0, figures, save=arguments.save)


def _one(vectors: Vectors, query: int) -> Vectors:
    at = slice(query, query + 1)
    return Vectors(vectors.values[at], vectors.steps[at], vectors.sums[at], vectors.planes[at])


def _indexes(table: Floats) -> Any:  # noqa: ANN401 - names and indexes, one after another
    """Indexes of FAISS over the rows of a table, from exact to approximate."""
    dim, metric = table.shape[1], faiss.METRIC_INNER_PRODUCT
    flat, graph = faiss.IndexFlatIP(dim), faiss.IndexHNSWFlat(dim, 32, metric)
    lists = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, round(len(table) ** 0.5), metric)
    lists.train(table)
    for index in (flat, graph, lists):
        index.add(table)
    yield "faiss flat", flat
    for wide in WIDER:
        graph.hnsw.efSearch = wide
        yield f"faiss HNSW, {wide}", graph
    for probes in PROBES:
        lists.nprobe = probes
        yield f"faiss IVF, {probes}", lists


if __name__ == "__main__":
    main()
