"""Reports made by hand: runs of every kind, with figures that are easy to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decaf.experiments.systems import COST, SYSTEMS
from decaf.experiments.tables import Run

Report = dict[str, Any]

NAMES = [f"{name}@{k}" for name in ("P", "N", "PSP", "PSN") for k in (1, 3, 5)] + ["R@20", "C@20"]
DRAWN = 64  # labels of a report, out of 200


def metrics(value: float = 30.0, **others: float) -> dict[str, float]:
    """All of one value but for others, written P_1 for P@1."""
    return dict.fromkeys(NAMES, value) | {name.replace("_", "@"): other for name, other in others.items()}


def _run(kind: str, system: str, seed: int, labels: int, facts: Mapping[str, Any]) -> Run:
    return {
        "job": {"kind": kind, "system": system, "seed": seed, "labels": labels},
        "date": "2026-11-15",
        "commit": "abc1234",
        "machine": {"processor": "Some CPU", "cores": 2, "system": "Linux", "python": "3.11.7"},
        "device": "2 CPU cores",
        "threads": 2,
        "beside": 1,
        "labels": labels or 200,
        "documents": 300,
        **facts,
    }


def judged(
    system: str,
    value: float = 30.0,
    *,
    seed: int = 0,
    labels: int = DRAWN,
    others: Mapping[str, float] | None = None,
    **facts: Any,  # noqa: ANN401 - whatever a run may say
) -> Run:
    """A run of the comparison, all its metrics of one value but for others."""
    quantiles = [
        {"labels": 40 - 8 * group, "mean_frequency": 1.5 + group, "contribution": value / 10 + group}
        for group in range(5)
    ]
    usual = {
        "training_seconds": 12.5,
        "ms_per_document": 0.25,
        "settings": {"model.dim": "300"} if SYSTEMS[system].maker != "match" else {},
        "metrics": metrics(value, **(others or {})),
        "quantiles": quantiles,
    }
    size = {} if SYSTEMS[system].maker == "match" else {"model_mb": 4.5}
    return _run("judge", system, seed, labels, usual | size | facts)


def with_text(system: str, value: float = 31.0, *, weight: float = 0.85, labels: int = DRAWN, **others: float) -> Run:
    """A peer with label text."""
    facts = {"weight": weight, "precision_by_weight": {"0.85": value}, "metrics": metrics(value, **others)}
    return _run("metadata", system, 0, labels, facts | {"quantiles": []})


def beam(number: int, recall: float, shortlist: float, own_scores: float, bound: float) -> dict[str, float]:
    """One line of the theorem."""
    return {"beam": number, "recall": recall, "shortlist": shortlist, "own_scores": own_scores, "bound": bound}


BEAMS = (beam(1, 0.5, 5.0, 9.0, 2.0), beam(2, 0.75, 4.25, 4.5, 1.0), beam(4, 0.9, 3.9, 4.0, 0.5))


def theorem(beams: Sequence[Mapping[str, float]] = BEAMS, *, full: float = 3.5) -> Run:
    """The theorem's run."""
    about = {"documents": 300, "labels": DRAWN, "clusters": 16, "sparsity": 0.02, "full": full, "beams": [*beams]}
    return _run("theorem", "paper", 0, DRAWN, {"theorem": about})


def reach(clusters: int) -> dict[str, Any]:
    """Recall by beam, of so many clusters."""
    shares = {"training": [70.0, 80.0, 90.0], "test": [50.0, 60.0, 75.25]}
    return {"clusters": clusters, "reach": {"beams": [1, 2, 5], "labels_in_a_cluster": DRAWN / clusters, **shares}}


def trouble(reason: str, system: str = "napkinxc-br") -> dict[str, Any]:
    """A run that did not end."""
    job = {"kind": "judge", "system": system, "seed": 0, "labels": DRAWN}
    return {"job": job, "title": f"{SYSTEMS[system].title}, seed 0", "reason": reason}


def example(
    document: str = "a document", labels: Sequence[str] = ("one", "two", "three"), kind: str = "found more"
) -> dict[str, Any]:
    """Ours finds all of three labels, the second of them new; the match finds none."""
    ours = [{"label": label, "right": True, "new": place == 1} for place, label in enumerate(labels)]
    wrong = [{"label": f"not {label}", "right": False, "new": False} for label in labels]
    return {"document": document, "true": [*labels], "systems": {"decaf": ours, "match": wrong}, "kind": kind}


def report(
    runs: Sequence[Run],
    *,
    drawn: int = DRAWN,
    troubles: Sequence[Mapping[str, Any]] = (),
    examples: Sequence[Mapping[str, Any]] = (),
    name: str = "own",
) -> Report:
    """A report of these runs."""
    return {
        "format": 1,
        "dataset": {
            "name": name,
            "all_labels": 200,
            "drawn": drawn,
            "labels": drawn or 200,
            "training_documents": 1300,
            "test_documents": 1500,
            "labels_per_document": 2.5,
        },
        "profile": "quick",
        "date": "2026-11-16",
        "version": "0.1.0",
        "commit": "abc1234",
        "machine": {"processor": "Some CPU", "cores": 2, "system": "Linux", "python": "3.11.7"},
        "runs": [*runs],
        "troubles": [*troubles],
        "examples": [*examples],
    }


def our_runs() -> list[Run]:
    """All that our own systems give, and the match."""
    instances = {str(count): metrics(29.0 + count) for count in (1, 2, 3)}
    return [
        *(judged("decaf", value, seed=seed) for seed, value in enumerate((40.0, 41.0, 42.0))),
        judged("decaf-3", 43.0, instances=instances),
        judged("paper", 35.0, **reach(16)),
        judged("paper-3", 36.0, instances=instances),
        judged("match", 20.0),
        judged("paper-few-clusters", 33.0, **reach(4)),
        judged("paper-forced", 35.5),
        judged("paper-hnsw", 36.0),
        *(judged("decaf", 50.0, labels=labels, training_seconds=labels / 8) for labels in (16, 32)),
    ]


def peer_runs() -> list[Run]:
    """All that peers give."""
    peers = [name for name in COST if name != "decaf"]
    alone = [judged(name, 30.0) for name in (*peers, "pecos-pifa-lf-concat")]
    smaller = [judged(name, 40.0, labels=labels) for name in peers for labels in (16, 32)]
    return [*alone, *(with_text(name) for name in peers), *smaller]


def whole() -> Report:
    """A report of everything."""
    runs = [*our_runs(), *peer_runs(), theorem()]
    return report(runs, troubles=[trouble("took more than 60 s")], examples=[example(), example("another")])
