"""The tables of a report, made of its JSON alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from decaf.experiments.systems import ABLATIONS, MAIN, METADATA, PAPER, SHORTLISTERS, SYSTEMS

__all__ = ["Cell", "Mean", "Run", "Table", "metric", "runs_of", "tables"]

Run = dict[str, Any]
Report = dict[str, Any]

_PLACES = {"PSP@1": 0, "PSP@5": 1, "P@1": 2, "P@5": 3, "R@20": 4}  # in the paper's rows
_NOISE = 0.2  # points: less is said to be no difference, where seeds do not tell


class Cell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table to be written as HTML or Markdown."""

    title: str
    caption: str
    heading: list[str]
    rows: list[list[Cell]] = field(default_factory=list)


class Mean(NamedTuple):
    """A figure over seeds."""

    value: float
    spread: float  # standard deviation; not a number where there is one seed
    seeds: int

    def __str__(self) -> str:
        return f"{self.value:.2f}" if math.isnan(self.spread) else f"{self.value:.2f} ± {self.spread:.2f}"


def runs_of(report: Report, system: str, *, kind: str = "judge", labels: int | None = None) -> list[Run]:
    """The runs of a system on the report's own labels, or on so many."""
    wanted = report["dataset"]["drawn"] if labels is None else labels
    runs = (run for run in report["runs"] if run["job"]["kind"] == kind and run["job"]["system"] == system)
    return [run for run in runs if run["job"]["labels"] == wanted]


def metric(runs: Sequence[Run], name: str) -> Mean | None:
    """A metric over the seeds of a system."""
    values = [run["metrics"][name] for run in runs]
    return _mean(values) if values else None


def _mean(values: Sequence[float]) -> Mean:
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    return Mean(statistics.fmean(values), spread, len(values))


def tables(report: Report) -> list[Table]:
    """All tables that the report has runs for."""
    made = (
        _accuracy(report, "Accuracy", ("P@1", "P@3", "P@5", "N@1", "N@3", "N@5", "R@20"), _ACCURACY),
        _accuracy(report, "Rare labels", ("PSP@1", "PSP@3", "PSP@5", "PSN@1", "PSN@3", "PSN@5", "C@20"), _RARE),
        _cost(report),
        _metadata(report),
        _variants(report, "Shortlisters", SHORTLISTERS, _SHORTLISTERS),
        _variants(report, "Components", ABLATIONS, _COMPONENTS),
        _theorem(report),
        _troubles(report),
    )
    return [table for table in made if table.rows]


_ACCURACY = (
    "Percent on the test documents, the filter applied: precision and nDCG at 1, 3 and 5, recall at 20. Mean and "
    "standard deviation over seeds where there is more than one; the best of a column is bold."
)
_RARE = (
    "Percent, propensity-scored: a rare label counts for more. C@20: of the labels to be found, the share that is "
    "found in the first 20 of some document."
)
_COMPARED = (
    "as points above or below it with the same seed; beside it what the paper's table {table} reports on its two "
    "datasets, of ensembles of three. The beam follows by itself, as it does in the paper, until 85 % of the training "
    "pairs are shortlisted{{beam}}. Differences below {{p:.2f}} (P@1) and {{psp:.2f}} (PSP@1) are within noise."
)
_SHORTLISTERS = (
    f"The paper's recipe, one instance, with other ways to shortlist labels, {_COMPARED.format(table=5)}"
    " The beam of HNSW counts labels, not clusters."
)
_COMPONENTS = f"The paper's recipe, one instance, with one setting changed, {_COMPARED.format(table=6)}"


def _accuracy(report: Report, title: str, names: Sequence[str], caption: str) -> Table:
    """One line a system, one column a metric."""
    lines = {system: runs_of(report, system) for system in MAIN}
    lines = {system: runs for system, runs in lines.items() if runs}
    found = {(system, name): metric(runs, name) for system, runs in lines.items() for name in names}
    best = {name: max((_value(found[system, name]) for system in lines), default=math.nan) for name in names}
    rows = [
        [
            Cell(SYSTEMS[system].title),
            *(Cell(str(found[system, name]), _value(found[system, name]) == best[name]) for name in names),
            Cell(str(len(runs))),
        ]
        for system, runs in lines.items()
    ]
    return Table(title, caption, ["", *names, "seeds"], rows)


