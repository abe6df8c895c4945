"""Train one peer and predict with it; run in the peers' own environment, where decaf is not.

    python peers_worker.py SYSTEM FOLDER

FOLDER holds task.json (top, timed, threads, seed, parent) and the matrices train, truth, labels and test as .npz. Each
line that comes in asks for a prediction and is answered with its seconds; at the end scores.npz and result.json are
written beside the matrices. Reading matrices is not timed, unless the peer only trains on files.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np
from scipy import sparse

__all__ = ["SYSTEMS", "Peer", "System", "Task", "end_with"]

MATRICES = ("train", "truth", "labels", "test")
Rows = Sequence[Sequence[tuple[int, float]]]  # for each document, its labels and their scores


@dataclass(frozen=True)
class Task:
    """What a peer is given."""

    folder: Path  # a place for its files
    train: sparse.csr_matrix  # [documents, tokens]
    truth: sparse.csr_matrix  # [documents, labels]
    labels: sparse.csr_matrix  # [labels, tokens]
    test: sparse.csr_matrix  # [documents, tokens]
    top: int  # labels predicted for the figures
    timed: int  # labels predicted for the time
    threads: int
    seed: int
    parent: int  # the process that wants it done

    @classmethod
    def load(cls, folder: Path) -> Task:
        """Read what decaf.experiments.peers wrote."""
        train, truth, labels, test = (_read_matrix(folder / f"{name}.npz") for name in MATRICES)
        return cls(folder, train, truth, labels, test, **json.loads((folder / "task.json").read_text(encoding="utf-8")))


class Peer(Protocol):
    """A rival system, from training to predictions."""

    def __init__(self, task: Task, settings: dict[str, Any]) -> None: ...

    def train(self) -> None:
        """Learn; timed."""

    def load(self) -> None:
        """Make ready to predict; not timed."""

    def predict(self, top: int) -> Any:  # noqa: ANN401 - a matrix or rows, as the peer returns them
        """The top labels of all test documents; timed."""


class Pecos:
    """XR-Linear over a tree of labels; settings: which label vectors the tree is made of."""

    def __init__(self, task: Task, settings: dict[str, Any]) -> None:
        self.task, self.settings = task, settings
        self.truth = task.truth.tocsc()

    def train(self) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory  # type: ignore[import-not-found]
        from pecos.xmc.xlinear.model import XLinearModel  # type: ignore[import-not-found]

        task, method = self.task, self.settings["label_vectors"]
        text = {} if method == "pifa" else {"Z": task.labels}
        vectors = LabelEmbeddingFactory.create(self.truth, task.train, method=method, threads=task.threads, **text)
        tree = Indexer.gen(vectors, threads=task.threads, seed=task.seed)
        self.model = XLinearModel.train(task.train, self.truth, C=tree, threads=task.threads)

    def load(self) -> None:
        self.model.save(str(self.task.folder / "model"))
        self.model = type(self.model).load(str(self.task.folder / "model"), is_predict_only=True)

    def predict(self, top: int) -> sparse.csr_matrix:
        found: sparse.csr_matrix = self.model.predict(self.task.test, only_topk=top, threads=self.task.threads)
        return found


class NapkinXC:
    """One of its classifiers; settings: which, and what it takes."""

    def __init__(self, task: Task, settings: dict[str, Any]) -> None:
        from napkinxc import models  # type: ignore[import-not-found]

        self.task = task
        others = dict(settings)
        kind = getattr(models, others.pop("kind"))
        self.model = kind(str(task.folder / "model"), threads=task.threads, seed=task.seed, **others)

    def train(self) -> None:
        self.model.fit(self.task.train, self.task.truth)

    def load(self) -> None:
        self.model.load()

    def predict(self, top: int) -> Rows:
        rows: Rows = self.model.predict_proba(self.task.test, top_k=top)
        return rows


class Omikuji:
    """A forest of label trees; settings as its hyper-parameters are called."""

    def __init__(self, task: Task, settings: dict[str, Any]) -> None:
        self.task, self.settings = task, settings
        self.file = task.folder / "train.txt"
        with self.file.open("w", encoding="utf-8") as stream:
            print(*task.train.shape, task.truth.shape[1], file=stream)
            for labels, tokens in zip(_rows(task.truth), _rows(task.train), strict=True):
                names = ",".join(str(label) for label, _ in labels)
                print(names, *(f"{token}:{weight:.7g}" for token, weight in tokens), file=stream)

    def train(self) -> None:
        from omikuji import Model  # type: ignore[import-not-found]

        settings = Model.default_hyper_param()
        for name, value in self.settings.items():
            setattr(settings, name, value)
        self.model = Model.train_on_data(str(self.file), settings, n_threads=self.task.threads)

    def load(self) -> None:
        self.model.save(str(self.task.folder / "model"))
        self.model.init_prediction_thread_pool(self.task.threads)
        self.documents = _rows(self.task.test)

    def predict(self, top: int) -> Rows:
        return [self.model.predict(document, top_k=top) for document in self.documents]


class System(NamedTuple):
    """A peer with settings."""

    package: str
    peer: type[Peer]
    settings: dict[str, Any]  # what is not named keeps the peer's default


SYSTEMS = {
    "pecos-pifa": System("libpecos", Pecos, {"label_vectors": "pifa"}),
    "pecos-pifa-lf-concat": System("libpecos", Pecos, {"label_vectors": "pifa_lf_concat"}),
    "napkinxc-plt": System("napkinxc", NapkinXC, {"kind": "PLT"}),
    "napkinxc-br": System("napkinxc", NapkinXC, {"kind": "BR"}),
    "omikuji-parabel": System("omikuji", Omikuji, {"n_trees": 3}),
    "omikuji-bonsai": System(
        "omikuji", Omikuji, {"n_trees": 3, "cluster_balanced": False, "cluster_k": 100, "max_depth": 3}
    ),
}


def end_with(parent: int, every: float = 1.0) -> None:
    """End this process soon after the one that started it, which may be killed before it can end this one."""
    if os.name != "posix":  # there a process keeps the number of a parent that is gone
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    answers = _answers()
    system = SYSTEMS[sys.argv[1]]
    task = Task.load(Path(sys.argv[2]))
    end_with(task.parent)
    peer = system.peer(task, system.settings)
    started = time.perf_counter()
    peer.train()
    trained = time.perf_counter()
    peer.load()
    for _ in sys.stdin:
        print(_seconds(peer, task.timed), file=answers, flush=True)
    predicted = peer.predict(task.top)
    scores = _matrix(predicted, task.truth.shape[1]) if isinstance(predicted, list) else predicted
    sparse.save_npz(task.folder / "scores.npz", scores)
    result = {"version": version(system.package), "training_seconds": trained - started, "bytes": _kept(task.folder)}
    (task.folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _answers() -> TextIO:
    """What goes out is ours alone: what peers print is sent where errors go."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


