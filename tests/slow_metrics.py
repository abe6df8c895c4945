"""The metrics again, slow and obvious: loops over documents, written from the formulas and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

Ranking = Sequence[int]  # one document's labels, best first


def slow_figures(
    rankings: Sequence[Ranking],
    truth: Sequence[set[int]],
    inverse_propensity: Sequence[float],
    filters: set[tuple[int, int]],
) -> dict[str, float]:
    """P, N, PSP and PSN at 1, 3 and 5, R and C at 20, in percent."""
    rankings, truth = _filtered(rankings, truth, filters)
    documents = list(zip(rankings, truth, strict=True))
    figures = {}
    for k in (1, 3, 5):
        figures[f"P@{k}"] = _mean([_hits(ranking, true, k) / k for ranking, true in documents])
        figures[f"N@{k}"] = _mean(
            [_dcg(ranking, true, k) / _ideal_dcg(true, k) if true else 0.0 for ranking, true in documents]
        )
        gain = best = discounted_gain = discounted_best = 0.0
        for ranking, true in documents:
            weights = [inverse_propensity[label] if label in true else 0.0 for label in ranking[:k]]
            attainable = sorted((inverse_propensity[label] for label in true), reverse=True)[:k]
            gain += sum(weights)
            best += sum(attainable)
            if true:
                discounted_gain += _discounted(weights) / _ideal_dcg(true, k)
                discounted_best += _discounted(attainable) / _ideal_dcg(true, k)
        figures[f"PSP@{k}"] = _percent(gain, best)
        figures[f"PSN@{k}"] = _percent(discounted_gain, discounted_best)
    figures["R@20"] = _mean([_hits(ranking, true, 20) / len(true) if true else 0.0 for ranking, true in documents])
    found = {label for ranking, true in documents for label in ranking[:20] if label in true}
    wanted = {label for true in truth for label in true}
    figures["C@20"] = _percent(len(found), len(wanted))
    return figures


def slow_quantiles(
    rankings: Sequence[Ranking],
    truth: Sequence[set[int]],
    frequency: Sequence[int],
    filters: set[tuple[int, int]],
) -> list[tuple[int, float, float]]:
    """(labels, their mean frequency, their contribution to P@5 in percent) of five groups from rare to frequent."""
    rankings, truth = _filtered(rankings, truth, filters)
    total = sum(frequency)
    groups: list[list[int]] = [[], [], [], [], []]
    before = 0
    for label in sorted(range(len(frequency)), key=lambda label: (frequency[label], label)):
        groups[5 * before // total if total else 0].append(label)
        before += frequency[label]
    rows = []
    for group in groups:
        hits = sum(
            label in true and label in group
            for ranking, true in zip(rankings, truth, strict=True)
            for label in ranking[:5]
        )
        mean_frequency = sum(frequency[label] for label in group) / len(group) if group else 0.0
        rows.append((len(group), mean_frequency, _percent(hits, 5 * len(truth))))
    return rows


def _filtered(
    rankings: Sequence[Ranking], truth: Sequence[set[int]], filters: set[tuple[int, int]]
) -> tuple[list[list[int]], list[set[int]]]:
    kept_rankings = [[label for label in row if (at, label) not in filters] for at, row in enumerate(rankings)]
    kept_truth = [{label for label in row if (at, label) not in filters} for at, row in enumerate(truth)]
    return kept_rankings, kept_truth


def _hits(ranking: Ranking, true: set[int], k: int) -> int:
    return sum(label in true for label in ranking[:k])


def _dcg(ranking: Ranking, true: set[int], k: int) -> float:
    return _discounted([float(label in true) for label in ranking[:k]])


def _ideal_dcg(true: set[int], k: int) -> float:
    return _discounted([1.0] * min(k, len(true)))


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _mean(values: Sequence[float]) -> float:
    return 100 * sum(values) / len(values) if values else 0.0


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
