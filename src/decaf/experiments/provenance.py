"""Where a figure comes from: the commit, the source that decides it, and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["commit", "machine", "source_digest"]

_PACKAGE = Path(__file__).parent.parent
# What shows, serves or plans, and so decides no figure.
_OUTER = (
    "batch.py",
    "bulk.py",
    "cli.py",
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
    "plots.py",
    "progress.py",
    "serving/",
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


@cache
def source_digest() -> str:
    """A name for the source that decides figures: with another, a run kept from before is no longer good."""
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        name = file.relative_to(_PACKAGE).as_posix()
        if not name.startswith(_OUTER):
            digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git(*arguments: str) -> str:
    """What git says in the folder of the package; nothing where there is no git, or another project's."""
    if not (_PACKAGE.parent.parent / ".git").exists():
        return ""
    command = ["git", *arguments]  # the user's own git
    done = subprocess.run(command, capture_output=True, text=True, cwd=_PACKAGE, check=False)  # noqa: S603
    return done.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
