"""What every benchmark notes beside its figures, and where it writes them."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decaf.experiments.provenance import commit, machine

__all__ = ["RESULTS", "commit", "figures_before", "parser", "write_report"]

RESULTS = Path(__file__).parent / "results"


def write_report(name: str, seed: int, figures: dict[str, Any], *, save: bool) -> None:
    """Print the figures and, where asked to, write them to results/NAME.json."""
    report = {
        "benchmark": name,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
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