def _value(mean: Mean | None) -> float:
    return math.nan if mean is None else mean.value


def _cost(report: Report) -> Table:
    """Times and sizes."""
    rows = []
    for system in MAIN:
        runs = runs_of(report, system)
        if not runs:
            continue
        columns: list[tuple[str, Callable[[float], str]]] = [
            ("training_seconds", lambda value: f"{value:,.1f}" if value >= 10 else f"{value:.2f}"),
            ("ms_per_document", lambda value: f"{value:.3f}"),
            ("model_mb", lambda value: f"{value:,.1f}"),
        ]
        cells = [
            Cell(show(statistics.median(run[name] for run in runs)) if name in runs[0] else "")
            for name, show in columns
        ]
        beside = max(run["beside"] for run in runs)
        devices = dict.fromkeys(run["device"] for run in runs)
        where = " and ".join(devices) + (f", {beside} runs at a time" if beside > 1 else "")
        rows.append([Cell(SYSTEMS[system].title), *cells, Cell(where)])
    caption = (
        "Medians over seeds. Training from texts to a model, features included. Prediction from texts to five labels "
        "for all test documents on the threads named; omikuji is called document by document, which is how its Python "
        "package is used. Size on disk; that of DECAF holds tokenizer and label texts too. Compare what ran on the "
        "same machine alone."
    )
    return Table("Cost", caption, ["", "training, s", "prediction, ms a document", "model, MB", "on"], rows)


def _metadata(report: Report) -> Table:
    """The peers with label text, and what the paper says of two of them."""
    names = ("P@1", "P@5", "PSP@1", "PSP@5")
    rows = []
    for system in METADATA:
        alone, both = runs_of(report, system)[:1], runs_of(report, system, kind="metadata")
        if not alone or not both:
            continue
        own, new = alone[0]["metrics"], both[0]["metrics"]
        theirs = [_paper_gain(system, f"{system}+text", dataset, "P@1", "PSP@1") for dataset in PAPER]
        cells = [Cell(f"{new[name]:.2f} ({new[name] - own[name]:+.2f})") for name in names]
        title = SYSTEMS[system].title
        rows.append([Cell(f"{title} + label text"), *cells, Cell(f"{both[0]['weight']:g}"), *map(Cell, theirs)])
    for system in ("paper", "decaf"):
        if rows and (runs := runs_of(report, system)):
            figures = [Cell(f"{_value(metric(runs, name)):.2f}") for name in names]
            rows.append([Cell(SYSTEMS[system].title), *figures, *[Cell("")] * (1 + len(PAPER))])
    caption = (
        "Each peer's score s combined with label text as a s + (1 - a) sigmoid(<x, z>), the weight a chosen for P@1 on "
        "validation documents out of the training part; in brackets what that adds to the peer alone (seed 0). Last "
        "columns: what the paper's table 4 reports, P@1 / PSP@1."
    )
    return Table("Peers with label text", caption, ["", *names, "a", *(f"paper, {name}" for name in PAPER)], rows)


def _paper_gain(base: str, variant: str, dataset: str, *names: str) -> str:
    of = PAPER[dataset]
    if base not in of or variant not in of:
        return ""
    return " / ".join(f"{of[variant][_PLACES[name]] - of[base][_PLACES[name]]:+.2f}" for name in names)


