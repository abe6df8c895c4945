"""PECOS, napkinXC and omikuji on datasets, with our features and our ruler: accuracy and times.

    python -m benchmarks.peers DATASET... [--peers pecos,napkinxc,omikuji] [--environment FOLDER] [--save]

The peers get a virtual environment of their own (libpecos needs an older numpy than we do), made by pip where it is
not there yet, two threads, and the features of the default recipe. Writes one file a dataset; systems measured
before stay in it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from benchmarks import peers_worker
from benchmarks.report import RESULTS, parser, write_report
from decaf import Dataset, Features, evaluate, with_features
from decaf.config import FeatureSettings
from decaf.features import texts_of
from decaf.predictions import Predictions, drop_pairs, load_scores

SEED = 0
THREADS = 2
TIMED = 5  # labels predicted for the time: how many of them costs some peers much
TOP = 50  # labels predicted, so that 20 are left of nearly all documents when the filter has taken its own
BASE = ["numpy<2", "scipy<1.14", "scikit-learn"]
# What pip installs for each; of the packages that libpecos names, its linear models need those of BASE alone.
PACKAGES = {
    "pecos": ["--no-deps", "libpecos==1.2.8"],
    "napkinxc": ["napkinxc==0.7.2"],
    "omikuji": ["omikuji==0.5.2"],
}
MODULES = {"pecos": "pecos.xmc.xlinear.model", "napkinxc": "napkinxc.models", "omikuji": "omikuji"}


@dataclass(frozen=True)
class FeatureTimes:
    """Seconds of the features that all peers share."""

    training: float  # learned, and made for training documents and labels
    test: float  # made for test documents


def main() -> None:
    options = parser(__doc__)
    options.add_argument("datasets", nargs="+", metavar="DATASET")
    options.add_argument("--peers", default=",".join(PACKAGES), help="peers, separated by commas")
    options.add_argument("--environment", type=Path, default=Path(".scratch/peers"), help="folder of their packages")
    arguments = options.parse_args()
    peers = arguments.peers.split(",")
    if unknown := set(peers) - set(PACKAGES):
        options.error(f"there is no peer {unknown.pop()!r}; there are: {', '.join(PACKAGES)}")
    python, failed = install(arguments.environment, peers)
    for path in arguments.datasets:
        title = f"peers-{Path(path).name}"
        file = RESULTS / f"{title}.json"
        before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["figures"] if file.exists() else {}
        figures = compare(Dataset.load(path), python, [peer for peer in peers if peer not in failed])
        figures["systems"] = before.get("systems", {}) | figures["systems"]
        figures["not_installed"] = failed
        write_report(title, SEED, figures, save=arguments.save)


def install(environment: Path, peers: list[str]) -> tuple[Path, dict[str, str]]:
    """The interpreter of the peers' environment, and why peers could not be installed there."""
    python = environment.absolute() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    failed = {}
    for peer in peers:
        if not _run(python, "-c", f"import {MODULES[peer]}"):
            continue
        print(f"installing {peer}", flush=True)
        error = (
            _run(python, "-m", "pip", "install", *BASE)
            or _run(python, "-m", "pip", "install", *BASE, *PACKAGES[peer])
            or _run(python, "-c", f"import {MODULES[peer]}")
        )
        if error:
            failed[peer] = error
    return python, failed


