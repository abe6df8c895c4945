"""One run in a process of its own: python -m decaf.experiments.work TASK.json

The task names a job, the dataset, the device, and the folder of the run, where result.json and, of runs whose labels
are looked at later, predictions.npz are written.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from decaf.config import SplitSettings
from decaf.datasets import Dataset
from decaf.errors import DecafError
from decaf.experiments.judging import device_title, drawn, figures_of, of_decaf, of_match
from decaf.experiments.metadata import best_weight, combined
from decaf.experiments.peers import TOP, featured, of_peer
from decaf.experiments.peers_worker import end_with
from decaf.experiments.plan import Job
from decaf.experiments.provenance import commit, fingerprint, machine, source_digest, versions
from decaf.experiments.systems import SYSTEMS
from decaf.experiments.theorem import check_theorem
from decaf.predictions import Predictions, load_scores, save_scores

__all__ = ["Task", "main", "work"]

_VALIDATION = SplitSettings(validation=0.15)  # of the training documents, to choose the weight of label text by


@dataclass(frozen=True)
class Task:
    """What a process is to do."""

    job: Job
    dataset: str
    folder: str  # of the run
    device: str
    threads: int
    beside: int  # runs at a time
    parent: int  # the process that wants it done
    content: str  # the fingerprint of the dataset
    source: str  # the digest of the source
    python: str = ""  # the peers' interpreter
    scores: str = ""  # the folder of the run whose predictions are combined with label text

    @classmethod
    def read(cls, path: Path) -> Task:
        """The task in a file."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "job": Job(**content["job"])})


def main() -> None:
    """Do what the task says; errors go where they go."""
    task = Task.read(Path(sys.argv[1]))
    end_with(task.parent)
    work(task)


def work(task: Task) -> None:
    """Do it, and write what came out; the result is written last."""
    torch.set_num_threads(task.threads)
    whole = Dataset.load(task.dataset)
    if (fingerprint(whole), source_digest()) != (task.content, task.source):
        raise DecafError("the dataset or the source has changed since this was planned; run the same command again")
    dataset = drawn(whole, task.job.labels)
    found, facts = _KINDS[task.job.kind](task, dataset)
    folder = Path(task.folder)
    if found is not None and task.job.seed == 0:
        save_scores(found.to_csr(dataset.labels.count), folder / "predictions.npz")
    ours = SYSTEMS[task.job.system].maker == "decaf"
    result = {
        "job": asdict(task.job),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "device": device_title(task.device if ours else "cpu", task.threads),
        "threads": task.threads,
        "beside": task.beside,
        "labels": dataset.labels.count,
        "documents": dataset.train.documents.count,
        **facts,
    }
    aside = folder / ".result.json.part"
    aside.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    aside.replace(folder / "result.json")


_Done = tuple[Predictions | None, dict[str, Any]]


def _judge(task: Task, dataset: Dataset) -> _Done:
    """Train a system, predict the test documents, judge."""
    system, seed = SYSTEMS[task.job.system], task.job.seed
    if system.maker == "decaf":
        found, facts = of_decaf(dataset, system, seed=seed, device=task.device, threads=task.threads)
    elif system.maker == "match":
        found, facts = of_match(dataset)
    else:
        ready, times = featured(dataset)
        found, facts = of_peer(ready, times, system.name, Path(task.python), threads=task.threads, seed=seed)
    return found, facts | figures_of(found, dataset)


def _metadata(task: Task, dataset: Dataset) -> _Done:
    """Choose the weight on validation documents, then combine what the peer said of the test documents."""
    name, python = task.job.system, Path(task.python)
    held, times = featured(dataset.validation(_VALIDATION))
    found, _ = of_peer(held, times, name, python, threads=task.threads, seed=task.job.seed)
    weight, precision = best_weight(found, held)
    ready, _ = featured(dataset)
    scores = load_scores(Path(task.scores) / "predictions.npz", *dataset.test.truth.shape)
    (both,) = combined(Predictions.from_csr(scores, TOP), ready, [weight])
    facts = {"weight": weight, "precision_by_weight": {str(one): round(of, 3) for one, of in precision.items()}}
    return None, facts | figures_of(both, dataset)


def _theorem(task: Task, dataset: Dataset) -> _Done:
    return None, {"theorem": check_theorem(dataset, seed=task.job.seed, device=task.device)}


_KINDS = {"judge": _judge, "metadata": _metadata, "theorem": _theorem}

if __name__ == "__main__":
    main()
