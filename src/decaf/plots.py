"""Pictures of a run: how the loss of each module fell."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["plot_run"]


def plot_run(folder: Path) -> None:
    """Draw training.png from metrics.jsonl: loss by epoch for each module, shortlist recall in the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    losses: dict[str, dict[int, float]] = {}
    notes: dict[str, str] = {}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        facts = json.loads(line)
        if "epoch" in facts:
            losses.setdefault(facts["module"], {})[facts["epoch"]] = facts["loss"]
        elif "recall" in facts:
            notes[facts["module"]] = f" (recall {facts['recall']:.1f} % at beam {facts['beam']})"
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for module, by_epoch in losses.items():
        epochs = sorted(by_epoch)
        axes.plot(epochs, [by_epoch[epoch] for epoch in epochs], marker=".", label=module + notes.get(module, ""))
    positive = any(loss > 0 for by_epoch in losses.values() for loss in by_epoch.values())
    axes.set(xlabel="epoch", ylabel="mean loss", yscale="log" if positive else "linear", title="Training")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if losses:
        axes.legend(fontsize="small")
    aside = folder / ".training.png.part"
    figure.savefig(aside, dpi=120, format="png")
    aside.replace(folder / "training.png")
