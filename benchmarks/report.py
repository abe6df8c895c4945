"""What every benchmark notes beside its figures, and where it writes them."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "commit", "figures_before", "parser", "write_report"]

RESULTS = Path(__file__).parent / "results"


def write_report(name: str, seed: int, figures: dict[str, Any], *, save: bool) -> None:
    """Print the figures and, where asked to, write them to results/NAME.json."""
    report = {
        "benchmark": name,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "seed": seed,
        "figures": figures,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def figures_before(name: str) -> dict[str, Any]:
    """What was measured before and is kept in results/NAME.json."""
    file = RESULTS / f"{name}.json"
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["figures"] if file.exists() else {}
    return figures


def parser(description: str | None) -> argparse.ArgumentParser:
    """The beginning of every benchmark's command line."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--save", action="store_true", help="write the figures to benchmarks/results/ too")
    made.add_argument("--shared", action="store_true", help="the machine has other work beside: times are left out")
    return made


def commit() -> str:
    """The commit measured; a copy without its history is told by GIT_COMMIT."""
    if told := os.environ.get("GIT_COMMIT"):
        return told
    if found := _git("rev-parse", "--short", "HEAD"):
        return found + ("+changes" if _git("status", "--porcelain", "src") else "")
    return "not known"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=RESULTS.parent.parent, check=False)
    return done.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
