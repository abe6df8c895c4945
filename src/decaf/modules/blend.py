"""The blend: how much the other parts weigh beside the classifier, from head to tail, and what chance a score is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import qmc
from torch import Tensor

from decaf.modules.judge import Judge, held_parts
from decaf.modules.loop import Keeper
from decaf.modules.problem import Held
from decaf.networks import Blend, Instance, Parts, blended

__all__ = ["fit_chances", "learn_blend", "reliability"]

log = logging.getLogger(__name__)

_PARTS = Parts._fields[2:]
_TAILS = (0.0, 0.25, 0.5, 0.75, 1.0)
# What they may weigh. A match of words weighs less than nothing where it is counted twice: other parts see it too.
_LEAST = (0.0, 0.0, 0.0, -1.0, 0.0, -2.0, -15.0)
_MOST = (1.5, 0.8, 20.0, 1.0, 20.0, 4.0, 5.0)
_TRIED = 9  # bits: blends that are tried; half as many again around the best
_BEST = 12  # of them that are averaged
_HEAD, _TAIL = slice(0, 2), slice(2, 4)  # of the figures: P and PSP
_NARROW = 100  # labels of a document that are looked at
_TOP = 20  # labels of a document that chances are fitted on


def learn_blend(name: str, held: Held, instance: Instance, keeper: Keeper, *, tail: float = 0.0) -> Blend:
    """Choose how much each part weighs on the held-out documents, and fit chances, from head to tail.

    At the head a blend is worth P@1 + P@5, at the tail PSP@1 + PSP@5; between them its weights go in a line.
    """
    assert instance.blend is not None  # noqa: S101 - the caller has one to improve
    judge = Judge(held, instance.ranker.weights.device)
    parts = held_parts(held, instance)
    old = instance.blend
    linear = old.words is not None and bool(old.words.cue_weights.any())
    words = old.words is not None
    range_ = np.array([_LEAST, _MOST]) * (old.texts is not None, 1, words, words, linear, 1, words)
    narrow = _narrowed(parts, range_.mean(axis=0).tolist())
    tried = _points(_TRIED, range_)
    figures = _figures(judge, narrow, tried)
    head, tail_end = (_closer(judge, narrow, _best(tried, figures, end), range_, end) for end in (_HEAD, _TAIL))
    weights = [((1 - at) * head + at * tail_end).tolist() for at in _TAILS]
    chances = [fit_chances(*_examples(judge, parts, weighed)) for weighed in weights]

    def tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=judge.device)

    made = replace(old, tails=tensor(_TAILS), weights=tensor(weights), chances=tensor(chances))
    weighed, chance = made.at(tail)
    error, found = _error(judge, parts, weighed, chance), judge.figures(blended(parts, weighed), parts.labels)
    chosen = dict(zip(_PARTS, weighed, strict=True))
    keeper.note(module=name, tail=tail, calibration_error=error, **chosen, **{"P@1": found.p1, "PSP@1": found.psp1})
    count = f"{held.documents.shape[0]:,}"
    summary = ", ".join(f"{part} {weight:.2f}" for part, weight in chosen.items())
    log.info("%s: %s; chances are off by %.1f %% where fitted, on %s texts", name, summary, 100 * error, count)
    log.info("%s: held-out P@1 %.2f, PSP@1 %.2f at tail %g", name, found.p1, found.psp1, tail)
    return made


def _points(bits: int, range_: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights from the least to the most, evenly spread -> [2^bits, parts]."""
    least, most = range_
    points: NDArray[np.float64] = least + qmc.Sobol(len(most), scramble=False).random_base2(bits) * (most - least)
    return points


def _figures(judge: Judge, parts: Parts, tried: NDArray[np.float64]) -> NDArray[np.float64]:
    """How documents fare with these weights -> [tried, figures]."""
    return np.array([judge.figures(blended(parts, weights), parts.labels) for weights in tried.tolist()])


def _best(tried: NDArray[np.float64], figures: NDArray[np.float64], end: slice) -> NDArray[np.float64]:
    """The mean of the best by the figures of one end: which of them comes out on top is chance."""
    order = np.argsort(-figures[:, end].sum(axis=1), kind="stable")
    mean: NDArray[np.float64] = tried[order[:_BEST]].mean(axis=0)
    return mean


def _closer(
    judge: Judge, parts: Parts, weights: NDArray[np.float64], range_: NDArray[np.float64], end: slice
) -> NDArray[np.float64]:
    """The best once more, among weights around these."""
    tried = (weights + (_points(_TRIED - 1, range_) - range_.mean(axis=0)) / 2).clip(min=range_[0])
    return _best(tried, _figures(judge, parts, tried), end)


def _narrowed(parts: Parts, weights: Sequence[float]) -> Parts:
    """The best labels of each document, by these weights."""
    scores = blended(parts, weights)
    best = scores.topk(min(_NARROW, scores.shape[1]), dim=1).indices
    return Parts(*(part.gather(1, best) for part in parts))


def fit_chances(
    scores: NDArray[np.float64], company: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[float, float, float]:
    """Logistic regression of being right on a score and the log-sum-exp of its document's scores."""
    columns = np.stack([scores, company, np.ones_like(scores)], axis=1)
    sign = np.where(right, 1.0, -1.0)

    def cost(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = sign * (columns @ values)
        slope = -(sign * expit(-margins)) @ columns / len(scores)
        # The penalty counts as little as one example, and keeps what can be told apart for certain from being certain.
        return float(-log_expit(margins).mean() + values @ values / len(scores)), slope + 2 * values / len(scores)

    bounds = [(1e-3, None), (None, None), (None, None)]  # a higher score is never a lower chance
    found = minimize(cost, np.array([1.0, -1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds)
    slope, of_company, constant = (float(value) for value in found.x)
    return slope, of_company, constant


def reliability(
    chances: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 10
) -> list[tuple[float, float, int]]:
    """Chances in bins of equal width: the mean chance, the share that is right, and how many there are."""
    at = np.minimum((chances * bins).astype(int), bins - 1)
    return [
        (float(chances[at == bin_].mean()), float(right[at == bin_].mean()), int((at == bin_).sum()))
        for bin_ in range(bins)
        if (at == bin_).any()
    ]


def _examples(
    judge: Judge, parts: Parts, weights: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Scores of the best labels, the log-sum-exp of their documents' scores, and whether they are right."""
    scores = blended(parts, weights)
    company = scores.logsumexp(dim=1, keepdim=True)
    best = scores.topk(min(_TOP, scores.shape[1]), dim=1)
    labels = parts.labels.gather(1, best.indices)
    counted = ~judge.ignored(labels)
    values = (best.values, company.expand(best.values.shape), judge.right(labels))
    of_score, of_company, right = (_array(value[counted]) for value in values)
    return of_score, of_company, right > 0


def _error(judge: Judge, parts: Parts, weights: Sequence[float], chances: Sequence[float]) -> float:
    """The mean distance between chance and share that is right, over all bins."""
    scores, company, right = _examples(judge, parts, weights)
    slope, of_company, constant = chances
    bins = reliability(expit(slope * scores + of_company * company + constant), right)
    return round(sum(abs(chance - share) * count for chance, share, count in bins) / max(1, len(right)), 4)


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.double().cpu().numpy()
