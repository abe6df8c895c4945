"""Draw accuracy against training time, DECAF beside its peers on docs-seealso, from the JSON in results/.

python -m benchmarks.picture [--results FOLDER] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter
from matplotlib.transforms import Bbox

from benchmarks.report import RESULTS

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "accuracy.png"
DATASET = "docs-seealso"
PANELS = {"P@1": "P@1: the first label is right", "PSP@1": "PSP@1: the same, rare labels weigh more"}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00"
PEERS = {
    "pecos-pifa": ("PECOS", BLUE),
    "pecos-pifa-lf-concat": ("PECOS, label text", SKY),
    "napkinxc-plt": ("napkinXC", GREEN),
    "omikuji-parabel": ("omikuji Parabel", ORANGE),
    "omikuji-bonsai": ("omikuji Bonsai", BLACK),
}
# Where a name may stand beside its point, best first: points to the right and up, and how it is aligned.
PLACES = [
    (9, 0, "left", "center"),
    (-9, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (7, 7, "left", "bottom"),
    (7, -7, "left", "top"),
    (-7, 7, "right", "bottom"),
    (-7, -7, "right", "top"),
    (34, 9, "right", "bottom"),
    (34, -9, "right", "top"),
    (-34, 9, "left", "bottom"),
    (-34, -9, "left", "top"),
    (0, 24, "center", "bottom"),
    (0, -24, "center", "top"),
]


class Point(NamedTuple):
    """A system in the picture."""

    name: str
    colour: str
    marker: str
    device: str
    hollow: bool  # trained on a GPU
    figures: dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON is")
    options.add_argument("--output", type=Path, default=PICTURE, metavar="FILE", help="the picture")
    arguments = options.parse_args()
    points = [*peers(arguments.results), *recipes(arguments.results, "cpu"), *recipes(arguments.results, "cuda")]
    if not points:
        options.exit(1, "there is nothing to draw; run benchmarks.peers and benchmarks.recipes with --save first\n")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw(points, arguments.output)


def peers(results: Path) -> list[Point]:
    """The peers, trained on processor cores."""
    report = load(results / f"peers-{DATASET}.json")
    systems = report["figures"]["systems"] if report else {}
    return [Point(*PEERS[name], "o", _cores(report), False, figures) for name, figures in systems.items()]


def recipes(results: Path, device: str) -> list[Point]:
    """DECAF's recipes on one kind of device."""
    report = load(results / f"recipes-{DATASET}-{device}.json")
    measured = report["figures"]["recipes"] if report else {}
    hollow = device != "cpu"
    where = report["figures"]["device"] if hollow and report else _cores(report)
    return [Point(f"DECAF {name}", VERMILION, "D", where, hollow, figures) for name, figures in measured.items()]


def load(file: Path) -> dict[str, Any]:
    """What a benchmark wrote, or nothing and a note."""
    if not file.exists():
        print(f"{file.name} is not there yet; its systems are left out")
        return {}
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return report


def _cores(report: dict[str, Any]) -> str:
    return f"{report['machine']['cores']} CPU cores" if report else ""


def draw(points: list[Point], file: Path) -> None:
    """One panel a metric, and a legend that says what each point was trained on."""
    figure = Figure(figsize=(10, 5), dpi=180, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(PANELS))
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        draw_points(axes, points, metric)
        axes.set_title(title, fontsize=12)
    figure.suptitle(f"Accuracy against training time on {DATASET}", fontsize=13)
    devices = {(point.hollow, point.device): None for point in points}
    marks = [
        Line2D([], [], linestyle="", marker="s", markersize=8, color="#777777", fillstyle="none" if hollow else "full")
        for hollow, _ in devices
    ]
    names = [f"trained on {'one ' if hollow else ''}{device}" for hollow, device in devices]
    figure.legend(marks, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=11)
    figure.draw_without_rendering()  # so that the panels have their final places when names are laid out
    for axes, metric in zip(panels, PANELS, strict=True):
        name_points(axes, points, metric)
    figure.savefig(file)


def draw_points(axes: Axes, points: list[Point], metric: str) -> None:
    """Training seconds to the right, the metric upwards."""
    for point in points:
        axes.plot(
            *_position(point, metric),
            linestyle="",
            marker=point.marker,
            markersize=9,
            markeredgewidth=2,
            markeredgecolor=point.colour,
            markerfacecolor="white" if point.hollow else point.colour,
        )
    axes.set_xscale("log")
    axes.margins(x=0.25, y=0.14)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.xaxis.set_minor_formatter(LogFormatter())
    axes.set_xlabel("training, seconds (log scale)", fontsize=11)
    axes.set_ylabel(f"{metric}, percent", fontsize=11)
    axes.grid(which="major", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def name_points(axes: Axes, points: list[Point], metric: str) -> None:
    """Write each name where it covers neither a point nor another name, as far as there is room."""
    points = sorted(points, key=lambda point: -point.figures["training_seconds"])  # names run to the right
    at = [axes.transData.transform(_position(point, metric)) for point in points]
    taken = [Bbox.from_extents(x - 16, y - 16, x + 16, y + 16) for x, y in at]  # in pixels
    for point, own in zip(points, list(taken), strict=True):
        name = axes.annotate(
            point.name,
            _position(point, metric),
            (0, 0),
            textcoords="offset points",
            fontsize=11,
            color=_darker(point.colour),
        )
        others = [box for box in taken if box is not own]
        choices = []
        for place in PLACES:
            _move(name, place)
            box = name.get_window_extent()
            outside = not (axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0)
            choices.append((outside + sum(box.overlaps(other) for other in others), place))
        _move(name, min(choices, key=lambda choice: choice[0])[1])
        taken.append(name.get_window_extent())


def _move(name: Any, place: tuple[int, int, str, str]) -> None:  # noqa: ANN401 - matplotlib's annotation
    right, up, horizontal, vertical = place
    name.xyann = (right, up)
    name.set(horizontalalignment=horizontal, verticalalignment=vertical)


def _position(point: Point, metric: str) -> tuple[float, float]:
    return point.figures["training_seconds"], point.figures[metric]


def _darker(colour: str) -> str:
    """The colour as it can be read on white."""
    return "#" + "".join(f"{int(int(colour[at : at + 2], 16) * 0.7):02x}" for at in (1, 3, 5))


if __name__ == "__main__":
    main()