def _variants(report: Report, title: str, systems: Iterable[str], caption: str) -> Table:
    """What changes against the paper's recipe with the same seed, and whether the paper saw the same."""
    base = runs_of(report, "paper")
    names = ("P@1", "P@5", "PSP@1", "PSP@5", "R@20")
    noise = {name: _noise(base, name, report["dataset"]["test_documents"]) for name in names}
    rows = []
    for system in systems:
        runs = runs_of(report, system)[:1]
        same = [run for run in base if runs and run["job"]["seed"] == runs[0]["job"]["seed"]]
        if not runs or not same:
            continue
        gains = {name: runs[0]["metrics"][name] - same[0]["metrics"][name] for name in names}
        theirs = [_paper_gain("paper", system, dataset, "P@1", "PSP@1") for dataset in PAPER]
        said = [_direction(gains[name], _paper_gains(system, name), noise[name]) for name in ("P@1", "PSP@1")]
        rows.append(
            [
                Cell(SYSTEMS[system].title),
                *(Cell(f"{gains[name]:+.2f}") for name in names),
                Cell(str(runs[0].get("beam", ""))),
                *map(Cell, theirs),
                Cell(" / ".join(said) if any(said) else "not in the paper"),
            ]
        )
    beam = f" (its own is {base[0]['beam']})" if base and "beam" in base[0] else ""
    told = caption.format(beam=beam, p=noise["P@1"], psp=noise["PSP@1"])
    if len(base) == 1:
        told += " There is one seed, so that these limits are a guess."
    heading = ["", *names, "beam", *(f"paper, {name}: P@1 / PSP@1" for name in PAPER), "direction: P@1 / PSP@1"]
    return Table(title, told, heading, rows)


def _noise(base: Sequence[Run], name: str, documents: int) -> float:
    """A difference that seeds alone would make: twice the spread of the recipe's own, or two test documents."""
    mean, least = metric(base, name), max(_NOISE, 200 / max(1, documents))
    return least if mean is None or math.isnan(mean.spread) else max(least, 2 * mean.spread)


def _paper_gains(system: str, name: str) -> list[float]:
    place = _PLACES[name]
    return [of[system][place] - of["paper"][place] for of in PAPER.values() if system in of]


def _direction(ours: float, theirs: Sequence[float], noise: float) -> str:
    """How a difference of ours stands to those of the paper."""
    if not theirs:
        return ""
    if abs(ours) < noise:
        return "within noise"
    agreeing = [gain for gain in theirs if gain * ours > 0]
    if len(agreeing) == len(theirs):
        return "same"
    return "same as one of the two" if agreeing else "opposite"


def _theorem(report: Report) -> Table:
    """Losses beside the bound."""
    heading = [
        "clusters B",
        "recall r",
        "loss on shortlists",
        "above the best",
        "bound",
        "own scores",
        "above the best",
    ]
    runs = [run for run in report["runs"] if run["job"]["kind"] == "theorem"]
    if not runs:
        return Table("The theorem", "", heading)
    of = runs[0]["theorem"]
    best = best_loss(of)
    rows = [
        [
            Cell(str(line["beam"])),
            Cell(f"{100 * line['recall']:.1f} %"),
            Cell(f"{line['shortlist']:.3f}"),
            Cell(f"{line['shortlist'] - best:+.3f}"),
            Cell(f"{line['bound']:.3f}"),
            Cell(f"{line['own_scores']:.3f}"),
            Cell(f"{line['own_scores'] - best:+.3f}"),
        ]
        for line in of["beams"]
    ]
    within = sum(line["shortlist"] - best <= line["bound"] for line in of["beams"])
    plain = sum(line["own_scores"] - best <= line["bound"] for line in of["beams"])
    caption = (
        f"Negative log-likelihood of the training part in nats a document ({of['documents']:,} documents, "
        f"{of['labels']:,} labels, K = {of['clusters']}, sparsity s = {of['sparsity']:.2e}). Learned over all labels "
        f"for as many epochs, which need not reach the minimum, it is {of['full']:.3f}; the lowest of all, which "
        f"stands for the minimum that nobody knows, {best:.3f}. The theorem allows an excess of the order of "
        f"s(1-r) ln(1/(s(1-r))), here times the labels and with the constant 1. With one small chance for all that is "
        f"not shortlisted, as in the paper's proof, {within} of {len(of['beams'])} lines stay below that; by the "
        f"classifiers' own scores of labels they never met, {plain} do: the theorem is about the former."
    )
    return Table("The theorem", caption, heading, rows)


def best_loss(theorem: dict[str, Any]) -> float:
    """The lowest loss over all pairs that any of the classifiers reached."""
    seen = [line[name] for line in theorem["beams"] for name in ("own_scores", "shortlist")]
    return float(min([theorem["full"], *seen]))


def _troubles(report: Report) -> Table:
    """What could not be run."""
    rows = [[Cell(one["title"]), Cell(one["reason"])] for one in report["troubles"]]
    return Table("Not run", "What did not end, and why.", ["", "reason"], rows)