def _run(*command: str | Path) -> str:
    """Nothing if the command succeeds, else the last line of its error, without addresses and paths."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
    return re.sub(r"\w+://\S+|(?<!\w)\.{0,2}/\S+", "...", lines[-1]).strip()


def compare(dataset: Dataset, python: Path, peers: list[str]) -> dict[str, Any]:
    """All systems of these peers, one after the other."""
    ready, times = featured(dataset)
    features = {
        "tokens": ready.labels.need_features().shape[1],
        "training_seconds": round(times.training, 2),
        "ms_per_document": round(1000 * times.test / ready.test.documents.count, 4),
    }
    systems = {}
    for name, system in peers_worker.SYSTEMS.items():
        if name.partition("-")[0] in peers:
            systems[name] = {**measure(ready, name, python, times), "settings": system.settings}
            print(name, systems[name], flush=True)
    return {
        "dataset": dataset.name,
        "threads": THREADS,
        "labels_timed": TIMED,
        "features": features,
        "systems": systems,
    }


def featured(dataset: Dataset) -> tuple[Dataset, FeatureTimes]:
    """The dataset with the features of the default recipe: word pieces and pairs of words."""
    settings = FeatureSettings(pairs=True)
    started = time.perf_counter()
    learned = Features.learn(texts_of(dataset.train.documents, settings), texts_of(dataset.labels, settings), settings)
    for items in (dataset.train.documents, dataset.labels):
        learned.transform(texts_of(items, settings))
    trained = time.perf_counter()
    learned.transform(texts_of(dataset.test.documents, settings))
    done = time.perf_counter()
    return with_features(dataset, settings, learned), FeatureTimes(trained - started, done - trained)


def measure(dataset: Dataset, name: str, python: Path, times: FeatureTimes) -> dict[str, Any]:
    """One system, in a process of its own: what it reached and how long it took."""
    with launched(dataset, name, python, THREADS) as worker:
        seconds = worker.predict()
        figures, result = worker.finish()
    documents = dataset.test.documents.count
    return figures | {
        "training_seconds": round(times.training + result["training_seconds"], 1),
        "training_seconds_without_features": round(result["training_seconds"], 1),
        "ms_per_document": round(1000 * (times.test + seconds) / documents, 4),
        "ms_per_document_without_features": round(1000 * seconds / documents, 4),
        "version": result["version"],
    }


@dataclass(frozen=True)
class Worker:
    """One system in a process of its own."""

    name: str
    dataset: Dataset
    folder: Path
    process: subprocess.Popen[str]

    def predict(self) -> float:
        """Seconds of one prediction for all test documents; the first call waits for the training."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), b"\n")
        answer = self.process.stdout.readline()
        return float(answer) if answer else self._fail()

    def finish(self) -> tuple[dict[str, float], dict[str, Any]]:
        """What the system reaches, and what its process says at the end."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        self.process.stdin.close()
        if self.process.wait():
            self._fail()
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        test = self.dataset.test
        scores = drop_pairs(load_scores(self.folder / "scores.npz", *test.truth.shape), test.filters)
        return judge(Predictions.from_csr(scores, TOP), self.dataset), result

    def _fail(self) -> NoReturn:
        log = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        sys.exit(f"{self.name} failed with status {self.process.wait()}\n{log[-2000:]}")


@contextmanager
def launched(dataset: Dataset, name: str, python: Path, threads: int) -> Iterator[Worker]:
    """A system that begins to train; its process is gone at the end."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export(dataset, folder, threads)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        command = [str(python), peers_worker.__file__, name, str(folder)]
        pipe = subprocess.PIPE
        with (
            (folder / "log.txt").open("w", encoding="utf-8") as log,
            subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True) as process,
        ):
            try:
                yield Worker(name, dataset, folder, process)
            finally:
                process.kill()


def judge(predictions: Predictions, dataset: Dataset) -> dict[str, float]:
    """All figures on the test documents, the filter applied."""
    figures = evaluate(predictions, dataset.test.truth, dataset.inverse_propensity, dataset.test.filters)
    return {name: round(value, 2) for name, value in figures.items()}


def export(dataset: Dataset, folder: Path, threads: int) -> None:
    """What the worker reads."""
    matrices = {
        "train": dataset.train.documents.need_features(),
        "truth": dataset.train.truth,
        "labels": dataset.labels.need_features(),
        "test": dataset.test.documents.need_features(),
    }
    for name, matrix in matrices.items():
        sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(matrix.astype(np.float32)), compressed=False)
    task = {"top": TOP, "timed": TIMED, "threads": threads, "seed": SEED}
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")


if __name__ == "__main__":
    main()
