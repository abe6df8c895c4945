"""All test documents at once on a few threads, top 5: documents a second, beside the peers in one run.

    python -m benchmarks.throughput MODEL DATASET [--threads 2] [--rounds 3] [--environment FOLDER] [--save]

MODEL is a folder that `decaf train DATASET` has made. The peers, in the environment of benchmarks.peers, are trained
on its features and predict from ready ones; so does the fast scorer, which is measured from texts too. All are called
once to warm up, then once a round in turn; the best round counts. Compare times of one run only.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import SEED, SLOW, THREADS, judge
from benchmarks.report import RESULTS, parser, write_report
from decaf import Dataset, Features, Model, with_features
from decaf.experiments.peers import PACKAGES, TIMED, TOP, Worker, install, launched
from decaf.experiments.peers_worker import SYSTEMS
from decaf.features import texts_of
from decaf.scoring.fast import FastScorer

OURS = "decaf"
FROM_TEXTS = "decaf-from-texts"
JUDGED = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("model", type=Path, metavar="MODEL")
    options.add_argument("dataset", metavar="DATASET")
    options.add_argument("--threads", type=int, default=THREADS)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--environment", type=Path, default=Path(".scratch/peers"), help="folder of the peers' packages"
    )
    arguments = options.parse_args()
    if min(arguments.threads, arguments.rounds) < 1:
        options.error("threads and rounds begin at 1")
    model, dataset = Model.load(arguments.model), Dataset.load(arguments.dataset)
    if model.features is None or model.labels.count != dataset.labels.count:
        options.error("MODEL must have been trained on the texts of DATASET")
    torch.set_num_threads(1)  # the fast scorer has threads of its own
    python, failed = install(arguments.environment, list(PACKAGES))
    ready = with_features(dataset, model.config.features, model.features)
    with ExitStack() as stack:
        workers = []
        for name in SYSTEMS:
            if name not in SLOW and name.partition("-")[0] not in failed:
                peer = launched(ready, name, python, threads=arguments.threads, seed=SEED)
                workers.append(stack.enter_context(peer))
                print(f"{name}: trained, first prediction in {workers[-1].predict():.2f} s", flush=True)
        figures = compare(model, ready, workers, arguments.threads, arguments.rounds)
    title = f"throughput-{Path(arguments.dataset).name}"
    write_report(title, SEED, figures | {"not_installed": failed}, save=arguments.save)
    if arguments.save:
        draw(figures, RESULTS / f"{title}.png")


def compare(model: Model, dataset: Dataset, workers: list[Worker], threads: int, rounds: int) -> dict[str, Any]:
    """Times of all systems taken in turn, and what each reaches."""
    assert model.features is not None  # noqa: S101 - trained on texts
    features, scorer = model.features, FastScorer(model, threads=threads)
    texts, rows = texts_of(dataset.test.documents, features.settings), dataset.test.documents.need_features()
    reached = judge(scorer.top(rows, TOP), dataset)  # and warm
    runs = {
        FROM_TEXTS: lambda: _seconds_from_texts(features, scorer, texts),
        OURS: lambda: _seconds(lambda: scorer.top(rows, TIMED)),
        **{worker.name: worker.predict for worker in workers},
    }
    times = in_turn(runs, rounds)
    systems = {name: speed(times[name], len(texts)) | _judged(reached) for name in (FROM_TEXTS, OURS)}
    for worker in workers:
        predictions, result = worker.finish()
        systems[worker.name] = {
            **speed(times[worker.name], len(texts)),
            "times_ours": round(min(times[worker.name]) / min(times[OURS]), 2),
            **_judged(judge(predictions, dataset)),
            "version": result["version"],
            "settings": SYSTEMS[worker.name].settings,
        }
    for name, of in systems.items():
        print(f"{name}: {of['ms_per_document']:.4f} ms a document, P@1 {of['P@1']:.2f}", flush=True)
    return {
        "dataset": dataset.name,
        "documents": len(texts),
        "labels": dataset.labels.count,
        "tokens": features.count,
        "labels_timed": TIMED,
        "threads": threads,
        "rounds": rounds,
        "systems": systems,
    }


def in_turn(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run, one a round: what else the machine does meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(1, rounds + 1):
        for name, run in runs.items():
            times[name].append(run())
        print(f"round {number}:", ", ".join(f"{name} {of[-1]:.2f} s" for name, of in times.items()), flush=True)
    return times


def speed(times: list[float], documents: int) -> dict[str, Any]:
    """The best round, and all of them in milliseconds a document."""
    return {
        "ms_per_document": round(1000 * min(times) / documents, 4),
        "documents_per_second": round(documents / min(times)),
        "ms_per_document_by_round": [round(1000 * seconds / documents, 4) for seconds in times],
    }


def _seconds(call: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _seconds_from_texts(features: Features, scorer: FastScorer, texts: Sequence[str]) -> float:
    """The same from texts, whose words have not been met before."""
    named = (features.words, features.idf, features.settings, features.pairs, features.shapes, features.known)
    fresh = Features(features.tokenizer, *named)
    return _seconds(lambda: scorer.top(fresh.transform(texts), TIMED))


def _judged(figures: dict[str, float]) -> dict[str, float]:
    return {name: figures[name] for name in JUDGED}


def draw(figures: dict[str, Any], path: Path) -> None:
    """Documents a second, one bar a system, the fastest at the top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    systems = sorted(figures["systems"].items(), key=lambda item: item[1]["documents_per_second"])
    figure = Figure(figsize=(6.5, 0.6 + 0.42 * len(systems)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colours = ["#0072B2" if name in (OURS, FROM_TEXTS) else "#E69F00" for name, _ in systems]
    bars = axes.barh([name for name, _ in systems], [of["documents_per_second"] for _, of in systems], color=colours)
    notes = [f"{of['documents_per_second']:,}  (P@1 {of['P@1']:.1f})" for _, of in systems]
    axes.bar_label(bars, notes, padding=3, fontsize=8)
    axes.margins(x=0.3)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"documents a second, top {figures['labels_timed']}, {figures['threads']} threads")
    axes.set_title(f"{figures['dataset']}: {figures['documents']:,} documents at once", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
