"""The blend: how much the other parts weigh beside the classifier, from head to tail, and what chance a score is."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from torch import Tensor

from decaf.modules.judge import Judge, held_parts
from decaf.modules.loop import Keeper
from decaf.modules.problem import Held
from decaf.modules.weighing import Lists, first_in_part, fit_weights
from decaf.networks import LEANING, Blend, Instance, Parts, blended

__all__ = ["fit_chances", "learn_blend", "reliability"]

log = logging.getLogger(__name__)

_NAMES = (*Parts._fields[1:], *(f"{name} by rarity" for name in LEANING))
_TAILS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_MIDDLE = 0.4  # between head and tail, where learning begins
_MORE_WRONG = 0.08  # of the first answers that are wrong: what a tail may add to them
_ALIKE = 0.001  # of all first answers: as good as none
_STEP = 0.05
_FOLDS = 3
_NARROW = 100  # labels of a document that are looked at
_TOP = 20  # labels of a document that chances are fitted on


def learn_blend(
    name: str, held: Held, instance: Instance, keeper: Keeper, *, lean: bool = True, bounded: bool = False
) -> Blend:
    """Choose how much each part weighs on the held-out documents, and fit chances, from head to tail.

    At the head a blend is worth P@1 + P@5, at the tail PSP@1 + PSP@5. It stands between them where it stood; if that
    is `bounded`, nearer to the head where so much tail makes more than 8 % more first answers wrong.
    """
    assert instance.blend is not None  # noqa: S101 - the caller has one to improve
    judge = Judge(held, instance.ranker.weights.device)
    parts = held_parts(held, instance)
    old = instance.blend
    start, _ = old.at(_MIDDLE)
    narrowed = _narrowed(parts, start)
    lists = Lists.of(judge, narrowed)
    weights = fit_weights(lists, start, _TAILS, lean=lean)
    chances = [fit_chances(*_examples(judge, parts, weighed)) for weighed in weights]

    def tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=judge.device)

    made = replace(old, tails=tensor(_TAILS), weights=tensor(weights), chances=tensor(chances))
    if bounded and made.tail > 0:
        made = replace(made, tail=_bounded(made, narrowed, lists, start, lean=lean))
    weighed, chance = made.at(made.tail)
    error, found = _error(judge, parts, weighed, chance), judge.figures(blended(parts, weighed), parts.labels)
    chosen = dict(zip(_NAMES, weighed, strict=True))
    figures = {"P@1": found.p1, "PSP@1": found.psp1}
    keeper.note(module=name, tail=made.tail, calibration_error=error, **chosen, **figures)
    count = f"{held.documents.shape[0]:,}"
    summary = ", ".join(f"{part} {weight:.2f}" for part, weight in chosen.items())
    log.info("%s: %s; chances are off by %.1f %% where fitted, on %s texts", name, summary, 100 * error, count)
    log.info("%s: held-out P@1 %.2f, PSP@1 %.2f at tail %g", name, found.p1, found.psp1, made.tail)
    return made


def _bounded(blend: Blend, parts: Parts, lists: Lists, start: Sequence[float], *, lean: bool) -> float:
    """As much of its tail as does not cost too much: each third of the documents says what the others chose."""
    places = [*(round(at * _STEP, 2) for at in range(math.ceil(blend.tail / _STEP))), blend.tail]
    points = bisect_left(_TAILS, blend.tail) + 1
    right = torch.zeros(len(places), device=lists.worth.device)
    fold = torch.arange(len(lists.worth), device=right.device) % _FOLDS
    for asked in (fold == number for number in range(_FOLDS)):
        weights = torch.tensor(fit_weights(lists.take(~asked), start, _TAILS[:points], lean=lean), device=right.device)
        other = replace(blend, tails=blend.tails[:points], weights=weights, chances=blend.chances[:points])
        some, some_parts = lists.take(asked), Parts(*(part[asked] for part in parts))
        for at, place in enumerate(places):
            right[at] += first_in_part(some, blended(some_parts, other.at(place)[0])).sum()
    shares = (right / lists.worth.sum()).tolist()
    most = max(_MORE_WRONG * (1 - max(shares)), _ALIKE)
    return max(place for place, share in zip(places, shares, strict=True) if max(shares) - share <= most)


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
