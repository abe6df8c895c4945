"""The figures of a report, made of its JSON alone; their captions hold the numbers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from decaf.experiments.systems import COST, FAN_OUT, MAIN, SYSTEMS
from decaf.experiments.tables import Run, best_loss, runs_of

__all__ = ["Drawing", "drawings"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_BLACK, _ORANGE, _SKY, _GREEN, _BLUE, _VERMILION, _PURPLE, _GREY = (
    *("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999"),
)
_COLOURS = {"contrastive": _VERMILION, "paper": _BLUE, "match": _GREY, "pecos": _GREEN, "napkinxc": _PURPLE}
_COSTS = {
    "training_seconds": "training, seconds",
    "ms_per_document": "prediction, ms a document",
    "model_mb": "model, MB",
}
_LEFT = " (where hardly a label is missed the term is near 0, and what is left is how far each was optimised)"
_MARKS = dict(zip(COST, (("D", _VERMILION), ("o", _GREEN), ("s", _PURPLE), ("^", _ORANGE), ("v", _BLACK)), strict=True))


class Drawing(NamedTuple):
    """A figure, and what is said below it."""

    name: str
    title: str
    caption: str
    figure: Figure

    def svg(self) -> str:
        """The figure for a page; the same report gives the same text."""
        with rc_context({"svg.hashsalt": self.name}), io.StringIO() as stream:
            self.figure.savefig(stream, format="svg", metadata={"Date": None})
            text = stream.getvalue()
        return text[text.index("<svg") :]

    def png(self) -> bytes:
        """The figure as a picture."""
        with io.BytesIO() as stream:
            self.figure.savefig(stream, format="png", dpi=110)
            return stream.getvalue()


def drawings(report: dict[str, Any]) -> list[Drawing]:
    """All figures that the report has runs for."""
    made = (_quantiles(report), _instances(report), _recall(report), _costs(report), _theorem(report))
    return [drawing for drawing in made if drawing is not None]


def _panels(count: int, width: float, height: float, *, same_scale: bool = False) -> tuple[Figure, list[Axes]]:
    """So many panels side by side."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, count, sharey=same_scale, squeeze=False)[0]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, list(panels)


def _quantiles(report: dict[str, Any]) -> Drawing | None:
    """What labels from rare to frequent contribute to P@5, one panel a group, one bar a system."""
    lines = {system: runs[0] for system in MAIN if (runs := runs_of(report, system))}
    if not lines:
        return None
    names = list(lines)[::-1]
    groups = next(iter(lines.values()))["quantiles"]
    figure, panels = _panels(len(groups), 12.5, 0.9 + 0.32 * len(names), same_scale=True)
    for place, (axes, group) in enumerate(zip(panels, groups, strict=True)):
        values = [lines[name]["quantiles"][place]["contribution"] for name in names]
        bars = axes.barh([SYSTEMS[name].title for name in names], values, color=[_colour(name) for name in names])
        axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=2, fontsize=8)
        axes.margins(x=0.25)
        count = f"{group['labels']:,} label{'' if group['labels'] == 1 else 's'}"
        axes.set_title(f"{count},\n{group['mean_frequency']:.1f} documents each", fontsize=9)
        axes.grid(visible=False)
        axes.tick_params(labelsize=8)
    figure.supxlabel("contribution to P@5, points; labels from rare (left) to frequent (right)", fontsize=9)
    rare = [(SYSTEMS[name].title, lines[name]["quantiles"][0]["contribution"]) for name in names]
    most = max(round(value, 2) for _, value in rare)
    best = [title for title, value in rare[::-1] if round(value, 2) == most]
    caption = (
        "The labels in five groups of equal volume (training documents times labels), from rare to frequent, and what "
        f"each group contributes to P@5 (seed 0). On the rarest {groups[0]['labels']:,} labels {' and '.join(best)} "
        f"{'has' if len(best) == 1 else 'have'} most, {most:.2f} points."
    )
    return Drawing("quantiles", "Where precision comes from", caption, figure)


