"""Where a figure comes from: the commit, the source that decides it, and the machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from decaf.datasets import Dataset, Items

__all__ = ["commit", "fingerprint", "machine", "peers_digest", "source_digest", "versions"]

_PACKAGE = Path(__file__).parent.parent
# What shows, serves or plans, and so decides no figure.
_OUTER = (
    "batch.py",
    "bulk.py",
    "cli/",
    "cluster.py",
    "console.py",
    "demo.py",
    "documents.py",
    "estimator.py",
    "experiments/cli.py",
    "experiments/examples.py",
    "experiments/figures.py",
    "experiments/plan.py",
    "experiments/provenance.py",
    "experiments/report.py",
    "experiments/runs.py",
    "experiments/tables.py",
    "labels.py",
    "plots.py",
    "progress.py",
    "serving/",
    "stores/",
)
# What makes our models, and so decides no figure of a peer; the features that peers get are settings of their runs.
_OURS = (
    "clusters.py",
    "compiled.py",
    "config.py",
    "devices.py",
    "evaluation.py",
    "experiments/theorem.py",
    "header.py",
    "live.py",
    "model.py",
    "modules/",
    "networks/",
    "packed.py",
    "predictor.py",
    "ranks.py",
    "scoring/",
    "training.py",
)


def commit() -> str:
    """The commit of this source; a copy without its history is told by GIT_COMMIT."""
    if told := os.environ.get("GIT_COMMIT"):
        return told
    if found := _git("rev-parse", "--short", "HEAD"):
        return found + ("+changes" if _git("status", "--porcelain", ".") else "")
    return "not known"


def machine() -> dict[str, Any]:
    """The machine of this process."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """What decides figures and is not ours."""
    return {name: version(name) for name in ("numba", "numpy", "scipy", "tokenizers", "torch")}


@cache
def source_digest() -> str:
    """A name for the source that decides figures: with another, a run kept from before is no longer good."""
    return _digest(_OUTER)


@cache
def peers_digest() -> str:
    """The same for figures of peers, which may take hours and know nothing of our models."""
    return _digest(_OUTER + _OURS)


def _digest(left_out: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        name = file.relative_to(_PACKAGE).as_posix()
        if not name.startswith(left_out):
            digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git(*arguments: str) -> str:
    """What git says in the folder of the package; nothing where there is no git, or another project's."""
    if not (_PACKAGE.parent.parent / ".git").exists():
        return ""
    command = ["git", *arguments]  # the user's own git
    done = subprocess.run(command, capture_output=True, text=True, cwd=_PACKAGE, check=False)  # noqa: S603 - git
    return done.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def fingerprint(dataset: Dataset) -> str:
    """A name for what a dataset holds."""
    digest = hashlib.sha256(json.dumps(asdict(dataset.propensity)).encode())
    for part in (dataset.train, dataset.test):
        _add_items(digest, part.documents)
        for array in (part.truth.indptr, part.truth.indices, part.filters):
            digest.update(np.ascontiguousarray(array).astype(np.int64).data)
    _add_items(digest, dataset.labels)
    return digest.hexdigest()[:16]


def _add_items(digest: Any, items: Items) -> None:  # noqa: ANN401 - hashlib's objects have no public type
    for row in range(items.count if items.texts is not None else 0):
        digest.update(items.text(row).encode() + b"\0")
    if items.contents is not None:
        for content in items.contents:
            digest.update(content.encode() + b"\0")
    if items.features is not None:
        for array in (items.features.indptr, items.features.indices, items.features.data):
            digest.update(np.ascontiguousarray(array).data)