def _seconds(peer: Peer, top: int) -> float:
    """The time of one prediction."""
    gc.collect()
    started = time.perf_counter()
    peer.predict(top)
    return time.perf_counter() - started


def _kept(folder: Path) -> int:
    """Bytes of the model on disk."""
    return sum(file.stat().st_size for file in (folder / "model").rglob("*") if file.is_file())


def _read_matrix(file: Path) -> sparse.csr_matrix:
    return sparse.csr_matrix(sparse.load_npz(file))


def _rows(matrix: sparse.csr_matrix) -> list[list[tuple[int, float]]]:
    """The stored entries of each row."""
    indices, data, bounds = matrix.indices.tolist(), matrix.data.tolist(), matrix.indptr.tolist()
    return [list(zip(indices[start:end], data[start:end], strict=True)) for start, end in pairwise(bounds)]


def _matrix(rows: Rows, columns: int) -> sparse.csr_matrix:
    """Labels and scores as a matrix -> [documents, labels]."""
    bounds = np.cumsum([0, *(len(row) for row in rows)])
    labels = np.array([label for row in rows for label, _ in row], dtype=np.int64)
    scores = np.array([score for row in rows for _, score in row], dtype=np.float32)
    return sparse.csr_matrix((scores, labels, bounds), shape=(len(rows), columns))


if __name__ == "__main__":
    main()