def _colour(name: str) -> str:
    system = SYSTEMS[name]
    return _COLOURS.get(system.recipe or system.maker, _ORANGE)


def _instances(report: dict[str, Any]) -> Drawing | None:
    """Accuracy against the number of instances."""
    recipes = {"default recipe": ("decaf-3",), "the paper's recipe": ("paper-5", "paper-3")}
    found = {title: runs for title, names in recipes.items() if (runs := next(filter(None, _each(report, names)), []))}
    if not found:
        return None
    figure, panels = _panels(2, 8.5, 3.2)
    said = []
    for axes, name in zip(panels, ("P@1", "PSP@1"), strict=True):
        for (title, runs), (colour, mark) in zip(found.items(), ((_VERMILION, "D"), (_BLUE, "o")), strict=False):
            counts = sorted(map(int, runs[0]["instances"]))
            values = [_average([run["instances"][str(count)][name] for run in runs]) for count in counts]
            axes.plot(counts, values, color=colour, marker=mark, label=title)
            for count, value in zip(counts, values, strict=True):
                axes.annotate(
                    f"{value:.1f}", (count, value), (0, 6), textcoords="offset points", fontsize=8, ha="center"
                )
            shown = ", ".join(f"{value:.2f}" for value in values)
            said.append(f"{title} {name} {shown}")
        axes.set_xticks(range(1, 1 + max(int(count) for runs in found.values() for count in runs[0]["instances"])))
        axes.margins(y=0.2)
        axes.set_xlabel("instances", fontsize=9)
        axes.set_ylabel(f"{name}, percent", fontsize=9)
    panels[0].legend(frameon=False, fontsize=8)
    seeds = {title: ", ".join(str(run["job"]["seed"]) for run in runs) for title, runs in found.items()}
    of = "; ".join(f"{title} with seed {which}" for title, which in seeds.items())
    caption = f"The first instances of an ensemble alone ({of}): {'; '.join(said)}."
    return Drawing("instances", "Accuracy against ensemble size", caption, figure)


def _each(report: dict[str, Any], names: Sequence[str]) -> list[list[Run]]:
    return [[run for run in runs_of(report, name) if "instances" in run] for name in names]


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _recall(report: dict[str, Any]) -> Drawing | None:
    """Recall of the shortlist against beam and against its length, many clusters and few."""
    found = [runs[0] for name in FAN_OUT if (runs := runs_of(report, name)) and "reach" in runs[0]]
    if not found:
        return None
    figure, panels = _panels(2, 9.5, 3.4, same_scale=True)
    said = []
    for run, (colour, mark) in zip(found, ((_BLUE, "o"), (_ORANGE, "s")), strict=False):
        of, title = run["reach"], f"K = {run['clusters']:,}"
        labels = [beam * of["labels_in_a_cluster"] for beam in of["beams"]]
        for axes, across in zip(panels, (of["beams"], labels), strict=True):
            axes.plot(
                across, of["training"], color=colour, marker=mark, linestyle="--", label=f"{title}, training pairs"
            )
            axes.plot(across, of["test"], color=colour, marker=mark, label=f"{title}, test pairs")
        said.append(f"{title} {_at(of)} ({of['labels_in_a_cluster']:g} labels a cluster)")
    for axes, title in zip(panels, ("beam B, clusters looked into", "labels on the shortlist"), strict=True):
        axes.set_xscale("log")
        _plain(axes.xaxis)
        axes.set_xlabel(title, fontsize=9)
    panels[0].set_ylabel("true pairs shortlisted, percent", fontsize=9)
    _legend_below(figure, panels[0])
    caption = (
        "Share of the true pairs whose label is in the best B of K clusters, against B and against the labels in them: "
        f"at one B few clusters hold more labels. Of the test pairs: {'; '.join(said)}."
    )
    return Drawing("recall", "Recall against beam", caption, figure)


