"""The report: its JSON, and that as a page of HTML or Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from decaf import __version__
from decaf.datasets import Dataset
from decaf.errors import DataError
from decaf.experiments.examples import examples
from decaf.experiments.figures import drawings
from decaf.experiments.judging import drawn
from decaf.experiments.peers import TOP
from decaf.experiments.plan import Job
from decaf.experiments.provenance import commit, machine
from decaf.experiments.runs import Outcome
from decaf.experiments.systems import MAIN, METADATA, SYSTEMS
from decaf.experiments.tables import Cell, Mean, metric, runs_of, tables
from decaf.predictions import Predictions, load_scores

__all__ = ["assembled", "check_same_data", "findings", "html", "joined", "markdown", "read_report", "write_report"]

_FORMAT = 1
_PARTS = {"dataset", "profile", "date", "version", "runs", "troubles", "examples"}
_OURS = "decaf"


def assembled(dataset: Dataset, profile: str, labels: int, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All that a report says; `labels` were drawn, 0 for all."""
    part = drawn(dataset, labels)
    return {
        "format": _FORMAT,
        "dataset": _sizes(dataset, part, labels),
        "profile": profile,
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "commit": commit(),
        "machine": machine(),
        "runs": [outcome.result for outcome in outcomes if outcome.result is not None],
        "troubles": [
            {"job": vars(outcome.job), "title": _title(outcome.job), "reason": outcome.trouble}
            for outcome in outcomes
            if outcome.result is None
        ],
        "examples": examples(part, _predicted(outcomes, part, labels), _OURS),
    }


def _sizes(dataset: Dataset, part: Dataset, labels: int) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "all_labels": dataset.labels.count,
        "drawn": labels,
        "labels": part.labels.count,
        "training_documents": part.train.documents.count,
        "test_documents": part.test.documents.count,
        "labels_per_document": round(part.train.truth.nnz / max(1, part.train.documents.count), 2),
    }


def _title(job: Job) -> str:
    kind = "" if job.kind == "judge" else f" ({job.kind})"
    some = f", {job.labels:,} labels" if job.labels else ""
    return f"{SYSTEMS[job.system].title}{kind}{some}, seed {job.seed}"


def _predicted(outcomes: Sequence[Outcome], dataset: Dataset, labels: int) -> dict[str, Predictions]:
    """What the systems of the main comparison predict, those that are there."""
    found = {}
    for outcome in outcomes:
        job = outcome.job
        main = job.kind == "judge" and job.system in MAIN and job.seed == 0 and job.labels == labels
        if main and outcome.folder is not None:
            scores = load_scores(outcome.folder / "predictions.npz", *dataset.test.truth.shape)
            found[job.system] = Predictions.from_csr(scores, TOP)
    return found


def write_report(report: Mapping[str, Any], folder: Path) -> None:
    """Write report.json and report.html, each whole or not at all."""
    for name, text in (("report.json", json.dumps(report, indent=1) + "\n"), ("report.html", html(report))):
        aside = folder / f".{name}.part"
        aside.write_text(text, encoding="utf-8")
        aside.replace(folder / name)


def read_report(file: Path) -> dict[str, Any]:
    """What `write_report` wrote."""
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: is no report ({error}); make one with decaf-experiments") from error
    if not isinstance(report, dict) or report.get("format") != _FORMAT or not report.keys() >= _PARTS:
        raise DataError(f"{file}: is no report of this version; make one with decaf-experiments")
    return report


def check_same_data(report: Mapping[str, Any], dataset: Dataset, labels: int) -> None:
    """Refuse a report on other data than this dataset with so many labels drawn."""
    of, here = report["dataset"], _sizes(dataset, drawn(dataset, labels), labels)
    if of != here:
        told = [
            f"{one['name']} ({one['labels']:,} labels, {one['training_documents']:,} documents)" for one in (of, here)
        ]
        raise DataError(
            f"the report is on {told[0]}, not on {told[1]}; join one on the same data, with the same --labels"
        )


