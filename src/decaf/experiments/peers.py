"""PECOS, napkinXC and omikuji: their environment, and one of them trained in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from decaf.config import recipe
from decaf.datasets import Dataset
from decaf.errors import DecafError
from decaf.experiments import peers_worker
from decaf.features import Features, texts_of, with_features
from decaf.predictions import Predictions, drop_pairs, load_scores

__all__ = ["PACKAGES", "TIMED", "TOP", "FeatureTimes", "Worker", "featured", "install", "launched", "of_peer"]

TOP = 50  # labels predicted, so that 20 are left of nearly all documents when the filter has taken its own
TIMED = 5  # labels predicted for the time: how many of them costs some peers much
# What pip installs first: libpecos needs an older numpy than we do.
_BASE = ["numpy<2", "scipy<1.14", "scikit-learn"]
# What pip installs for each; of the packages that libpecos names, its linear models need those of _BASE alone.
PACKAGES = {
    "pecos": ["--no-deps", "libpecos==1.2.8"],
    "napkinxc": ["napkinxc==0.7.2"],
    "omikuji": ["omikuji==0.5.2"],
}
_PIP = ("-m", "pip", "install", "--disable-pip-version-check")
_MODULES = {"pecos": "pecos.xmc.xlinear.model", "napkinxc": "napkinxc.models", "omikuji": "omikuji"}


@dataclass(frozen=True)
class FeatureTimes:
    """Seconds of the features that all peers share."""

    training: float  # learned, and made for training documents and labels
    test: float  # made for test documents


def install(environment: Path, peers: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The interpreter of the peers' environment, made where it is not there yet, and why peers are missing in it."""
    python = environment.absolute() / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists() and (error := _run(sys.executable, "-m", "venv", environment)):
        return python, dict.fromkeys(peers, error)
    failed = {}
    for peer in peers:
        if not _run(python, "-c", f"import {_MODULES[peer]}"):
            continue
        error = (
            _run(python, *_PIP, *_BASE)
            or _run(python, *_PIP, *_BASE, *PACKAGES[peer])
            or _run(python, "-c", f"import {_MODULES[peer]}")
        )
        if error:
            failed[peer] = error
    return python, failed


def _run(*command: str | Path) -> str:
    """Nothing if the command succeeds, else the last line of its error, without addresses and paths."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
    return re.sub(r"\w+://\S+|(?<!\w)\.{0,2}/\S+", "...", lines[-1]).strip()


def featured(dataset: Dataset) -> tuple[Dataset, FeatureTimes]:
    """The dataset with the features of the default recipe, unless it has its own."""
    settings = recipe().features
    ready = with_features(dataset, settings) if not dataset.has_texts else dataset
    if ready.train.documents.features is not None and ready.labels.features is not None:
        return with_features(ready, settings), FeatureTimes(0.0, 0.0)
    started = time.perf_counter()
    learned = Features.learn(texts_of(dataset.train.documents, settings), texts_of(dataset.labels, settings), settings)
    for items in (dataset.train.documents, dataset.labels):
        learned.transform(texts_of(items, settings))
    trained = time.perf_counter()
    learned.transform(texts_of(dataset.test.documents, settings))
    done = time.perf_counter()
    return with_features(dataset, settings, learned), FeatureTimes(trained - started, done - trained)


def of_peer(
    dataset: Dataset, times: FeatureTimes, name: str, python: Path, *, threads: int, seed: int
) -> tuple[Predictions, dict[str, Any]]:
    """What a peer predicts for the test documents, the filter applied; its times with those of the features."""
    with launched(dataset, name, python, threads=threads, seed=seed) as worker:
        worker.predict()  # to warm up, as ours are
        seconds = worker.predict()
        predictions, result = worker.finish()
    documents = max(1, dataset.test.documents.count)
    return predictions, {
        "training_seconds": round(times.training + result["training_seconds"], 2),
        "ms_per_document": round(1000 * (times.test + seconds) / documents, 4),
        "model_mb": round(result["bytes"] / 1e6, 2),
        "tokens": dataset.labels.need_features().shape[1],
        "settings": peers_worker.SYSTEMS[name].settings,
        "version": result["version"],
    }


@dataclass(frozen=True)
class Worker:
    """One peer in a process of its own."""

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

    def finish(self) -> tuple[Predictions, dict[str, Any]]:
        """What it predicts, the filter applied, and what its process says at the end."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        self.process.stdin.close()
        if self.process.wait():
            self._fail()
        result: dict[str, Any] = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
        test = self.dataset.test
        scores = drop_pairs(load_scores(self.folder / "scores.npz", *test.truth.shape), test.filters)
        return Predictions.from_csr(scores, TOP), result

    def _fail(self) -> NoReturn:
        status = self.process.wait()
        log = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        raise DecafError(f"{self.name} failed with status {status}\n{log[-2000:]}".rstrip())


@contextmanager
def launched(dataset: Dataset, name: str, python: Path, *, threads: int, seed: int) -> Iterator[Worker]:
    """A peer that begins to train on the features of a dataset; its process is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="decaf-") as place:
        folder = Path(place)
        _export(dataset, folder, threads, seed)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        command = [str(python), peers_worker.__file__, name, str(folder)]
        pipe = subprocess.PIPE
        with (
            (folder / "log.txt").open("w", encoding="utf-8") as log,
            subprocess.Popen(  # noqa: S603 - our own words
                command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True
            ) as process,
        ):
            try:
                yield Worker(name, dataset, folder, process)
            finally:
                process.kill()


def _export(dataset: Dataset, folder: Path, threads: int, seed: int) -> None:
    """What the worker reads."""
    matrices = {
        "train": dataset.train.documents.need_features(),
        "truth": dataset.train.truth,
        "labels": dataset.labels.need_features(),
        "test": dataset.test.documents.need_features(),
    }
    for name, matrix in matrices.items():
        sparse.save_npz(folder / f"{name}.npz", sparse.csr_matrix(matrix.astype(np.float32)), compressed=False)
    task = {"top": TOP, "timed": TIMED, "threads": threads, "seed": seed, "parent": os.getpid()}
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