def _legend_below(figure: Figure, axes: Axes) -> None:
    """One legend for all panels."""
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=8)


def _plain(axis: Axis) -> None:
    """Ticks at 1, 2 and 5, written out."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1 else f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(labelsize=8)


def _at(of: dict[str, Any]) -> str:
    return ", ".join(f"{value:.1f} % at {beam}" for beam, value in zip(of["beams"], of["test"], strict=True))


def _costs(report: dict[str, Any]) -> Drawing | None:
    """Times and size against the number of labels."""
    own = report["dataset"]["drawn"]
    sizes = {run["job"]["labels"] for run in report["runs"] if run["job"]["kind"] == "judge"}
    lines = {
        system: sorted((run["labels"], run) for size in sizes for run in runs_of(report, system, labels=size)[:1])
        for system in COST
    }
    lines = {system: line for system, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    figure, panels = _panels(3, 11.5, 3.4)
    for axes, (name, title) in zip(panels, _COSTS.items(), strict=True):
        for system, line in lines.items():
            mark, colour = _MARKS[system]
            points = [(labels, run[name]) for labels, run in line if name in run]
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, label=SYSTEMS[system].title)
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted({labels for line in lines.values() for labels, _ in line})
        axes.set_xticks(ticks, [f"{labels:,}" for labels in ticks], fontsize=8)
        axes.xaxis.minorticks_off()
        _plain(axes.yaxis)
        axes.set_xlabel("labels", fontsize=9)
        axes.set_ylabel(title, fontsize=9)
    _legend_below(figure, panels[0])
    said = [f"{SYSTEMS[system].title} {_growth(line)}" for system, line in lines.items()]
    devices = {SYSTEMS[system].title: line[-1][1]["device"] for system, line in lines.items()}
    same = len(set(devices.values())) == 1
    where = (
        f"all on {next(iter(devices.values()))}"
        if same
        else "; ".join(f"{name} on {of}" for name, of in devices.items())
    )
    caption = (
        f"Labels drawn at random, with the documents that have one of them; both axes grow by factors; {where}. "
        "Training seconds "
        f"from the fewest labels to {'all' if not own else f'{own:,}'}: {'; '.join(said)}."
    )
    return Drawing("cost", "Cost against the number of labels", caption, figure)


def _growth(line: Sequence[tuple[int, Run]]) -> str:
    return ", ".join(f"{run['training_seconds']:g}" for _, run in line)


def _theorem(report: dict[str, Any]) -> Drawing | None:
    """The measured gap beside the bound."""
    runs = [run for run in report["runs"] if run["job"]["kind"] == "theorem"]
    if not runs:
        return None
    of = runs[0]["theorem"]
    best, lines = best_loss(of), of["beams"]
    recall = [100 * line["recall"] for line in lines]
    figure, (axes,) = _panels(1, 5.5, 3.4)
    series: list[tuple[str, str, str, Callable[[dict[str, float]], float]]] = [
        ("bound", _BLACK, "s", lambda line: line["bound"]),
        ("learned on shortlists", _VERMILION, "D", lambda line: line["shortlist"] - best),
        ("the same, by own scores", _SKY, "o", lambda line: line["own_scores"] - best),
    ]
    for title, colour, mark, value in series:
        axes.plot(recall, [value(line) for line in lines], color=colour, marker=mark, label=title)
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlabel("recall of the shortlists, percent", fontsize=9)
    axes.set_ylabel("loss above the best, nats a document", fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    shares = [(line["shortlist"] - best) / line["bound"] for line in lines if line["bound"]]
    most = f"On shortlists it is at most {max(shares):.2f} times that term where it is not 0{_LEFT}; " if shares else ""
    caption = (
        "Loss above the lowest of all, beside the theorem's term with the constant 1 (logarithmic above 1). "
        f"{most}what own scores say of labels outside is another matter."
    )
    return Drawing("theorem", "The theorem, checked", caption, figure)