def joined(report: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The report, with what it lacks from another on the same data; the examples are of that with more systems."""
    runs = {_job(run): run for run in (*other["runs"], *report["runs"])}
    troubles = {_job(trouble): trouble for trouble in (*other["troubles"], *report["troubles"])}
    return dict(report) | {
        "runs": list(runs.values()),
        "troubles": [trouble for job, trouble in troubles.items() if job not in runs],
        "examples": max((report, other), key=_shown)["examples"],
    }


def _job(of: Mapping[str, Any]) -> Job:
    return Job(**of["job"])


def _shown(report: Mapping[str, Any]) -> int:
    """Systems whose answers are shown."""
    return sum(len(example["systems"]) for example in report["examples"])


def findings(report: Mapping[str, Any]) -> list[str]:
    """How the default recipe stands to the best that is not DECAF, with label text or without, in a few sentences."""
    plain = dict(report)
    ours = runs_of(plain, _OURS)
    rivals = {SYSTEMS[name].title: runs_of(plain, name) for name in MAIN if SYSTEMS[name].maker != "decaf"}
    rivals |= {f"{SYSTEMS[name].title} + label text": runs_of(plain, name, kind="metadata") for name in METADATA}
    said = []
    for name, what in (("P@1", "the first label is right"), ("PSP@1", "the same, rare labels weighing more")):
        known = {title: mean for title, runs in rivals.items() if (mean := metric(runs, name)) is not None}
        if not known:
            continue
        best = max(known, key=lambda title: known[title].value)
        seeds = {run["job"]["seed"] for run in rivals[best]}
        alike = [run for run in ours if run["job"]["seed"] in seeds] or ours
        if (mine := metric(alike, name)) is not None:
            which = f" Both with seed {', '.join(map(str, sorted(seeds)))}." if len(alike) < len(ours) else ""
            said.append(f"{name} ({what}): {_against(mine, known[best], best)}{which}")
    if said and not any(runs for title, runs in rivals.items() if title != SYSTEMS["match"].title):
        said.append("No peer was run: the only other system learns nothing.")
    return said


def _against(mine: Mean, other: Mean, title: str) -> str:
    gap = mine.value - other.value
    how = f"{gap:.2f} points ahead of" if gap > 0 else f"{-gap:.2f} points behind" if gap < 0 else "level with"
    return f"DECAF's default recipe {mine}, {how} the best of the others, {title} ({other})."


def html(report: Mapping[str, Any]) -> str:
    """The report as one page that needs nothing else."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        (files("decaf.experiments") / "report.html.jinja").read_text(encoding="utf-8"),
    )
    plain = dict(report)
    return template.render(
        report=plain,
        findings=findings(plain),
        tables=tables(plain),
        drawings=drawings(plain),
        systems=SYSTEMS,
        peers=any(SYSTEMS[run["job"]["system"]].maker not in ("decaf", "match") for run in plain["runs"]),
        sources=_sources(plain),
        chosen=_CHOSEN,
    )


def _sources(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Where each run was made, in as few lines as say it."""
    lines: dict[tuple[str, ...], int] = {}
    for run in report["runs"]:
        where = run["machine"]
        key = (
            run["date"],
            run["commit"],
            run["device"],
            f"{where['processor']}, {where['cores']} cores",
            where["python"],
        )
        lines[key] = lines.get(key, 0) + 1
    names = ("date", "commit", "device", "machine", "python")
    return [dict(zip(names, key, strict=True)) | {"runs": count} for key, count in lines.items()]


def markdown(report: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """The report as a section of Markdown; pictures are the addresses of its figures by name."""
    plain = dict(report)
    of = plain["dataset"]
    parts = [
        f"## {_escaped(of['name'])}",
        _about(plain),
        *(f"- {line}" for line in findings(plain)),
    ]
    for table in tables(plain):
        rows = ([_markdown_cell(cell) for cell in row] for row in table.rows)
        parts += [f"### {table.title}", _escaped(table.caption), _markdown_table(table.heading, rows)]
    for drawing in drawings(plain):
        parts += [f"### {drawing.title}", f"![{drawing.title}]({pictures[drawing.name]})", drawing.caption]
    if plain["examples"]:
        parts += ["### Examples", _LEGEND, *(_markdown_example(one) for one in plain["examples"])]
    return "\n\n".join(parts)


# Of the page and of the Markdown.
_CHOSEN = (
    "Documents drawn at random among those of three labels to be found or more and a title of at most 60 characters, "
    "where some system finds one in five: two where the default recipe finds more than the best of the others, two "
    "where it finds as many, two where it finds fewer; in brackets how many such documents are of that kind."
)
_LEGEND = (
    f"{_CHOSEN} **Bold**: right; ***bold italics***: right, and never given together with another true label of the "
    "document in training."
)


def _about(report: dict[str, Any]) -> str:
    of = report["dataset"]
    some = (
        f"{of['labels']:,} of its {of['all_labels']:,} labels, drawn at random"
        if of["drawn"]
        else f"{of['labels']:,} labels"
    )
    sizes = f"{of['training_documents']:,} training documents, {of['test_documents']:,} test documents"
    made = "; ".join(
        f"{one['runs']} runs on {one['device']} ({one['machine']}), commit {one['commit']}, {one['date']}"
        for one in _sources(report)
    )
    return f"Profile {report['profile']}: {some}, {sizes}. {made or 'Nothing was run'}."


def _markdown_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.best and text else text


def _markdown_example(one: dict[str, Any]) -> str:
    rows = [[SYSTEMS[name].title, ", ".join(map(_markdown_label, labels))] for name, labels in one["systems"].items()]
    kind = f"{one['kind']}, {one['share']} %" if "share" in one else one["kind"]
    heading = [f"{_escaped(one['document'])} ({kind})", f"to be found: {', '.join(map(_escaped, one['true']))}"]
    return _markdown_table(heading, rows)


def _markdown_label(label: dict[str, Any]) -> str:
    mark = "***" if label["right"] and label["new"] else "**" if label["right"] else ""
    return f"{mark}{_escaped(label['label'])}{mark}"


def _escaped(text: str) -> str:
    """A text of one line that Markdown takes as it is."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#~" else letter for letter in " ".join(text.split()))
